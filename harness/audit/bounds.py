"""Smallest and largest value of an expression: of stage indices that count up and start again, above all."""

from __future__ import annotations

from harness.audit.conditions import Conditions
from harness.audit.integers import Interval, combine_intervals
from harness.audit.model import Model
from harness.audit.program import Op
from harness.audit.values import Node, Origin

MAX_DEPTH = 40
MAX_ROUNDS = 12


class Bounds:
    """Answers for one kernel; None where nothing is known."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._expressions = model.expressions
        self._values = model.values
        self._conditions = Conditions(model)
        self._known: dict[int, Interval | None] = {}

    def of(self, number: int) -> Interval | None:
        """The interval that an expression lies in, whichever way led to it."""
        if number not in self._known:
            self._known[number] = self._of(number, {}, 0)
        return self._known[number]

    def of_product(self, first: int, second: int) -> Interval | None:
        """The interval of a product."""
        return combine_intervals(Op.MUL, [self.of(first), self.of(second)])

    def _of(self, number: int, assumed: dict[int, Interval], depth: int) -> Interval | None:
        """The same while loop values are taken to lie in `assumed`."""
        entry = self._expressions[number]
        if number in assumed:
            return assumed[number]
        if entry.constant is not None:
            return (entry.constant, entry.constant)
        if entry.special:
            return self._expressions.limits.get(entry.special)
        if depth > MAX_DEPTH:
            return None
        if entry.leaf is not None:
            return self._of_leaf(number, entry.leaf, assumed, depth + 1)
        if entry.op is Op.SELECT:
            return self._of_choice(entry.args, assumed, depth + 1)
        if entry.op in (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE) or entry.bits == 1:
            return (0, 1)
        args = [self._of(a, assumed, depth + 1) for a in entry.args]
        return combine_intervals(entry.op, args)

    def _of_choice(self, args: tuple[int, ...], assumed: dict[int, Interval], depth: int) -> Interval | None:
        found = []
        for value, truth in ((args[0], True), (args[1], False)):
            interval = self._of(value, assumed, depth)
            if interval is None:
                return None
            narrowed = self._narrow(value, interval, args[2], truth)
            found += [narrowed] if narrowed is not None else []
        return _union(found)

    def _narrow(self, value: int, interval: Interval, condition: int, truth: bool) -> Interval | None:
        """What a condition about the value itself leaves of the interval."""
        for part, ranges in self._expressions.literal(condition, truth):
            shift = self._distance(part, value)
            if shift is None:
                continue
            pieces = [(max(low + shift, interval[0]), min(high + shift, interval[1])) for low, high in ranges]
            return _union([p for p in pieces if p[0] <= p[1]])
        return interval

    def _distance(self, part: int, value: int) -> int | None:
        """`value - part`, when it is a constant."""
        if part == value:
            return 0
        entry = self._expressions[value]
        if entry.op is Op.ADD and entry.args[0] == part:
            return self._expressions[entry.args[1]].constant
        return None

    def _of_leaf(self, number: int, leaf: int, assumed: dict[int, Interval], depth: int) -> Interval | None:
        node = self._values.node(leaf)
        if node.origin is Origin.MERGE:
            return _union(self._arriving(node, assumed, depth) or [])
        if node.origin is not Origin.PHI:
            return None
        first = [
            self._of(self._expressions.of_value(p), assumed, depth)
            for p in node.parts
            if not self._conditions.is_later(node.place, p)
        ]
        guess = _union([f for f in first if f is not None]) if None not in first else None
        for _ in range(MAX_ROUNDS):
            if guess is None:
                return None
            arriving = self._arriving(node, {**assumed, number: guess}, depth)
            after = _union([guess, *arriving]) if arriving is not None else None
            if after == guess:
                return guess
            guess = after
        return None

    def _arriving(self, node: Node, assumed: dict[int, Interval], depth: int) -> list[Interval] | None:
        """What arrives where ways meet, each narrowed by the conditions of its way; None when one is not known."""
        found: list[Interval] = []
        for position, conditions, _ in self._conditions.ways(node, frozenset()):
            part = self._expressions.of_value(node.parts[position])
            interval: Interval | None = self._of(part, assumed, depth)
            if interval is None:
                return None
            for condition in conditions:
                if interval is not None:
                    interval = self._narrow(part, interval, condition.number, condition.truth)
            found += [interval] if interval is not None else []
        return found


def _union(intervals: list[Interval]) -> Interval | None:
    return (min(low for low, _ in intervals), max(high for _, high in intervals)) if intervals else None
