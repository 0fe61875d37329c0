"""Principle 3: results are right, and the evidence ran the changed code."""
