"""CUDA graphs in tests."""

from collections.abc import Callable

import torch


def captured(work: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """A graph of `work`, which runs once before to compile and load its kernels."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph
