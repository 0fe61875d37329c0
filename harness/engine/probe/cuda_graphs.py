"""Reads captured CUDA graphs and hooks their capture and replay.

Follows NVIDIA's driver API (graph management, `cuFuncGetParamInfo` from CUDA 12.4) and PyTorch's CUDAGraph. It has read
graphs on an H200 (2026-11-30, PyTorch 2.11, CUDA 13.0); its tests have a made driver.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import torch

from harness.engine import marker
from harness.engine.probe.graph_watch import AllocatorTrace, GraphNode, GraphWatch
from harness.engine.step_recorder import StepRecorder

MAX_ENTRIES = 4_000_000
"""Of the allocator's history."""
PLANTED_BYTES = 3 * 2**20
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


@contextmanager
def hook_graphs(
    graph_class: Any, watch: GraphWatch | None, steps: StepRecorder, num_tokens: Callable[[], int]
) -> Iterator[None]:
    """Lets a step recorder, and a watch if there is one, hear of every graph of `graph_class`
    (`torch.cuda.CUDAGraph`).

    For a watch, graphs are kept after they are instantiated, so that their nodes can be read.
    """
    names = ("__init__", "capture_begin", "capture_end", "replay")
    originals = {name: getattr(graph_class, name) for name in names}
    init, begin, end, replay = originals.values()

    def made(graph: Any, keep_graph: bool = False) -> None:  # noqa: ARG001 - PyTorch's signature
        init(graph, True)

    def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> None:
        begin(graph, *args, **kwargs)
        steps.capture_begun()

    def capture_end(graph: Any) -> None:
        end(graph)
        steps.capture_ended(id(graph))
        if watch is not None:
            graph.instantiate()
            watch.captured(id(graph), graph, num_tokens())
            weakref.finalize(graph, watch.released, id(graph)).atexit = False

    def replayed(graph: Any) -> None:
        if watch is not None:
            watch.replaying(id(graph))
        steps.replayed(id(graph))
        replay(graph)

    hooks = dict(zip(names, (made, capture_begin, capture_end, replayed), strict=True))
    if watch is None:
        del hooks["__init__"]
    try:
        for name, hook in hooks.items():
            setattr(graph_class, name, hook)
        yield
    finally:
        for name in hooks:
            setattr(graph_class, name, originals[name])


def plant_graph(watch: GraphWatch | None, steps: StepRecorder) -> None:
    """Captures a hooked graph of the harness's own that calls the tracer's marker, and frees its memory.

    Watch and recorder are then asked as if it were replayed: they must tell the loss and the calls.
    """
    tensor = torch.zeros(PLANTED_BYTES, dtype=torch.uint8, device="cuda")
    tensor.add_(1)
    graph = torch.cuda.CUDAGraph(keep_graph=watch is not None)
    with torch.cuda.graph(graph):
        tensor.add_(1)
        marker.decide()
        marker.run()
    del tensor
    torch.cuda.synchronize()
    if watch is not None:
        watch.judge_planted(id(graph))
    steps.follows_graphs = tells_marker_at_replay(steps, id(graph))


@contextmanager
def follow_cuda_graphs(steps: StepRecorder) -> Iterator[None]:
    """Lets captured graphs count in the ledger, proved by a planted one, and looks at nothing else of them: what a
    watch reads at each replay takes longer than a step."""
    try:
        with hook_graphs(torch.cuda.CUDAGraph, None, steps, lambda: 0):
            plant_graph(None, steps)
            yield
    finally:
        steps.follows_graphs = False


def tells_marker_at_replay(steps: StepRecorder, key: Hashable) -> bool:
    """Whether a replay of a graph that was captured around the marker counts as its calls."""
    steps.reset()
    steps.replayed(key)
    decided = [d["target"] for d in steps.decisions]
    seen = (decided, steps.ran) == ([marker.DECISION_TARGET], {marker.CODE_TARGET: 1})
    steps.reset()
    return seen


@contextmanager
def watch_cuda_graphs(steps: StepRecorder) -> Iterator[GraphWatch]:
    """A watch over the graphs that are captured meanwhile, proved by a planted one; around an engine's life.

    Raises:
        RuntimeError: no CUDA device, or a driver or PyTorch that does not give what is needed.
    """
    from cuda.bindings import driver

    if not torch.cuda.is_available():
        raise RuntimeError("no CUDA device")
    begin_history()
    trace = AllocatorTrace(
        torch.cuda.memory._snapshot, torch.cuda.current_device(), MAX_ENTRIES, begin_history
    )
    watch = GraphWatch(trace, lambda graph: list(nodes_of(graph.raw_cuda_graph(), driver)))
    try:
        with (
            captured_sizes(torch.cuda.is_current_stream_capturing) as num_tokens,
            hook_graphs(torch.cuda.CUDAGraph, watch, steps, num_tokens),
        ):
            plant_graph(watch, steps)
            yield watch
    finally:
        steps.follows_graphs = False


def begin_history() -> None:
    """Lets PyTorch's allocator keep its history, from now on."""
    torch.cuda.memory._record_memory_history("all", context=None, max_entries=MAX_ENTRIES, clear_history=True)


@contextmanager
def captured_sizes(is_capturing: Callable[[], bool]) -> Iterator[Callable[[], int]]:
    """What tells, at the end of a capture, for how many tokens it was; 0 where vLLM does not say.

    vLLM's first model runner captures within a forward call, its second makes the call within the capture: there the
    last call of the capture is remembered.
    """
    from vllm import forward_context as vllm

    original, seen = vllm.override_forward_context, [0]

    def override(context: Any) -> Any:
        if context is not None and is_capturing():
            seen[0] = _tokens_of(context)
        return original(context)

    def num_tokens() -> int:
        last, seen[0] = seen[0], 0
        return _tokens_of(vllm.get_forward_context()) if vllm.is_forward_context_available() else last

    vllm.override_forward_context = override
    try:
        yield num_tokens
    finally:
        vllm.override_forward_context = original


def _tokens_of(context: Any) -> int:
    """Tokens of a forward call."""
    descriptor = context.batch_descriptor
    return int(descriptor.num_tokens) if descriptor is not None else 0
