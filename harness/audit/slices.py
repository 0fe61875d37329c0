"""Backward slices: what a value is computed from."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.audit.program import Assign, Immediate, Op, Operand, Special
from harness.audit.values import Origin, Values

_COMPARISONS = (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE)
_CLOCKS = ("clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi")


@dataclass(slots=True)
class Slice:
    """Everything that a value depends on; memory is not followed."""

    values: set[int] = field(default_factory=set)
    loads: dict[tuple[int, int], int] = field(default_factory=dict)
    """Loaded elements, by instruction and element, with their value."""
    phis: set[int] = field(default_factory=set)
    comparisons: set[int] = field(default_factory=set)
    reads_clock: bool = False


def slice_of(values: Values, value: int) -> Slice:
    """The slice of one value."""
    found = Slice()
    stack = [values.find(value)]
    while stack:
        at = stack.pop()
        if at in found.values:
            continue
        found.values.add(at)
        node = values.node(at)
        if node.origin in (Origin.PHI, Origin.MERGE):
            if node.origin is Origin.PHI:
                found.phis.add(at)
            stack += [values.find(p) for p in node.parts]
            if node.origin is Origin.MERGE:
                stack += _guard_of(values, node.place)
            continue
        if node.origin is not Origin.ASSIGN or node.assign is None:
            continue
        if node.assign.op is Op.LOAD:
            found.loads[node.place, _element(node.assign)] = at
            continue
        if node.assign.op in _COMPARISONS:
            found.comparisons.add(at)
        for part in values.args(at):
            if isinstance(part, int):
                stack.append(part)
            elif isinstance(part, Special) and part.name in _CLOCKS:
                found.reads_clock = True
    return found


def _guard_of(values: Values, place: int) -> list[int]:
    guard = values.graph.kernel.instructions[place].predicate
    return [] if guard is None else [values.use(place, guard.register)]


def _element(assign: Assign) -> int:
    first: Operand = assign.args[0] if assign.args else Immediate(0)
    return first.value if isinstance(first, Immediate) else 0
