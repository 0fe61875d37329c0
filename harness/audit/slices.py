"""Backward slices: what a value is computed from."""

from __future__ import annotations

from dataclasses import dataclass

from harness.audit.program import Assign, Immediate, Op, Operand, Special
from harness.audit.values import Origin, Values

_COMPARISONS = (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE)
_CLOCKS = ("clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Everything that a value depends on; memory is not followed."""

    values: frozenset[int]
    loads: dict[tuple[int, int], int]
    """Loaded elements, by instruction and element, with their value."""
    phis: frozenset[int]
    comparisons: frozenset[int]
    reads_clock: bool


class Slices:
    """Slices of one kernel's values, made when asked for."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._slices: dict[int, Slice] = {}
        self._inputs: dict[int, tuple[int, ...]] = {}
        self._loads: dict[int, tuple[int, int]] = {}
        self._phis: set[int] = set()
        self._comparisons: set[int] = set()
        self._clocks: set[int] = set()

    def of(self, value: int) -> Slice:
        """The slice of one value."""
        found = self._slices.get(value)
        if found is None:
            found = self._slices[value] = self._make(value)
        return found

    def _make(self, value: int) -> Slice:
        inputs = self._inputs
        seen: set[int] = set()
        stack = [value]
        while stack:
            at = stack.pop()
            if at not in seen:
                seen.add(at)
                if at not in inputs:
                    inputs[at] = self._look_at(at)
                stack += inputs[at]
        return Slice(
            values=frozenset(seen),
            loads={self._loads[v]: v for v in sorted(seen & self._loads.keys())},
            phis=frozenset(seen & self._phis),
            comparisons=frozenset(seen & self._comparisons),
            reads_clock=not seen.isdisjoint(self._clocks),
        )

    def _look_at(self, value: int) -> tuple[int, ...]:
        """Notes what a value is; the values that it is made of at once, none for what memory brought."""
        node = self._values.node(value)
        if node.origin is Origin.PHI:
            self._phis.add(value)
            return node.parts
        if node.origin is Origin.MERGE:
            return (*node.parts, *self._guard_of(node.place))
        if node.assign is None:
            return ()
        if node.assign.op is Op.LOAD:
            self._loads[value] = (node.place, _element(node.assign))
            return ()
        if node.assign.op in _COMPARISONS:
            self._comparisons.add(value)
        if any(isinstance(a, Special) and a.name in _CLOCKS for a in node.assign.args):
            self._clocks.add(value)
        return tuple(part for part in self._values.args(value) if isinstance(part, int))

    def _guard_of(self, place: int) -> tuple[int, ...]:
        guard = self._values.graph.kernel.instructions[place].predicate
        return () if guard is None else (self._values.use(place, guard.register),)


def _element(assign: Assign) -> int:
    first: Operand = assign.args[0] if assign.args else Immediate(0)
    return first.value if isinstance(first, Immediate) else 0
