"""Runs at the start of every Python process of an engine, before anything of the subject can be imported.

The harness's package can be imported from then on, installed or not; nothing else of its folder can.
"""

import os
import sys
from pathlib import Path

_settings = os.environ.get("FASTTRACK_TRACE")
if _settings is not None:
    _root = str(Path(__file__).resolve().parents[3])
    sys.path.insert(0, _root)
    import harness  # noqa: F401

    sys.path.remove(_root)
    if _settings:
        from harness.engine.tracer import register

        register()
