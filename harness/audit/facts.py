"""What a thread knows about conditions on its way, and what makes it forget."""

from __future__ import annotations

from collections.abc import Mapping

from harness.audit.cfg import Graph
from harness.audit.expressions import Expressions, Literal
from harness.audit.integers import Ranges, compute, intersect, only_value
from harness.audit.program import Instruction, Op
from harness.audit.threads import ThreadClass
from harness.audit.values import Origin, Values

Facts = frozenset[tuple[int, Ranges]]
"""Ranges of expressions, by number."""

NO_FACTS: Facts = frozenset()
_SMALL = (0, 1)


class Knowledge:
    """Rules of knowing for one kernel and one class of threads.

    `tracked` are the expressions that are remembered; None remembers all (for one given way). `specials` are values
    of special registers, for a walk of one CTA.
    """

    def __init__(
        self,
        graph: Graph,
        values: Values,
        expressions: Expressions,
        threads: ThreadClass | None,
        tracked: frozenset[int] | None,
        specials: Mapping[str, int] | None = None,
    ) -> None:
        self._graph = graph
        self._values = values
        self._expressions = expressions
        self._tracked = tracked
        self._specials = specials or {}
        self._outcomes = dict(threads.outcomes) if threads is not None else {}
        self._elected = threads.is_elected if threads is not None else None
        self._kills: dict[int, set[int]] = {}
        self._phis: dict[int, set[int]] = {}
        self._watched: set[int] = set()
        self._learned: dict[tuple[int, bool, Facts], Facts | None] = {}
        self._truths: dict[tuple[int, Facts], bool | None] = {}
        self._origins: dict[int, frozenset[int]] = {}
        self._unconditional: dict[int, int | None] = {}
        for number in tracked or ():
            self.watch(number)

    def watch(self, number: int) -> None:
        """Follow the leaves of an expression: when they change, what is known of it is forgotten."""
        if number in self._watched:
            return
        self._watched.add(number)
        for leaf in self._expressions.leaves(number):
            node = self._values.node(leaf)
            if node.origin is Origin.PHI:
                self._phis.setdefault(node.place, set()).add(leaf)
            elif node.origin in (Origin.MERGE, Origin.ASSIGN):
                self._kills.setdefault(node.place, set()).add(leaf)

    def forgets_at(self, index: int) -> bool:
        """Whether an instruction changes something that is followed."""
        return index in self._kills

    def merging_blocks(self) -> set[int]:
        """Blocks where something known takes another value."""
        return set(self._phis)

    def places(self) -> set[int]:
        """Instructions that make something known be forgotten."""
        return set(self._kills)

    def truth(self, number: int, facts: Facts) -> bool | None:
        """Whether a predicate holds, as far as it is known."""
        key = (number, facts)
        if key not in self._truths:
            self._truths[key] = self._find_truth(number, facts)
        return self._truths[key]

    def _find_truth(self, number: int, facts: Facts) -> bool | None:
        value = self.value(number, dict(facts))
        if value is not None:
            return bool(value & 1)
        if self._is_excluded(self._expressions.literal(number, True), facts):
            return False
        return True if self._is_excluded(self._expressions.literal(number, False), facts) else None

    def value(self, number: int, known: dict[int, Ranges]) -> int | None:
        """The value of an expression, as far as it is known."""
        return self._value(number, known, {})

    def _value(self, number: int, known: dict[int, Ranges], memo: dict[int, int | None]) -> int | None:
        if not known or self._expressions.parts(number).isdisjoint(known):
            known, memo = {}, self._unconditional
        if number not in memo:
            memo[number] = self._compute(number, known, memo)
        return memo[number]

    def _compute(self, number: int, known: dict[int, Ranges], memo: dict[int, int | None]) -> int | None:
        if number in self._outcomes:
            return self._outcomes[number]
        if number in known:
            value = only_value(known[number])
            if value is not None:
                return value
        entry = self._expressions[number]
        if entry.constant is not None:
            return entry.constant
        if entry.special:
            return self._specials.get(entry.special)
        if entry.op is Op.ELECT:
            return None if self._elected is None else int(self._elected)
        if entry.op is None or entry.op is Op.UNIFORM:
            return None
        args = [self._value(a, known, memo) for a in entry.args]
        if entry.bits == 1 and entry.op in (Op.AND, Op.OR):
            decisive = 0 if entry.op is Op.AND else 1
            if any(a is not None and (a & 1) == decisive for a in args):
                return decisive
        values = [a for a in args if a is not None]
        if len(values) != len(args):
            return None
        return compute(entry.op, entry.bits, entry.signed, values)

    def _is_excluded(self, literal: Literal, facts: Facts) -> bool:
        known = dict(facts)
        for number, ranges in literal:
            if number in known and not intersect(known[number], ranges):
                return True
            value = self.value(number, known)
            if value is not None and not intersect(((value, value),), ranges):
                return True
        return False

    def learn(self, number: int, truth: bool, facts: Facts) -> Facts | None:
        """Facts after a predicate was seen to be `truth`; None when it cannot be."""
        key = (number, truth, facts)
        if key not in self._learned:
            self._learned[key] = self._learn(number, truth, facts)
        return self._learned[key]

    def _learn(self, number: int, truth: bool, facts: Facts) -> Facts | None:
        if self.truth(number, facts) is (not truth):
            return None
        known = dict(facts)
        for part, ranges in self._expressions.literal(number, truth):
            if self._tracked is not None and part not in self._tracked:
                continue
            if self._tracked is None:
                self.watch(part)
            narrower = intersect(known[part], ranges) if part in known else ranges
            if not narrower:
                return None
            known[part] = narrower
        return frozenset(known.items())

    def after(self, instruction: Instruction, facts: Facts) -> Facts:
        """Facts after an instruction ran."""
        changed = self._kills.get(instruction.index)
        return self._forget(facts, changed) if changed and facts else facts

    def enter(self, source: int, target: int, facts: Facts) -> Facts:
        """Facts on the edge between two blocks: what meets there takes the value of this way."""
        merging = self._phis.get(target)
        if not merging:
            return facts
        known = dict(facts)
        learned: dict[int, Ranges] = {}
        for leaf in merging:
            ranges = self._range_of_way(leaf, source, known)
            if ranges is not None:
                learned[self._expressions.of_value(leaf)] = ranges
        kept = dict(self._forget(facts, merging))
        kept.update(learned)
        return frozenset(kept.items())

    def _range_of_way(self, leaf: int, source: int, known: dict[int, Ranges]) -> Ranges | None:
        node = self._values.node(leaf)
        if source not in node.ways:
            return None
        part = self._expressions.of_value(node.parts[node.ways.index(source)])
        if self._tracked is None:
            self.watch(part)
        self._origins[self._expressions.of_value(leaf)] = self._needed(part, known)
        entry = self._expressions[part]
        if entry.constant is not None:
            value = entry.constant
            return ((value, value),) if value >= 0 else None
        if part in known:
            return known[part]
        found = self.value(part, known)
        return ((found, found),) if found in _SMALL else None

    def _needed(self, number: int, known: dict[int, Ranges]) -> frozenset[int]:
        """What was known inside an expression, and where that came from."""
        inside = {p for p in self._expressions.parts(number) if p in known}
        return frozenset(inside.union(*(self._origins.get(p, frozenset()) for p in inside)))

    def explain(self, number: int, facts: Facts) -> frozenset[int]:
        """Expressions that must be remembered for predicate `number` to be known as it is with `facts`."""
        known = dict(facts)
        parts = {p for truth in (True, False) for p, _ in self._expressions.literal(number, truth)}
        return frozenset().union(*(self._needed(p, known) for p in (number, *parts)))

    def _forget(self, facts: Facts, changed: set[int]) -> Facts:
        return frozenset(f for f in facts if not (self._expressions.leaves(f[0]) & changed))
