"""What was read from a mailbox, on its way through registers: parts of values, and where they come from first."""

from __future__ import annotations

from collections.abc import Sequence

from harness.audit.conditions import Part, content_of, is_choice
from harness.audit.program import Instruction, Op, Register
from harness.audit.values import Node, Origin, Values

_COMPARISONS = (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE, Op.ELECT)
Content = tuple[int, Part]
"""A value, or a part of it."""


class Contents:
    """Answers for one kernel; `read_places` are the instructions that read the data."""

    def __init__(self, values: Values, read_places: frozenset[int]) -> None:
        self._values = values
        self._read_places = read_places
        self._registers = registers_with_data(values.graph.kernel.instructions, read_places)
        self._sources: dict[Content, frozenset[Content]] = {}
        self._carries: dict[Content, bool] = {}

    def _inside(self, content: Content) -> list[Content]:
        """What a content is made of; a comparison's result is no content."""
        value, part = content
        node = self._values.node(value)
        if node.origin is not Origin.ASSIGN:
            return [(p, part) for p in node.parts]
        if node.assign is None or node.assign.op in (Op.LOAD, *_COMPARISONS) or node.assign.bits == 1:
            return []
        if node.assign.op is Op.UNIFORM:
            return [(a, part) for a in self._values.args(value)[:1] if isinstance(a, int)]
        return content_of(node, self._values.args(value), part)

    def is_source(self, node: Node) -> bool:
        """Whether a value is what one of the reads brought."""
        is_load = node.assign is not None and node.assign.op is Op.LOAD
        return node.origin is Origin.ASSIGN and is_load and node.place in self._read_places

    def sources_of(self, content: Content) -> frozenset[Content]:
        """The reads, and the places where ways meet, that a content comes from first."""
        stack = [content]
        while stack:
            at = stack[-1]
            if at in self._sources:
                stack.pop()
                continue
            node = self._values.node(at[0])
            if not (node.register in self._registers or node.register.startswith("~")):
                self._sources[at] = frozenset()
            elif node.origin is not Origin.ASSIGN or is_choice(node):
                self._sources[at] = frozenset((at,)) if self._carries_data(at) else frozenset()
            elif self.is_source(node):
                self._sources[at] = frozenset((at,))
            else:
                inside = self._inside(at)
                missing = [p for p in inside if p not in self._sources]
                stack += missing
                if not missing:
                    self._sources[at] = frozenset().union(*(self._sources[p] for p in inside))
        return self._sources[content]

    def _carries_data(self, content: Content) -> bool:
        """Whether some read's data can be in a content at all."""
        if content in self._carries:
            return self._carries[content]
        users: dict[Content, list[Content]] = {}
        seen: set[Content] = set()
        reached: list[Content] = []
        stack = [content]
        while stack:
            at = stack.pop()
            if at in seen:
                continue
            seen.add(at)
            if self._carries.get(at) or self.is_source(self._values.node(at[0])):
                reached.append(at)
            elif at not in self._carries:
                for inner in self._inside(at):
                    users.setdefault(inner, []).append(at)
                    stack.append(inner)
        carrying = set(reached)
        while reached:
            for user in users.get(reached.pop(), ()):
                if user not in carrying:
                    carrying.add(user)
                    reached.append(user)
        self._carries.update({at: at in carrying for at in seen})
        return self._carries[content]


def registers_with_data(instructions: Sequence[Instruction], read_places: frozenset[int]) -> frozenset[str]:
    """Registers that can hold what was read anywhere in the kernel.

    Where they are written is not looked at, which is quick and leaves out most of what has nothing to do with the data.
    """
    users: dict[str, list[Instruction]] = {}
    found: set[str] = set()
    waiting: list[str] = []
    for instruction in instructions:
        if instruction.index in read_places:
            waiting += instruction.defs
        for register in instruction.uses:
            users.setdefault(register, []).append(instruction)
    while waiting:
        register = waiting.pop()
        if register not in found:
            found.add(register)
            waiting += [d for user in users.get(register, ()) for d in _carried(user, register)]
    return frozenset(found)


def _carried(instruction: Instruction, register: str) -> set[str]:
    """Registers that the instruction writes with something of what is in another."""
    found = {register}
    known = set()
    for assign in instruction.assigns:
        known.add(assign.target)
        if assign.op is not Op.LOAD and any(isinstance(a, Register) and a.name in found for a in assign.args):
            found.add(assign.target)
    return found.union(d for d in instruction.defs if d not in known)
