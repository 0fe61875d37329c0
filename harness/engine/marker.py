"""Functions planted for the tracer's proof of life: wrapped as the subject's are, and called once."""

from __future__ import annotations

DECISION_TARGET = "harness.engine.marker:decide"
CODE_TARGET = "harness.engine.marker:run"


def decide() -> str:
    """A decision point that always decides for the marker."""
    return "marker"


def run() -> None:
    """Code whose call must be counted."""
