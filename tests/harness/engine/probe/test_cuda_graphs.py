"""Laws of reading captured graphs, with a made driver that lays parameters out in memory as NVIDIA's does."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from harness.engine import marker
from harness.engine.ledger_file import LedgerFile
from harness.engine.probe import cuda_graphs
from harness.engine.probe.cuda_graphs import (
    captured_sizes,
    follow_cuda_graphs,
    hook_graphs,
    nodes_of,
    tells_marker_at_replay,
    watch_cuda_graphs,
)
from harness.engine.probe.graph_watch import GraphNode, GraphWatch
from harness.engine.step_recorder import StepRecorder
from harness.engine.trace_settings import DecisionTarget

OK, END, REFUSED = "success", "invalid value", "not permitted"


@dataclass
class MadeKernel:
    """A launch with parameters of these bytes."""

    name: str
    parameters: Sequence[bytes]
    is_packed: bool = False
    kept: list[Any] = field(default_factory=list)
    func: int = 1

    @property
    def offsets(self) -> list[int]:
        return [sum(-(-len(p) // 8) * 8 for p in self.parameters[:i]) for i in range(len(self.parameters))]

    def keep(self, data: bytes) -> int:
        buffer = ctypes.create_string_buffer(data, max(8, len(data)))
        self.kept.append(buffer)
        return ctypes.addressof(buffer)

    @property
    def kernelParams(self) -> int:
        if self.is_packed:
            return 0
        slots = [self.keep(p) for p in self.parameters]
        return self.keep(b"".join(s.to_bytes(8, "little") for s in slots))

    @property
    def extra(self) -> int:
        if not self.is_packed:
            return 0
        packed = b"".join(p.ljust(-(-len(p) // 8) * 8, b"\0") for p in self.parameters)
        options = (2, self.keep(len(packed).to_bytes(8, "little")), 1, self.keep(packed), 0, 0)
        return self.keep(b"".join(o.to_bytes(8, "little") for o in options))


class MadeDriver:
    """Graphs by handle: lists of ("kernel", MadeKernel), ("memcpy", source, target), ("memset", at), ("graph", h)."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=OK, CUDA_ERROR_INVALID_VALUE=END)
    CUgraphNodeType = SimpleNamespace(
        CU_GRAPH_NODE_TYPE_KERNEL="kernel",
        CU_GRAPH_NODE_TYPE_MEMCPY="memcpy",
        CU_GRAPH_NODE_TYPE_MEMSET="memset",
        CU_GRAPH_NODE_TYPE_GRAPH="graph",
    )

    def __init__(self, graphs: dict[int, list[tuple[Any, ...]]], refuses: str = "") -> None:
        self.graphs = graphs
        self.refuses = refuses

    def cuGraphGetNodes(self, graph: int, count: int) -> tuple[Any, ...]:
        nodes = self.graphs[graph]
        return OK, nodes[:count], len(nodes)

    def cuGraphNodeGetType(self, node: tuple[Any, ...]) -> tuple[Any, ...]:
        return OK, node[0]

    def cuGraphKernelNodeGetParams(self, node: tuple[Any, ...]) -> tuple[Any, ...]:
        self.kernel = node[1]
        return (REFUSED, None) if self.refuses else (OK, self.kernel)

    def cuFuncGetName(self, _: int) -> tuple[Any, ...]:
        return OK, self.kernel.name.encode()

    def cuFuncGetParamInfo(self, _: int, index: int) -> tuple[Any, ...]:
        if index >= len(self.kernel.parameters):
            return END, 0, 0
        return OK, self.kernel.offsets[index], len(self.kernel.parameters[index])

    def cuGraphMemcpyNodeGetParams(self, node: tuple[Any, ...]) -> tuple[Any, ...]:
        return OK, SimpleNamespace(srcDevice=node[1], dstDevice=node[2])

    def cuGraphMemsetNodeGetParams(self, node: tuple[Any, ...]) -> tuple[Any, ...]:
        return OK, SimpleNamespace(dst=node[1])

    def cuGraphChildGraphNodeGetGraph(self, node: tuple[Any, ...]) -> tuple[Any, ...]:
        return OK, node[1]


def words(*values: int) -> bytes:
    return b"".join(value.to_bytes(8, "little") for value in values)


@pytest.mark.parametrize("is_packed", [False, True], ids=["by pointer", "packed"])
def test_every_whole_word_of_every_parameter_is_read(is_packed: bool) -> None:
    parameters = [words(0x7F0000001000), b"\x07\0\0\0", words(0x7F0000002000, 5, 0x7F0000003000)]
    kernel = MadeKernel("gemm", parameters, is_packed)
    (node,) = nodes_of(1, MadeDriver({1: [("kernel", kernel)]}))
    assert node == GraphNode(name="gemm", words=(0x7F0000001000, 0x7F0000002000, 5, 0x7F0000003000))


def test_copies_fills_and_child_graphs_are_nodes_too() -> None:
    graphs = {
        1: [("memcpy", 0x1000, 0x2000), ("graph", 2), ("empty",)],
        2: [("memset", 0x3000)],
    }
    assert list(nodes_of(1, MadeDriver(graphs))) == [
        GraphNode(name="memcpy", words=(0x1000, 0x2000)),
        GraphNode(name="memset", words=(0x3000,)),
    ]


def test_an_empty_graph_has_no_nodes() -> None:
    assert list(nodes_of(1, MadeDriver({1: []}))) == []


def test_a_node_that_cannot_be_read_is_not_one_without_addresses() -> None:
    driver = MadeDriver({1: [("kernel", MadeKernel("gemm", []))]}, refuses="kernel")
    with pytest.raises(RuntimeError, match="cuGraphKernelNodeGetParams failed: not permitted"):
        list(nodes_of(1, driver))


class MadeGraph:
    """A graph class with PyTorch's methods."""

    def __init__(self, keep_graph: bool = False) -> None:
        self.keep_graph = keep_graph
        self.calls: list[str] = []

    def capture_begin(self, pool: int = 0) -> None:
        self.calls.append(f"begun in pool {pool}")

    def capture_end(self) -> None:
        self.calls.append("ended")

    def instantiate(self) -> None:
        self.calls.append("instantiated")

    def replay(self) -> None:
        self.calls.append("replayed")


class Quiet:
    """An allocator that does nothing."""

    def events(self) -> list[Any]:
        return []


@pytest.fixture
def steps(tmp_path: Path) -> StepRecorder:
    return StepRecorder(LedgerFile(tmp_path, "nonce"))


def made_watch() -> GraphWatch:
    return GraphWatch(Quiet(), lambda graph: [GraphNode(name="k", words=())] if graph.keep_graph else [])


def test_a_hooked_graph_is_kept_watched_and_let_go_of(steps: StepRecorder) -> None:
    watch = made_watch()
    with hook_graphs(MadeGraph, watch, steps, lambda: 4):
        graph = MadeGraph()
        graph.capture_begin(pool=3)
        graph.capture_end()
        graph.replay()
    assert graph.calls == ["begun in pool 3", "ended", "instantiated", "replayed"]
    assert [(g.name, g.num_kernels, g.num_replays) for g in watch.pointers.graphs] == [
        ("graph 0 (4 tokens)", 1, 1)
    ]
    del graph
    gc.collect()
    assert watch.num_graphs == 0


def test_without_a_watch_a_graph_is_made_as_pytorch_makes_it_and_its_replays_count(
    steps: StepRecorder,
) -> None:
    run = steps.count_wrapper(lambda: None, marker.CODE_TARGET)
    with hook_graphs(MadeGraph, None, steps, lambda: 0):
        graph = MadeGraph()
        graph.capture_begin(pool=3)
        run()
        graph.capture_end()
        steps.reset()
        graph.replay()
    assert (graph.keep_graph, graph.calls) == (False, ["begun in pool 3", "ended", "replayed"])
    assert steps.ran == {marker.CODE_TARGET: 1}


def test_graphs_that_are_only_followed_are_proved_and_let_go_of_like_watched_ones(
    steps: StepRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dict(vars(MadeGraph))
    monkeypatch.setattr(cuda_graphs.torch.cuda, "CUDAGraph", MadeGraph)
    monkeypatch.setattr(cuda_graphs, "plant_graph", lambda _, told: setattr(told, "follows_graphs", True))
    with follow_cuda_graphs(steps):
        assert steps.follows_graphs and vars(MadeGraph)["replay"] is not before["replay"]
    assert not steps.follows_graphs and dict(vars(MadeGraph)) == before


def made_contexts(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """vLLM's forward contexts, as far as they are asked for."""
    module: Any = ModuleType("vllm.forward_context")
    module.current = None

    @contextmanager
    def override(context: Any) -> Iterator[None]:
        before, module.current = module.current, context
        yield
        module.current = before

    module.override_forward_context = override
    module.get_forward_context = lambda: module.current
    module.is_forward_context_available = lambda: module.current is not None
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(forward_context=module))
    monkeypatch.setitem(sys.modules, "vllm.forward_context", module)
    return module


def call_of(num_tokens: int | None) -> Any:
    return SimpleNamespace(batch_descriptor=num_tokens and SimpleNamespace(num_tokens=num_tokens))


def test_a_graphs_size_is_told_whether_the_capture_is_in_the_call_or_the_call_in_the_capture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module: Any = made_contexts(monkeypatch)
    capturing = [False]
    original = module.override_forward_context

    def made(size: int | None) -> None:
        with module.override_forward_context(call_of(size)), module.override_forward_context(None):
            pass

    with captured_sizes(lambda: capturing[0]) as num_tokens:
        with module.override_forward_context(call_of(8)):
            assert num_tokens() == 8
        made(16)
        assert num_tokens() == 0, "a warm-up is no part of the capture"
        capturing[0] = True
        made(4)
        capturing[0] = False
        assert (num_tokens(), num_tokens()) == (4, 0), "one capture's size is not the next one's"
        capturing[0] = True
        made(None)
        assert num_tokens() == 0
    assert module.override_forward_context is original


def test_a_class_of_graphs_is_as_it_was_once_it_is_no_longer_hooked(steps: StepRecorder) -> None:
    before = dict(vars(MadeGraph))
    with pytest.raises(KeyError), hook_graphs(MadeGraph, made_watch(), steps, lambda: 4):
        MadeGraph().replay()
    assert dict(vars(MadeGraph)) == before


@pytest.mark.parametrize("when", ["before", "inside", "after", "before and inside"])
def test_only_what_is_called_inside_a_capture_counts_at_its_replays(steps: StepRecorder, when: str) -> None:
    run = steps.count_wrapper(lambda: None, marker.CODE_TARGET)
    point = DecisionTarget(target=marker.DECISION_TARGET, value="", specialized="marker")
    decide = steps.decision_wrapper(point)(lambda: "marker", "")

    def call_when(moment: str) -> None:
        if moment in when:
            run()
            decide()

    with hook_graphs(MadeGraph, made_watch(), steps, lambda: 4):
        graph = MadeGraph()
        call_when("before")
        graph.capture_begin()
        call_when("inside")
        graph.capture_end()
        call_when("after")
        assert tells_marker_at_replay(steps, id(graph)) is ("inside" in when)


def test_nobody_is_said_to_follow_graphs_once_the_watch_has_ended(
    steps: StepRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a GPU: the planted graph, which shows that graphs are followed, is said to have been seen."""
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(driver=None))
    monkeypatch.setattr(cuda_graphs.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda_graphs.torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(cuda_graphs.torch.cuda, "CUDAGraph", MadeGraph)
    monkeypatch.setattr(cuda_graphs, "begin_history", lambda: None)
    made_contexts(monkeypatch)
    monkeypatch.setattr(cuda_graphs, "plant_graph", lambda _, told: setattr(told, "follows_graphs", True))
    with watch_cuda_graphs(steps):
        assert steps.follows_graphs
    assert not steps.follows_graphs
