"""Runs at the start of every Python process of an engine, before anything of the subject can be imported."""

import os
import sys
from pathlib import Path

if os.environ.get("FASTTRACK_TRACE"):
    _root = str(Path(__file__).resolve().parents[3])
    sys.path.insert(0, _root)
    from harness.engine.tracer import register

    sys.path.remove(_root)
    register()
