"""Which variants this process has launched: what tests and the judge read as variant coverage.

A launch inside a CUDA graph capture counts once, when it is captured.
"""

from __future__ import annotations

from collections import Counter

_COUNTS: Counter[str] = Counter()


def record_launch(variant: str) -> None:
    """Counts one launch of the variant with this name."""
    _COUNTS[variant] += 1


def launch_counts() -> dict[str, int]:
    """Launches by variant name since the process began, or since `forget_launches`."""
    return dict(_COUNTS)


def forget_launches() -> None:
    """Starts the count anew."""
    _COUNTS.clear()
