"""Laws of the graph watch, with a made allocator's history and made graphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from harness.engine.probe.graph_watch import AllocatorEvent, AllocatorTrace, GraphNode, GraphWatch

WORKSPACE = 0x7F00_0000_0000


class MadeMemory:
    """Events that the test queues."""

    def __init__(self) -> None:
        self.queue: list[AllocatorEvent] = []

    def took(self, address: int, size: int = 512) -> None:
        self.queue.append(AllocatorEvent(is_freed=False, address=address, size=size))

    def gave_back(self, address: int) -> None:
        self.queue.append(AllocatorEvent(is_freed=True, address=address, size=512))

    def events(self) -> Iterable[AllocatorEvent]:
        told, self.queue = self.queue, []
        return told


def node(name: str = "merge", *words: int) -> GraphNode:
    return GraphNode(name=name, words=words)


def made() -> tuple[MadeMemory, GraphWatch]:
    """A watch whose graphs are their own lists of nodes."""
    memory = MadeMemory()
    return memory, GraphWatch(memory, lambda graph: graph)


def test_memory_freed_between_capture_and_replay_is_a_loss() -> None:
    memory, watch = made()
    memory.took(WORKSPACE)
    watch.captured(1, [node("merge", WORKSPACE + 8)], 1)
    memory.gave_back(WORKSPACE)
    watch.replaying(1)
    assert [(loss.kernel, loss.address) for loss in watch.pointers.losses] == [("merge", WORKSPACE + 8)]


def test_a_step_without_a_replay_is_an_eager_one() -> None:
    memory, watch = made()
    memory.took(WORKSPACE)
    watch.captured(1, [node("merge", WORKSPACE)], 1)
    watch.replaying(1)
    watch.step_ended()
    watch.replaying(1)
    watch.step_ended()
    assert watch.pointers.graphs[0].num_replays_after_eager == 0
    watch.step_ended()
    watch.replaying(1)
    assert watch.pointers.graphs[0].num_replays_after_eager == 1


def test_kernels_are_counted_by_name_over_all_graphs() -> None:
    _, watch = made()
    watch.captured(1, [node("gemm"), node("norm"), node("gemm")], 1)
    watch.captured(2, [node("gemm")], 2)
    assert (dict(watch.kernels), watch.num_graphs) == ({"gemm": 3, "norm": 1}, 2)
    assert [g.num_kernels for g in watch.pointers.graphs] == [3, 1]


def test_the_addresses_of_every_call_of_a_kernel_count() -> None:
    memory, watch = made()
    memory.took(WORKSPACE)
    memory.took(WORKSPACE + 512)
    watch.captured(1, [node("gemm", WORKSPACE), node("gemm", WORKSPACE + 512)], 1)
    assert watch.pointers.graphs[0].num_addresses == 2


def test_a_graph_that_is_gone_before_any_replay_is_forgotten_and_one_that_was_replayed_is_not() -> None:
    _, watch = made()
    for key in (1, 2):
        watch.captured(key, [node()], key)
    watch.replaying(2)
    watch.released(1)
    watch.released(2)
    assert [g.name for g in watch.pointers.graphs] == ["graph 1 (2 tokens)"]
    assert watch.num_graphs == 0


@pytest.mark.parametrize("is_freed", [True, False])
def test_the_planted_loss_proves_the_watch_and_stays_out_of_its_record(is_freed: bool) -> None:
    memory, watch = made()
    memory.took(WORKSPACE)
    watch.captured("planted", [node("add", WORKSPACE)], 0)
    if is_freed:
        memory.gave_back(WORKSPACE)
    watch.judge_planted("planted")
    assert watch.planted_loss_seen is is_freed
    assert (watch.pointers.losses, watch.pointers.graphs, watch.num_graphs) == ([], (), 0)


def segment(address: int, pool: tuple[int, int], *blocks: tuple[int, str], device: int = 0) -> dict[str, Any]:
    return {
        "device": device,
        "address": address,
        "total_size": 4096,
        "segment_pool_id": pool,
        "blocks": [{"address": at, "size": 512, "state": state} for at, state in blocks],
    }


def entry(action: str, address: int, size: int = 512) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size}


def told(*snapshots: Mapping[str, Any], max_entries: int = 100) -> list[list[tuple[bool, int, int]]]:
    """What a trace tells at each of these snapshots, in order."""
    queue = list(snapshots)
    trace = AllocatorTrace(lambda: queue[0], 0, max_entries, lambda: queue.pop(0))
    return [[(e.is_freed, e.address, e.size) for e in trace.events()] for _ in snapshots]


def taken(history: list[dict[str, Any]], *segments: dict[str, Any]) -> dict[str, Any]:
    return {"segments": segments, "device_traces": [history]}


def test_at_first_what_is_given_out_is_told_and_the_history_before_is_not() -> None:
    shared = segment(0x1000, (0, 0), (0x1000, "active_allocated"), (0x1200, "inactive"))
    private, other = segment(0x8000, (0, 1), (0x8000, "inactive")), segment(0x9000, (0, 0), device=1)
    history = [entry("alloc", 0x1000), entry("alloc", 0x1200), entry("free_completed", 0x1200)]
    assert told(taken(history, shared, private, other)) == [[(False, 0x1000, 512), (False, 0x8000, 4096)]]


def test_later_each_new_event_is_told_once_and_in_order() -> None:
    history = [entry("alloc", 0x1000)]
    later = [
        entry("free_requested", 0x1000),
        entry("free_completed", 0x1000),
        entry("alloc", 0x1000),
    ]
    pool = segment(0x1000, (0, 0))
    assert told(taken(history, pool), taken(later, pool), taken([], pool)) == [
        [],
        [(True, 0x1000, 512), (False, 0x1000, 512)],
        [],
    ]


def test_of_a_graphs_pool_the_segments_are_told_and_not_the_tensors() -> None:
    history = [
        entry("segment_alloc", 0x8000, 4096),
        entry("alloc", 0x8000),
        entry("free_completed", 0x8000),
        entry("segment_alloc", 0x20000, 4096),
        entry("alloc", 0x20000),
    ]
    segments = (segment(0x8000, (0, 1)), segment(0x20000, (0, 0)))
    freed = [entry("segment_free", 0x8000, 4096), entry("segment_free", 0x20000, 4096)]
    assert told(taken([]), taken(history, *segments), taken(freed)) == [
        [],
        [(False, 0x8000, 4096), (False, 0x20000, 512)],
        [(True, 0x8000, 4096)],
    ]


def test_a_full_history_is_no_history() -> None:
    with pytest.raises(RuntimeError, match="history is full"):
        told(taken([entry("alloc", 0x1000)] * 5), max_entries=5)
