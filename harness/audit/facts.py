"""What a thread knows about conditions on its way, and what makes it forget."""

from __future__ import annotations

from collections.abc import Mapping

from harness.audit.cfg import Graph
from harness.audit.expressions import Expressions, Literal
from harness.audit.integers import Ranges, compute, intersect, only_value, shifted
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

    def merging(self, block: int) -> set[int]:
        """Expressions that take another value where a block begins."""
        return {self._expressions.of_value(leaf) for leaf in self._phis.get(block, ())}

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
        if self._is_excluded(self._expressions.literal(number, False), facts):
            return True
        return self._joined_truth(number, facts)

    def _joined_truth(self, number: int, facts: Facts) -> bool | None:
        """Of a conjunction or disjunction from what is known of its sides."""
        entry = self._expressions[number]
        if entry.bits != 1 or entry.op not in (Op.AND, Op.OR):
            return None
        decisive = entry.op is Op.OR
        sides = [self.truth(a, facts) for a in entry.args]
        if decisive in sides:
            return decisive
        return None if None in sides else not decisive

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
            interval = self._expressions.interval(number)
            if interval is not None and interval[0] >= 0 and not intersect((interval,), ranges):
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
        for part, ranges in self._literal(number, truth, facts):
            if self._tracked is not None and part not in self._tracked:
                continue
            if self._tracked is None:
                self.watch(part)
            narrower = intersect(known[part], ranges) if part in known else ranges
            if not narrower:
                return None
            known[part] = narrower
        return frozenset(known.items())

    def _literal(self, number: int, truth: bool, facts: Facts) -> Literal:
        """What an outcome means: of a disjunction, that the one side holds which is not known to be false."""
        entry = self._expressions[number]
        if entry.op is Op.NOT and entry.bits == 1:
            return self._literal(entry.args[0], not truth, facts)
        if entry.bits == 1 and entry.op in (Op.AND, Op.OR) and truth is (entry.op is Op.OR):
            sides = [a for a in entry.args if self.truth(a, facts) is None]
            if len(sides) == 1:
                return self._literal(sides[0], truth, facts)
        return self._expressions.literal(number, truth)

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
        kept.update(self._differences_of_way(merging, source, known))
        return frozenset(kept.items())

    def _differences_of_way(
        self, merging: set[int], source: int, known: dict[int, Ranges]
    ) -> dict[int, Ranges]:
        """Differences from what meets: `i - n` on the way on which `i` becomes `i + 4` is 4 more than before."""
        found: dict[int, Ranges] = {}
        for number in self._watched if self._tracked is None else self._tracked:
            entry = self._expressions[number]
            if entry.name != "difference" or not entry.signed:
                continue
            sides = [self._side_of_way(a, merging, source) for a in entry.args]
            if sides == [(a, 0) for a in entry.args]:
                continue
            ranges, needed = self._difference(sides[0], sides[1], known)
            if ranges:
                found[number] = ranges
                self._origins[number] = self._needed(needed, known)
        return found

    def _side_of_way(self, number: int, merging: set[int], source: int) -> tuple[int, int]:
        """One side of a difference as it is on the way: an expression, and a constant added to it."""
        leaf = self._expressions[number].leaf
        node = None if leaf not in merging else self._values.node(leaf)
        if node is None or source not in node.ways:
            return (number, 0)
        return self._expressions.summand(self._expressions.of_value(node.parts[node.ways.index(source)]))

    def _difference(
        self, left: tuple[int, int], right: tuple[int, int], known: dict[int, Ranges]
    ) -> tuple[Ranges, int]:
        """`left - right`, and the expression that it is known from."""
        (first, first_shift), (second, second_shift) = left, right
        shift = first_shift - second_shift
        for number, other, mirrored in ((first, second, True), (second, first, False)):
            constant = self._expressions[number].constant
            if constant is not None and other in known:
                delta = shift + (constant if mirrored else -constant)
                return shifted(known[other], delta, mirrored=mirrored, bits=32), other
        named = self._expressions.difference(first, second)
        if named is None or named[0] not in known:
            return (), first
        return shifted(known[named[0]], shift, mirrored=named[1]), named[0]

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
