"""Processes that do the tasks of a selftest, forked from the one that chooses them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

Work = Callable[..., Any]


@contextmanager
def interruptible_pool(at_a_time: int, begin: Callable[[], Work]) -> Iterator[ProcessPoolExecutor]:
    """Processes forked from this one, which has one thread; an interrupt leaves them at once, with what waits.

    `begin` gives in each of them what `run_in_child` is to call.
    """
    pool = ProcessPoolExecutor(at_a_time, get_context("fork"), _begin_child, (begin,))
    try:
        yield pool
    except KeyboardInterrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def run_in_child(*arguments: Any) -> Any:
    """In a process of the pool: what its work gives."""
    return _of_child[0](*arguments)


_of_child: list[Work] = []


def _begin_child(begin: Callable[[], Work]) -> None:
    """An interrupt is the parent's, which then kills this process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _of_child[:] = [begin()]
