"""Processes that run the cases of a round: forked, so that each has what was prepared."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

from harness.app.selftest.catalogue import Case
from harness.model.selftest import CaseResult

RunGroup = Callable[[list[Case]], list[CaseResult]]


@contextmanager
def interruptible_pool(at_a_time: int, run_group: RunGroup) -> Iterator[ProcessPoolExecutor]:
    """Processes forked from this one, which has one thread; an interrupt leaves them at once, with what waits."""
    pool = ProcessPoolExecutor(at_a_time, get_context("fork"), _begin_child, (run_group,))
    try:
        yield pool
    except KeyboardInterrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def run_in_child(group: list[Case]) -> list[CaseResult]:
    """In a process of the pool: what is said of the cases."""
    return _of_child[0](group)


_of_child: list[RunGroup] = []


def _begin_child(run_group: RunGroup) -> None:
    """An interrupt is the parent's, which then kills this process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _of_child[:] = [run_group]
