"""Tells a pointer watch what an allocator and captured graphs do, in the order of time. Needs no GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from harness.engine.pointer_watch import PointerWatch

Snapshot = Mapping[str, Any]
"""What `torch.cuda.memory._snapshot()` gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorEvent:
    """Memory that was given out, or taken back."""

    is_freed: bool
    address: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNode:
    """A kernel, copy or fill of a captured graph."""

    name: str
    words: tuple[int, ...]
    """Eight-byte words of its parameters."""


class Memory(Protocol):
    """What an allocator has done."""

    def events(self) -> Iterable[AllocatorEvent]:
        """Everything since it was asked last; the first time, what is given out already."""
        ...


class AllocatorTrace:
    """The events of PyTorch's caching allocator on one device, read from its recorded history.

    Of private pools, which belong to graphs, the segments are told; of the others the blocks.
    """

    def __init__(
        self,
        take_snapshot: Callable[[], Snapshot],
        device: int,
        max_entries: int,
        restart: Callable[[], None],
    ) -> None:
        """`max_entries`: as the history was started with; a history that is full has lost its beginning.

        `restart` empties the history, which is taken whole with every snapshot: what was read need not come again.
        """
        self._take_snapshot = take_snapshot
        self._restart = restart
        self._device = device
        self._max_entries = max_entries
        self._has_begun = False
        self._private: dict[int, int] = {}
        """Segments of private pools: address to size."""

    def events(self) -> Iterator[AllocatorEvent]:
        """New events; raises RuntimeError when the history is full."""
        snapshot = self._take_snapshot()
        self._restart()
        segments = [s for s in snapshot["segments"] if s["device"] == self._device]
        private = [s for s in segments if tuple(s.get("segment_pool_id", (0, 0))) != (0, 0)]
        self._private |= {s["address"]: s["total_size"] for s in private}
        history = snapshot["device_traces"][self._device]
        if len(history) >= self._max_entries:
            raise RuntimeError(f"the allocator's history is full ({len(history)} entries)")
        if self._has_begun:
            yield from self._new(history)
        else:
            yield from self._given_out(segments)
        self._has_begun = True

    def _given_out(self, segments: Iterable[Mapping[str, Any]]) -> Iterator[AllocatorEvent]:
        for segment in segments:
            if segment["address"] in self._private:
                yield AllocatorEvent(is_freed=False, address=segment["address"], size=segment["total_size"])
                continue
            for block in segment["blocks"]:
                if block["state"] == "active_allocated":
                    yield AllocatorEvent(is_freed=False, address=block["address"], size=block["size"])

    def _new(self, entries: Iterable[Mapping[str, Any]]) -> Iterator[AllocatorEvent]:
        for entry in entries:
            told = _TOLD.get(entry["action"])
            if told is not None and told[0] is self._is_private(entry["addr"]):
                yield AllocatorEvent(is_freed=told[1], address=entry["addr"], size=entry["size"])

    def _is_private(self, address: int) -> bool:
        return any(start <= address < start + size for start, size in self._private.items())


_TOLD = {
    "alloc": (False, False),
    "free_completed": (False, True),
    "segment_alloc": (True, False),
    "segment_map": (True, False),
    "segment_free": (True, True),
    "segment_unmap": (True, True),
}
"""By action of the history: whether it counts in a private pool or outside, and whether it takes memory back."""


class GraphWatch:
    """Watches the graphs of one engine."""

    def __init__(self, memory: Memory, read_nodes: Callable[[Any], Sequence[GraphNode]]) -> None:
        """`read_nodes` gives a captured graph's nodes, in its order."""
        self.pointers = PointerWatch()
        self.planted_loss_seen = False
        self._memory = memory
        self._read_nodes = read_nodes
        self._names: dict[Hashable, str] = {}
        self._kernels: dict[str, Counter[str]] = {}
        self._was_replayed = False

    @property
    def kernels(self) -> Counter[str]:
        """Nodes of all graphs that exist, by name."""
        return sum(self._kernels.values(), Counter())

    @property
    def num_graphs(self) -> int:
        """Graphs that exist."""
        return len(self._kernels)

    def captured(self, key: Hashable, graph: Any, num_tokens: int) -> None:
        """A graph's capture has ended. `key` names it as long as it exists; 0 tokens: for how many is not known."""
        self._hear()
        name = f"graph {len(self._names)}" + (f" ({num_tokens} tokens)" if num_tokens else "")
        self._names[key] = name
        nodes = self._read_nodes(graph)
        self._kernels[name] = Counter(node.name for node in nodes)
        self.pointers.captured(name, dict(_named_apart(nodes)), num_tokens)

    def replaying(self, key: Hashable) -> None:
        """A graph is about to be replayed; one whose capture was not seen cannot be told about."""
        self._hear()
        self._was_replayed = True
        self.pointers.replayed(self._names[key])

    def released(self, key: Hashable) -> None:
        """A graph is gone. One that was never replayed, such as those of a memory estimate, is forgotten."""
        name = self._names.pop(key, None)
        if name is not None:
            del self._kernels[name]
            self.pointers.forget_unused(name)

    def step_ended(self) -> None:
        """An engine step has ended: without a replay it was an eager one."""
        if not self._was_replayed:
            self.pointers.stepped_eagerly()
        self._was_replayed = False

    def judge_planted(self, key: Hashable) -> None:
        """The planted graph, whose memory was freed, would be replayed now: its loss must be told, and is then no
        longer counted."""
        self._hear()
        name = self._names[key]
        self.planted_loss_seen = bool(self.pointers.replayed(name))
        self.pointers.drop(name)
        self._names.pop(key)
        self._kernels.pop(name)

    def _hear(self) -> None:
        for event in self._memory.events():
            if event.is_freed:
                self.pointers.freed(event.address)
            else:
                self.pointers.allocated(event.address, event.size)


def _named_apart(nodes: Iterable[GraphNode]) -> Iterator[tuple[str, tuple[int, ...]]]:
    seen: Counter[str] = Counter()
    for node in nodes:
        seen[node.name] += 1
        count = seen[node.name]
        yield (node.name if count == 1 else f"{node.name}, call {count}"), node.words
