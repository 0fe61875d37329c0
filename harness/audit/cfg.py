"""The control-flow graph of a kernel: blocks, edges with the condition that takes them, dominators, loops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from harness.audit.program import Instruction, Kernel, Kind

_ENDS = (Kind.BRANCH, Kind.OPAQUE_BRANCH, Kind.EXIT, Kind.TRAP)


@dataclass(frozen=True, slots=True)
class Edge:
    """A way from one block to another; `value` is what `register` must hold, None for any."""

    target: int
    register: str = ""
    value: bool | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions `start` to `end` (exclusive) that run one after the other."""

    index: int
    start: int
    end: int
    edges: tuple[Edge, ...]
    falls_off: bool
    """The text goes on to no further instruction: the kernel ends here."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A natural loop: its header and all blocks that reach the header again without leaving."""

    header: int
    blocks: frozenset[int]


class Graph:
    """Blocks of one kernel; block 0 is the entry."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.blocks = _build_blocks(kernel.instructions)
        self.block_of = [0] * len(kernel.instructions)
        for block in self.blocks:
            for index in range(block.start, block.end):
                self.block_of[index] = block.index
        self.order = _reverse_postorder([tuple(e.target for e in b.edges) for b in self.blocks], 0)
        predecessors: list[list[int]] = [[] for _ in self.blocks]
        for index in sorted(self.order):  # what is never reached brings no value to where ways meet
            for edge in self.blocks[index].edges:
                if index not in predecessors[edge.target]:
                    predecessors[edge.target].append(index)
        self.predecessors = [tuple(p) for p in predecessors]
        forward = [tuple(e.target for e in b.edges) for b in self.blocks]
        self.dominators = _immediate_dominators(self.predecessors, self.order)
        self._spans = _spans(self.dominators, self.order)
        self._joins = _joins(forward, self.predecessors)
        self._between: dict[int, frozenset[int] | None] = {}
        self.loops = self._find_loops()

    def dominates(self, first: int, second: int) -> bool:
        """Whether every way from the entry to block `second` goes through block `first`."""
        if first == second:
            return True
        outer, inner = self._spans.get(first), self._spans.get(second)
        return outer is not None and inner is not None and outer[0] <= inner[0] and inner[1] <= outer[1]

    @cached_property
    def _frontiers(self) -> dict[int, set[int]]:
        """For each block those where its dominance ends: it dominates a way into them, and not them, or is one."""
        found: dict[int, set[int]] = {}
        for block in self.order:
            above = self.dominators[block]
            for at in self.predecessors[block] if block == 0 or len(self.predecessors[block]) > 1 else ():
                while at != above or block == 0:
                    found.setdefault(at, set()).add(block)
                    if at == 0:
                        break
                    at = self.dominators[at]
        return found

    def meeting_of(self, blocks: Iterable[int]) -> frozenset[int]:
        """Where ways from different ones of `blocks` and the entry meet first, those from such places included."""
        found: set[int] = set()
        stack = list(blocks)
        while stack:
            fresh = self._frontiers.get(stack.pop(), set()) - found
            found |= fresh
            stack += fresh
        return frozenset(found)

    def between(self, block: int) -> frozenset[int] | None:
        """Blocks on the ways from a branching block to where all its ways meet; None when they never do."""
        if block not in self._between:
            self._between[block] = self._find_between(block)
        return self._between[block]

    @cached_property
    def meetings(self) -> tuple[tuple[int, int, frozenset[int]], ...]:
        """Branching blocks of which all ways meet again, with where they do and the blocks on the ways to it."""
        branching = [b.index for b in self.blocks if len(b.edges) > 1]
        found = [(b, self._joins[b], self.between(b)) for b in branching if b in self._joins]
        return tuple((block, join, between) for block, join, between in found if between is not None)

    @cached_property
    def ends(self) -> frozenset[int]:
        """The last instruction of every block."""
        return frozenset(b.end - 1 for b in self.blocks if b.end > b.start)

    def _find_between(self, block: int) -> frozenset[int] | None:
        join = self._joins.get(block)
        if join is None:
            return None
        seen: set[int] = set()
        stack = [e.target for e in self.blocks[block].edges]
        while stack:
            at = stack.pop()
            if at != join and at not in seen:
                seen.add(at)
                stack += [e.target for e in self.blocks[at].edges]
        return frozenset(seen)

    def reachable_from(self, block: int) -> frozenset[int]:
        """Blocks that can run after `block` (itself only when it can run again)."""
        seen: set[int] = set()
        stack = [e.target for e in self.blocks[block].edges]
        while stack:
            at = stack.pop()
            if at not in seen:
                seen.add(at)
                stack += [e.target for e in self.blocks[at].edges]
        return frozenset(seen)

    def _find_loops(self) -> tuple[Loop, ...]:
        bodies: dict[int, set[int]] = {}
        for index in self.order:
            for edge in self.blocks[index].edges:
                if self.dominates(edge.target, index):
                    body = bodies.setdefault(edge.target, {edge.target})
                    stack = [index]
                    while stack:
                        at = stack.pop()
                        if at not in body:
                            body.add(at)
                            stack += self.predecessors[at]
        return tuple(Loop(header, frozenset(body)) for header, body in bodies.items())


def _build_blocks(instructions: tuple[Instruction, ...]) -> tuple[Block, ...]:
    count = len(instructions)
    leaders = {0}
    for instruction in instructions:
        leaders.update(t for t in instruction.targets if t < count)
        if instruction.kind in _ENDS:
            leaders.add(instruction.index + 1)
    starts = sorted(s for s in leaders if s < count or count == 0)
    number = {start: i for i, start in enumerate(starts)}
    blocks = []
    for i, start in enumerate(starts):
        end = starts[i + 1] if i + 1 < len(starts) else count
        edges, falls_off = _edges_of(instructions[end - 1], end, count, number) if end > start else ((), True)
        blocks.append(Block(i, start, end, edges, falls_off))
    return tuple(blocks)


def _edges_of(
    last: Instruction, end: int, count: int, number: dict[int, int]
) -> tuple[tuple[Edge, ...], bool]:
    guard = last.predicate
    edges: list[Edge] = []
    falls_off = False
    if last.kind is Kind.BRANCH:
        for target in dict.fromkeys(last.targets):
            if target >= count:
                falls_off = True
            elif guard is not None:
                edges.append(Edge(number[target], guard.register, not guard.negated))
            else:
                edges.append(Edge(number[target]))
    if last.kind not in _ENDS or guard is not None:
        if end >= count:
            falls_off = True
        elif guard is not None and last.kind in _ENDS:
            edges.append(Edge(number[end], guard.register, guard.negated))
        else:
            edges.append(Edge(number[end]))
    return tuple(edges), falls_off


def _reverse_postorder(forward: Sequence[tuple[int, ...]], entry: int) -> list[int]:
    if not forward:
        return []
    seen = {entry}
    order: list[int] = []
    stack: list[tuple[int, int]] = [(entry, 0)]
    while stack:
        at, position = stack.pop()
        targets = forward[at]
        while position < len(targets) and targets[position] in seen:
            position += 1
        if position == len(targets):
            order.append(at)
            continue
        stack.append((at, position + 1))
        seen.add(targets[position])
        stack.append((targets[position], 0))
    return order[::-1]


def _immediate_dominators(predecessors: Sequence[tuple[int, ...]], order: list[int]) -> dict[int, int]:
    """Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001)."""
    position = {block: i for i, block in enumerate(order)}
    found: dict[int, int] = {order[0]: order[0]} if order else {}
    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            known = [p for p in predecessors[block] if p in found]
            best = known[0]
            for other in known[1:]:
                best = _meet(found, position, best, other)
            if found.get(block) != best:
                found[block] = best
                changed = True
    return found


def _spans(dominators: dict[int, int], order: list[int]) -> dict[int, tuple[int, int]]:
    """Places of each block in the dominator tree, walked depth first: first and last of what it dominates."""
    children: dict[int, list[int]] = {}
    for block in order[1:]:
        children.setdefault(dominators[block], []).append(block)
    first: dict[int, int] = {}
    spans: dict[int, tuple[int, int]] = {}
    stack = order[:1]
    while stack:
        block = stack[-1]
        if block not in first:
            first[block] = len(first)
            stack += children.get(block, ())
        else:
            spans.setdefault(block, (first[block], len(first) - 1))
            stack.pop()
    return spans


def _meet(found: dict[int, int], position: dict[int, int], first: int, second: int) -> int:
    while first != second:
        while position[first] > position[second]:
            first = found[first]
        while position[second] > position[first]:
            second = found[second]
    return first


def _joins(forward: list[tuple[int, ...]], predecessors: list[tuple[int, ...]]) -> dict[int, int]:
    """Immediate post-dominators: where all ways from a block meet, if that is before the end."""
    end = len(forward)
    backward = [*predecessors, tuple(i for i, targets in enumerate(forward) if not targets)]
    ahead = [targets or (end,) for targets in forward]
    order = _reverse_postorder(backward, end)
    found = _immediate_dominators([*ahead, ()], order)
    return {block: join for block, join in found.items() if block != end and join != end}
