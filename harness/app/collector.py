"""Python's garbage collector, out of the way of work that makes millions of small objects and no cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Reading syntax trees takes half the time without it.

    What was made stays out of its sight afterwards: looking through it once would cost what was saved.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.freeze()
            gc.enable()


def collect_again() -> None:
    """Frees what was kept out of the collector's sight, of work that is done; for a process that does much of it."""
    gc.unfreeze()
    gc.collect()
