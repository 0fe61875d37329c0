"""Which definition each use of a register sees: static single assignment, found on demand.

Registers are reused (in SASS all the time), so every question is about a register at a place. A value is a number; its
node says where it comes from. A definition under a predicate merges the new value with the old one. Ways are merged
where different definitions of a register can meet and nowhere else: at the iterated dominance frontier of the blocks
that define it (Cytron, Ferrante, Rosen, Wegman and Zadeck, "Efficiently Computing Static Single Assignment Form and
the Control Dependence Graph", 1991).
"""

from __future__ import annotations

from bisect import bisect_left
from enum import StrEnum
from typing import NamedTuple

from harness.audit.cfg import Graph
from harness.audit.program import Assign, Immediate, Op, Operand, Register


class Origin(StrEnum):
    """Where a value comes from."""

    ENTRY = "entry"
    """The register was never written on this way."""
    ASSIGN = "assign"
    MERGE = "merge"
    """A predicated definition: the new value or the one before."""
    PHI = "phi"
    """Ways meet: one value for each way in."""


class Node(NamedTuple):
    """One value."""

    origin: Origin
    register: str
    place: int
    """The instruction of ASSIGN and MERGE, the block of PHI."""
    assign: Assign | None = None
    parts: tuple[int, ...] = ()
    """MERGE: the new value and the old one. PHI: one value for each entry of `ways`."""
    ways: tuple[int, ...] = ()
    """PHI: the blocks that the values come from; -1 is the kernel's entry."""


class Values:
    """Values of one kernel, made when asked for."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._instructions = graph.kernel.instructions
        self._nodes: list[Node] = []
        self._defined: dict[tuple[int, str], int] = {}
        self._entering: dict[tuple[int, str], int] = {}
        self._temporaries: dict[tuple[int, str], int] = {}
        self._pending: list[int] = []
        self._args: dict[int, tuple[int | Operand, ...]] = {}
        self._joins: dict[frozenset[int], frozenset[int]] = {}
        """Where ways meet that definitions come along, by the blocks of the definitions."""
        self._joins_of: dict[str, frozenset[int]] = {}
        self._places: dict[str, list[int]] = {}
        for instruction in self._instructions:
            for register in instruction.defs:
                self._places.setdefault(register, []).append(instruction.index)

    def node(self, value: int) -> Node:
        """Where a value comes from."""
        return self._nodes[value]

    def use(self, instruction: int, register: str) -> int:
        """The value of `register` just before an instruction."""
        value = self._before(instruction, register)
        self._settle()
        return value

    def operand(self, instruction: int, operand: Operand) -> int | Operand:
        """The value of a register operand as the instruction sees it; any other operand as it stands."""
        value = self._arg(instruction, operand)
        self._settle()
        return value

    def args(self, value: int) -> tuple[int | Operand, ...]:
        """Operands of an assignment: values for registers, the rest as it stands."""
        found = self._args.get(value)
        if found is None:
            node = self._nodes[value]
            assert node.assign is not None
            found = self._args[value] = tuple(self._arg(node.place, a) for a in node.assign.args)
            self._settle()
        return found

    def _arg(self, place: int, operand: Operand) -> int | Operand:
        if not isinstance(operand, Register):
            return operand
        if operand.name.startswith("~"):
            return self._temporary(place, operand.name)
        return self._before(place, operand.name)

    def _temporary(self, place: int, name: str) -> int:
        key = (place, name)
        if key not in self._temporaries:
            assign = next((a for a in self._instructions[place].assigns if a.target == name), None)
            node = Node(Origin.ASSIGN, name, place, assign or _opaque(name, ()))
            self._temporaries[key] = self._add(node)
        return self._temporaries[key]

    def _add(self, node: Node) -> int:
        self._nodes.append(node)
        return len(self._nodes) - 1

    def _before(self, instruction: int, register: str) -> int:
        block = self.graph.block_of[instruction]
        place = self._last_definition(register, self.graph.blocks[block].start, instruction)
        return self._definition(place, register) if place is not None else self._at_entry(block, register)

    def _last_definition(self, register: str, start: int, end: int) -> int | None:
        places = self._places.get(register, [])
        position = bisect_left(places, end) - 1
        return places[position] if position >= 0 and places[position] >= start else None

    def _definition(self, place: int, register: str) -> int:
        key = (place, register)
        if key in self._defined:
            return self._defined[key]
        instruction = self._instructions[place]
        assign = next((a for a in instruction.assigns if a.target == register), None)
        if assign is None:
            assign = _opaque(register, instruction.uses)
        new = self._add(Node(Origin.ASSIGN, register, place, assign))
        if instruction.predicate is not None:
            merge = self._add(Node(Origin.MERGE, register, place, parts=(new, new)))
            self._defined[key] = merge
            self._pending.append(merge)
            return merge
        self._defined[key] = new
        return new

    def _at_entry(self, block: int, register: str) -> int:
        """Walks up the dominators: between one and the next no definition comes in, unless ways meet at the lower."""
        walked: list[tuple[int, str]] = []
        while (value := self._entering.get((block, register))) is None:
            walked.append((block, register))
            above = self.graph.dominators.get(block, block)
            if block in self._find_joins(register):
                value = self._add(Node(Origin.PHI, register, block))
                self._pending.append(value)
                break
            if above == block or register not in self._places:
                value = self._add(Node(Origin.ENTRY, register, -1))
                break
            block = above
            bounds = self.graph.blocks[block]
            place = self._last_definition(register, bounds.start, bounds.end)
            if place is not None:
                value = self._definition(place, register)
                break
        self._entering.update(dict.fromkeys(walked, value))
        return value

    def _find_joins(self, register: str) -> frozenset[int]:
        """Blocks in which different definitions of a register can meet, that of the kernel's entry included."""
        found = self._joins_of.get(register)
        if found is None:
            blocks = frozenset(self.graph.block_of[place] for place in self._places.get(register, ()))
            if blocks not in self._joins:
                self._joins[blocks] = self.graph.meeting_of(blocks)
            found = self._joins_of[register] = self._joins[blocks]
        return found

    def _settle(self) -> None:
        """Fill in the parts of merges made on the way."""
        while self._pending:
            value = self._pending.pop()
            node = self._nodes[value]
            if node.origin is Origin.MERGE:
                both = (node.parts[0], self._before(node.place, node.register))
                self._nodes[value] = node._replace(parts=both)
                continue
            ways = self.graph.predecessors[node.place]
            parts = tuple(self._at_exit(way, node.register) for way in ways)
            if node.place == 0:
                ways = (-1, *ways)
                parts = (self._add(Node(Origin.ENTRY, node.register, -1)), *parts)
            self._nodes[value] = node._replace(parts=parts, ways=ways)

    def _at_exit(self, block: int, register: str) -> int:
        bounds = self.graph.blocks[block]
        place = self._last_definition(register, bounds.start, bounds.end)
        return self._definition(place, register) if place is not None else self._at_entry(block, register)


def _opaque(register: str, uses: tuple[str, ...]) -> Assign:
    return Assign(target=register, op=Op.OPAQUE, args=tuple(Register(u) for u in uses) or (Immediate(0),))
