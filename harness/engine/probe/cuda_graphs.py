"""Reads captured CUDA graphs and hooks their capture and replay.

Follows NVIDIA's driver API (graph management, `cuFuncGetParamInfo` from CUDA 12.4) and PyTorch's CUDAGraph. It has read
graphs on an H200 (2026-11-30, PyTorch 2.11, CUDA 13.0); its tests have a made driver.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import torch

from harness.engine.probe.graph_watch import AllocatorTrace, GraphNode, GraphWatch

MAX_ENTRIES = 4_000_000
"""Of the allocator's history."""
PLANTED_BYTES = 3 * 2**20
PLANTED = "planted"
WORD_BYTES = 8
_BUFFER_POINTER = 1
"""CU_LAUNCH_PARAM_BUFFER_POINTER."""


def nodes_of(graph: int, driver: Any) -> Iterator[GraphNode]:
    """The kernels, copies and fills of a captured graph, those of its child graphs included.

    Args:
        graph: The raw handle.
        driver: `cuda.bindings.driver`.

    Raises:
        RuntimeError: the driver refuses; a node that cannot be read must not look like one without addresses.
    """
    kinds = driver.CUgraphNodeType
    nodes, num_nodes = _ask(driver, "cuGraphGetNodes", graph, 0)
    if num_nodes:
        nodes, num_nodes = _ask(driver, "cuGraphGetNodes", graph, num_nodes)
    for node in list(nodes)[:num_nodes]:
        (kind,) = _ask(driver, "cuGraphNodeGetType", node)
        if kind == kinds.CU_GRAPH_NODE_TYPE_KERNEL:
            yield _kernel(node, driver)
        elif kind == kinds.CU_GRAPH_NODE_TYPE_MEMCPY:
            (copy,) = _ask(driver, "cuGraphMemcpyNodeGetParams", node)
            yield GraphNode(name="memcpy", words=(int(copy.srcDevice), int(copy.dstDevice)))
        elif kind == kinds.CU_GRAPH_NODE_TYPE_MEMSET:
            (fill,) = _ask(driver, "cuGraphMemsetNodeGetParams", node)
            yield GraphNode(name="memset", words=(int(fill.dst),))
        elif kind == kinds.CU_GRAPH_NODE_TYPE_GRAPH:
            (child,) = _ask(driver, "cuGraphChildGraphNodeGetGraph", node)
            yield from nodes_of(child, driver)


def _kernel(node: Any, driver: Any) -> GraphNode:
    (parameters,) = _ask(driver, "cuGraphKernelNodeGetParams", node)
    function = parameters.func
    if not int(function):
        (function,) = _ask(driver, "cuKernelGetFunction", parameters.kern)
    (name,) = _ask(driver, "cuFuncGetName", function)
    array, extra = int(parameters.kernelParams or 0), int(parameters.extra or 0)
    words: list[int] = []
    for index, (offset, size) in enumerate(_parameters_of(function, driver)):
        if array:
            words += _words_at(_word(array + index * WORD_BYTES), size)
        elif extra:
            words += _words_at(_packed(extra) + offset, size)
    return GraphNode(name=name.decode() if isinstance(name, bytes) else str(name), words=tuple(words))


def _parameters_of(function: Any, driver: Any) -> Iterator[tuple[int, int]]:
    """(offset, size) of each parameter of a kernel, in bytes."""
    for index in count():
        error, *layout = driver.cuFuncGetParamInfo(function, index)
        if error == driver.CUresult.CUDA_ERROR_INVALID_VALUE:
            return
        _succeeded(driver, "cuFuncGetParamInfo", error)
        yield int(layout[0]), int(layout[1])


def _packed(extra: int) -> int:
    """The buffer of packed parameters in a launch's extra options: pairs of a tag and a value, ended by 0.

    Raises:
        RuntimeError: the options name none.
    """
    for pair in count():
        tag = _word(extra + 2 * pair * WORD_BYTES)
        if tag == _BUFFER_POINTER:
            return _word(extra + (2 * pair + 1) * WORD_BYTES)
        if not tag:
            break
    raise RuntimeError("the launch's options name no buffer of parameters")


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _words_at(value: int, size: int) -> Sequence[int]:
    """The whole words of a value of `size` bytes."""
    length = size // WORD_BYTES
    return list((ctypes.c_uint64 * length).from_address(value)) if value and length else []


def _ask(driver: Any, function: str, *arguments: Any) -> tuple[Any, ...]:
    error, *results = getattr(driver, function)(*arguments)
    _succeeded(driver, function, error)
    return tuple(results)


def _succeeded(driver: Any, function: str, error: Any) -> None:
    if error != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{function} failed: {error}")


def hook_graphs(graph_class: Any, watch: GraphWatch, num_tokens: Callable[[], int]) -> None:
    """Lets a watch hear of every graph of `graph_class` (`torch.cuda.CUDAGraph`) that is captured from now on.

    Graphs are kept after they are instantiated, so that their nodes can be read.
    """
    begin, end, replay = graph_class.__init__, graph_class.capture_end, graph_class.replay

    def made(graph: Any, keep_graph: bool = False) -> None:  # noqa: ARG001 - PyTorch's signature
        begin(graph, True)

    def capture_end(graph: Any) -> None:
        end(graph)
        graph.instantiate()
        watch.captured(id(graph), graph, num_tokens())
        weakref.finalize(graph, watch.released, id(graph)).atexit = False

    def replayed(graph: Any) -> None:
        watch.replaying(id(graph))
        replay(graph)

    graph_class.__init__, graph_class.capture_end, graph_class.replay = made, capture_end, replayed


def plant_loss(watch: GraphWatch) -> None:
    """Captures a graph of the harness's own, frees its memory, and asks the watch as if it were replayed."""
    tensor = torch.zeros(PLANTED_BYTES, dtype=torch.uint8, device="cuda")
    tensor.add_(1)
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        tensor.add_(1)
    watch.captured(PLANTED, graph, 0)
    del tensor
    torch.cuda.synchronize()
    watch.judge_planted(PLANTED)


def watch_cuda_graphs() -> GraphWatch:
    """A watch over the graphs of this process, proved by a planted loss; before the engine starts.

    Raises:
        RuntimeError: no CUDA device, or a driver or PyTorch that does not give what is needed.
    """
    from cuda.bindings import driver

    if not torch.cuda.is_available():
        raise RuntimeError("no CUDA device")
    torch.cuda.memory._record_memory_history("all", context=None, max_entries=MAX_ENTRIES)
    trace = AllocatorTrace(torch.cuda.memory._snapshot, torch.cuda.current_device(), MAX_ENTRIES)
    watch = GraphWatch(trace, lambda graph: list(nodes_of(graph.raw_cuda_graph(), driver)))
    plant_loss(watch)
    hook_graphs(torch.cuda.CUDAGraph, watch, _tokens_of_step)
    return watch


def _tokens_of_step() -> int:
    """Tokens that the running forward call is captured for; 0 where vLLM does not say."""
    from vllm.forward_context import get_forward_context, is_forward_context_available

    if not is_forward_context_available():
        return 0
    descriptor = get_forward_context().batch_descriptor
    return int(descriptor.num_tokens) if descriptor is not None else 0
