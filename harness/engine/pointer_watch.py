"""Follows an allocator's events and says which addresses in captured graphs have lost their memory at a replay.

A graph keeps the addresses that its kernels were captured with. If the tensor behind one is freed afterwards, say
because a larger capture grew a workspace, a replay reads or writes what is nobody's or somebody else's by then.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from harness.model.probe import CapturedGraph, OwnershipLoss

NO_KERNELS = ("memcpy", "memset")
"""Names of a graph's copies and fills."""


@dataclass(frozen=True, slots=True)
class Block:
    """Memory that the allocator handed out, once: the same address given out again is another block."""

    address: int
    size: int
    serial: int


@dataclass(slots=True, kw_only=True)
class _Graph:
    num_kernels: int
    num_tokens: int
    captured_at: int
    blocks: dict[int, tuple[Block, str]]
    """By captured address: the block that held it, and the first kernel that has it."""
    replayed_at: list[int] = field(default_factory=list)
    num_after_eager: int = 0
    """Replays with an eager step since the replay before, or since the capture."""
    lost: set[int] = field(default_factory=set)


class PointerWatch:
    """Knows who owns which memory, as far as it has been told, in the order of time.

    Events must be told before the capture or replay that follows them; what was given out before is told first. Of a
    graph's private pool the segments are told and not the tensors in them: a tensor may be freed there while its memory
    stays the graph's.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, Block] = {}
        self._starts: list[int] = []
        self._clock = 0
        self._graphs: dict[str, _Graph] = {}
        self._eager_at = 0
        self.losses: list[OwnershipLoss] = []

    def allocated(self, address: int, size: int) -> None:
        """The allocator gave out a block."""
        self._clock += 1
        self._blocks[address] = Block(address, size, self._clock)
        self._starts = []

    def freed(self, address: int) -> None:
        """The allocator took a block back; one that was never told of is ignored."""
        self._blocks.pop(address, None)
        self._starts = []

    def owner_of(self, address: int) -> Block | None:
        """The block that holds an address now."""
        if not self._starts:
            self._starts = sorted(self._blocks)
        index = bisect_right(self._starts, address) - 1
        if index < 0:
            return None
        block = self._blocks[self._starts[index]]
        return block if address < block.address + block.size else None

    def stepped_eagerly(self) -> None:
        """A step ran without a graph."""
        self._clock += 1
        self._eager_at = self._clock

    def captured(self, graph: str, words_by_kernel: Mapping[str, Iterable[int]], num_tokens: int) -> None:
        """A graph was captured.

        Args:
            graph: A name of its own.
            words_by_kernel: Eight-byte words in the parameters of its kernels, copies and fills; those that lie in no
                block are numbers, or memory of others, and are left out.
            num_tokens: The size that it was captured for.
        """
        self._clock += 1
        found: dict[int, tuple[Block, str]] = {}
        for kernel, words in words_by_kernel.items():
            for word in words:
                block = self.owner_of(word)
                if block is not None:
                    found.setdefault(word, (block, kernel))
        self._graphs[graph] = _Graph(
            num_kernels=sum(name.partition(", call ")[0] not in NO_KERNELS for name in words_by_kernel),
            num_tokens=num_tokens,
            captured_at=self._clock,
            blocks=found,
        )

    def replayed(self, graph: str) -> tuple[OwnershipLoss, ...]:
        """A graph is about to be replayed: its addresses that have lost their memory since the capture, once each."""
        self._clock += 1
        known = self._graphs[graph]
        before = known.replayed_at[-1] if known.replayed_at else known.captured_at
        known.num_after_eager += self._eager_at > before
        known.replayed_at.append(self._clock)
        losses = []
        for address, (block, kernel) in known.blocks.items():
            now = self.owner_of(address)
            if now == block or address in known.lost:
                continue
            known.lost.add(address)
            losses.append(
                OwnershipLoss(
                    graph=graph,
                    kernel=kernel,
                    address=address,
                    block_bytes=block.size,
                    replay=len(known.replayed_at) - 1,
                    reused=now is not None,
                )
            )
        self.losses += losses
        return tuple(losses)

    def forget_unused(self, graph: str) -> None:
        """A graph is gone: one that was never replayed counts no more."""
        if not self._graphs[graph].replayed_at:
            self.drop(graph)

    def drop(self, graph: str) -> None:
        """Takes a graph and its losses out of the record."""
        del self._graphs[graph]
        self.losses = [loss for loss in self.losses if loss.graph != graph]

    @property
    def graphs(self) -> tuple[CapturedGraph, ...]:
        """Every captured graph with its counts."""
        largest = max((g.num_tokens for g in self._graphs.values()), default=0)
        done = max((g.captured_at for g in self._graphs.values() if g.num_tokens == largest), default=0)
        return tuple(
            CapturedGraph(
                name=name,
                num_tokens=graph.num_tokens,
                num_kernels=graph.num_kernels,
                num_addresses=len(graph.blocks),
                num_replays=len(graph.replayed_at),
                num_replays_after_largest=sum(at > done for at in graph.replayed_at),
                num_replays_after_eager=graph.num_after_eager,
            )
            for name, graph in self._graphs.items()
        )
