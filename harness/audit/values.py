"""Which definition each use of a register sees: static single assignment, found on demand.

Registers are reused (in SASS all the time), so every question is about a register at a place. A value is a number; its
node says where it comes from. A definition under a predicate merges the new value with the old one.
"""

from __future__ import annotations

from bisect import bisect_left
from enum import Enum
from typing import NamedTuple

from harness.audit.cfg import Graph
from harness.audit.program import Assign, Immediate, Op, Operand, Register


class Origin(Enum):
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
        self._alias: dict[int, int] = {}
        self._defined: dict[tuple[int, str], int] = {}
        self._entering: dict[tuple[int, str], int] = {}
        self._temporaries: dict[tuple[int, str], int] = {}
        self._pending: list[int] = []
        self._fresh: list[int] = []
        self._args: dict[int, tuple[int | Operand, ...]] = {}
        self._places: dict[str, list[int]] = {}
        for instruction in self._instructions:
            for register in instruction.defs:
                self._places.setdefault(register, []).append(instruction.index)

    def node(self, value: int) -> Node:
        """Where a value comes from."""
        return self._nodes[self.find(value)]

    def find(self, value: int) -> int:
        """The one number of a value: ways that bring the same value are no merge."""
        while value in self._alias:
            value = self._alias[value]
        return value

    def use(self, instruction: int, register: str) -> int:
        """The value of `register` just before an instruction."""
        value = self._before(instruction, register)
        self._settle()
        return self.find(value)

    def operand(self, instruction: int, operand: Operand) -> int | Operand:
        """The value of a register operand as the instruction sees it; any other operand as it stands."""
        value = self._arg(instruction, operand)
        self._settle()
        return self.find(value) if isinstance(value, int) else value

    def args(self, value: int) -> tuple[int | Operand, ...]:
        """Operands of an assignment: values for registers, the rest as it stands."""
        value = self.find(value)
        found = self._args.get(value)
        if found is None:
            node = self._nodes[value]
            assert node.assign is not None
            found = tuple(self._arg(node.place, a) for a in node.assign.args)
            self._settle()
            found = tuple(self.find(a) if isinstance(a, int) else a for a in found)
            self._args[value] = found
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
        """Walks up single ways without recursion; makes a PHI where ways meet."""
        walked: dict[tuple[int, str], None] = {}
        while True:
            key = (block, register)
            if key in self._entering:
                value = self._entering[key]
                break
            before = self.graph.predecessors[block]
            is_unreachable_loop = key in walked
            walked[key] = None
            if register not in self._places or not before or is_unreachable_loop:
                value = self._add(Node(Origin.ENTRY, register, -1))
                break
            if len(before) > 1 or block == 0:
                value = self._add(Node(Origin.PHI, register, block))
                self._pending.append(value)
                break
            block = before[0]
            bounds = self.graph.blocks[block]
            place = self._last_definition(register, bounds.start, bounds.end)
            if place is not None:
                value = self._definition(place, register)
                break
        for key in walked:
            self._entering[key] = value
        return value

    def _settle(self) -> None:
        """Fill in the parts of merges made on the way, then drop those that merge nothing."""
        while self._pending:
            value = self._pending.pop()
            node = self._nodes[value]
            if node.origin is Origin.MERGE:
                both = (node.parts[0], self._before(node.place, node.register))
                self._nodes[value] = Node(node.origin, node.register, node.place, parts=both)
                continue
            ways = self.graph.predecessors[node.place]
            parts = tuple(self._at_exit(way, node.register) for way in ways)
            if node.place == 0:
                ways = (-1, *ways)
                parts = (self._add(Node(Origin.ENTRY, node.register, -1)), *parts)
            self._nodes[value] = Node(node.origin, node.register, node.place, parts=parts, ways=ways)
            self._fresh.append(value)
        if self._fresh:
            self._drop_empty_merges(self._fresh)
            self._fresh = []

    def _at_exit(self, block: int, register: str) -> int:
        bounds = self.graph.blocks[block]
        place = self._last_definition(register, bounds.start, bounds.end)
        return self._definition(place, register) if place is not None else self._at_entry(block, register)

    def _drop_empty_merges(self, merges: list[int]) -> None:
        """Optimistic: a PHI stands for one value until two different ones reach it."""
        merges = merges[::-1]  # found from uses backwards: the order of control is quicker
        stands_for: dict[int, int | None] = dict.fromkeys(merges)
        changed = True
        while changed:
            changed = False
            for merge in merges:
                if stands_for[merge] == merge:
                    continue
                reaching = {stands_for.get(self.find(p), self.find(p)) for p in self._nodes[merge].parts} - {
                    None
                }
                value = reaching.pop() if len(reaching) == 1 else (merge if reaching else None)
                if value != stands_for[merge]:
                    stands_for[merge] = value if stands_for[merge] is None else merge
                    changed = True
        self._drop_single(merges, stands_for)
        for merge, value in stands_for.items():
            if value is not None and value != merge:
                self._alias[merge] = value

    def _drop_single(self, merges: list[int], stands_for: dict[int, int | None]) -> None:
        """A merge that first seemed to stand for another value may still be reached by one value only."""

        def final(value: int) -> int:
            value = self.find(value)
            while (other := stands_for.get(value)) is not None and other != value:
                value = self.find(other)
            return value

        changed = True
        while changed:
            changed = False
            for merge in merges:
                if stands_for[merge] != merge:
                    continue
                reaching = {final(p) for p in self._nodes[merge].parts} - {merge}
                if len(reaching) == 1:
                    stands_for[merge] = reaching.pop()
                    changed = True


def _opaque(register: str, uses: tuple[str, ...]) -> Assign:
    return Assign(target=register, op=Op.OPAQUE, args=tuple(Register(u) for u in uses) or (Immediate(0),))
