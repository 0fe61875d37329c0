"""CUDA graphs of launches that wait for other processes."""

from __future__ import annotations

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
