"""What runs inside the process of a change's own tests: it notes their calls of the subject, and falsifies them.

The change's checkout may hold a package of any name, `harness` among them, so this one is loaded under a name of its
own (`session.py`) and imports nothing of the harness.
"""
