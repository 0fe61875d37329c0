"""CUDA graphs of launches that wait for other processes."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from examples.peers.session import Session


def capture(session: Session, call: Callable[[], object]) -> Callable[[], object]:
    """Replays what `call` enqueues; all processes capture at once, and have run the call before.

    Kernels are loaded at their first launch, which waits for the GPU: not while others wait for this process.
    """
    session.meet()
    graph = torch.cuda.CUDAGraph()
    # NCCL's watchdog looks at events from a thread of its own.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        call()
    session.meet()
    replay: Callable[[], object] = graph.replay
    return replay


def repeat(
    session: Session,
    cycle: Callable[[], object],
    size: int,
    wanted: int,
    has_failed: Callable[[], bool],
) -> tuple[int, float]:
    """Replays a cycle of `size` exchanges until there were `wanted`, the time is over or one failed; all stop together.

    Returns the exchanges that were replayed, and the seconds.
    """
    cycle()
    replay = capture(session, cycle)
    start, ran, chunk = time.monotonic(), 0, max(1, 1000 // size)
    while True:
        for _ in range(chunk):
            if ran < wanted:
                replay()
                ran += size
        session.meet()
        seconds = time.monotonic() - start
        if any(session.gather(ran >= wanted or seconds > session.case_s or has_failed())):
            return ran, seconds
