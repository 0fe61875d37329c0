"""What must hold at a place, and which values such a condition has looked at.

A block is reached only along edges that dominate it; each of their conditions holds there. A condition has *looked
at* a value when its outcome was computed from that very value: from every alternative where ways meet, from every
side of a disjunction that is true. Values are static single assignment, so that a condition which dominates a use
and looked at the used value saw the same data as the use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

from harness.audit.cfg import Edge
from harness.audit.expressions import FALSE, TRUE, Literal
from harness.audit.integers import Ranges, intersect, only_value
from harness.audit.model import Model
from harness.audit.program import Immediate, Op, Operand
from harness.audit.values import Node, Origin

MAX_DEPTH = 300
Part = tuple[int, int] | None
"""Which part of a value: its number and its width in bits; None for all of it."""
Looked = frozenset[tuple[int, Part]]
"""Loaded values, and values where ways meet, that conditions depend on."""
Guards = frozenset[tuple[int, bool]]
"""Guards of predicated instructions that are taken to be so: expression and truth."""
NO_LOOK: Looked = frozenset()
NO_GUARDS: Guards = frozenset()
_Question = tuple[int, Part, bool | None, bool, bool]
"""What is looked at: an expression or a value, or a part of it, its truth, any side, and whether it is a value."""


class Condition(NamedTuple):
    """A predicate that holds, or does not."""

    number: int
    """Its expression."""
    truth: bool
    is_ready: bool = True
    """Not so where it only says that a poll has to be made again."""


def _among(guards: Guards, numbers: set[int]) -> Guards:
    """Guards by those expressions."""
    return guards if not guards else frozenset(g for g in guards if g[0] in numbers)


TRANSPARENT = (Op.MOVE, Op.PART, Op.PACK)
"""Operations that put parts of values together, or take them apart."""


def is_choice(node: Node) -> bool:
    """Whether a value is one of two others, as a predicate says."""
    return node.assign is not None and node.assign.op is Op.SELECT and node.assign.bits > 1


def content_of(node: Node, args: tuple[int | Operand, ...], part: Part) -> list[tuple[int, Part]]:
    """The values, or parts of them, that a part of an assignment's result is made of; of a choice only what it chooses
    from."""
    assert node.assign is not None
    assign = node.assign
    if assign.op is Op.PART and len(args) > 1 and isinstance(args[1], Immediate):
        return [(args[0], (args[1].value, assign.bits))] if isinstance(args[0], int) else []
    if assign.op is Op.PACK and part is not None and part[1] == assign.bits and part[0] < len(args):
        args, part = (args[part[0]],), None
    elif assign.op is Op.SELECT:
        args = args[:2]
    elif assign.op is not Op.MOVE:
        part = None
    return [(a, part) for a in args if isinstance(a, int)]


class Conditions:
    """Answers for one kernel. Edges in `repeats` lead to another round of a poll that was not ready."""

    def __init__(self, model: Model, repeats: frozenset[tuple[int, int]] = frozenset()) -> None:
        self._model = model
        self._repeats = repeats
        self._values = model.values
        self._expressions = model.expressions
        self._of_block: dict[int, tuple[Condition, ...]] = {}
        self._looked: dict[tuple[_Question, Guards], Looked] = {}
        """By what was asked, and those of the guards that made a difference."""
        self._deciding: dict[_Question, set[int]] = {}
        self._decided: set[int] = set()
        """Guards that made a difference to what is being looked at."""
        self._open: set[_Question] = set()

    def of_block(self, block: int) -> tuple[Condition, ...]:
        """What holds whenever the block runs, by its dominating edges."""
        graph = self._model.graph
        found = self._of_block.get(block)
        if found is None:
            parent = graph.dominators.get(block)
            if parent is None or parent == block:
                found = ()
            else:
                own = [self._dominating(parent, e, block) for e in graph.blocks[parent].edges]
                found = (*self.of_block(parent), *(c for conditions in own for c in conditions))
            self._of_block[block] = found
        return found

    def _dominating(self, source: int, edge: Edge, block: int) -> tuple[Condition, ...]:
        """The conditions of an edge out of the immediate dominator, when every way to `block` goes along it."""
        graph = self._model.graph
        others = [p for p in graph.predecessors[edge.target] if p != source]
        twice = sum(e.target == edge.target for e in graph.blocks[source].edges) > 1
        if edge.value is None or twice or not graph.dominates(edge.target, block):
            return ()
        if not all(graph.dominates(edge.target, p) for p in others):
            return ()
        return self._of_edge(source, edge)

    def _of_edge(self, source: int, edge: Edge) -> tuple[Condition, ...]:
        if edge.value is None:
            return ()
        last = self._model.graph.blocks[source].end - 1
        is_ready = (source, edge.target) not in self._repeats
        return self.split(self._expressions.of_register(last, edge.register), edge.value, is_ready)

    def split(self, number: int, truth: bool, is_ready: bool = True) -> tuple[Condition, ...]:
        """A predicate and its outcome as conditions that hold one by one."""
        entry = self._expressions[number]
        if entry.op is Op.NOT and entry.bits == 1:
            return self.split(entry.args[0], not truth, is_ready)
        if entry.bits == 1 and entry.op is (Op.AND if truth else Op.OR):
            return tuple(c for a in entry.args for c in self.split(a, truth, is_ready))
        return (Condition(number, truth, is_ready),)

    def of_way(self, source: int, target: int) -> tuple[Condition, ...]:
        """What holds when control goes from one block to the next."""
        edges = [e for e in self._model.graph.blocks[source].edges if e.target == target]
        own = self._of_edge(source, edges[0]) if len(edges) == 1 else ()
        return (*self.of_block(source), *own)

    def guard(self, place: int) -> tuple[int, bool] | None:
        """What holds when a guarded instruction runs."""
        guard = self._model.kernel.instructions[place].predicate
        if guard is None:
            return None
        return self._expressions.of_register(place, guard.register), not guard.negated

    def of_instruction(self, place: int) -> tuple[Condition, ...]:
        """What holds when an instruction has an effect."""
        guard = self.guard(place)
        own = () if guard is None else self.split(*guard)
        return (*self.of_block(self._model.graph.block_of[place]), *own)

    def looked_at(
        self, conditions: tuple[Condition, ...], guards: Guards, *, any_side: bool = False, depth: int = 0
    ) -> Looked:
        """Values that all the conditions together have looked at; with `any_side`, on one side of a disjunction."""
        ready = [c for c in conditions if c.is_ready]
        looked = (self.look(c.number, c.truth, guards, any_side=any_side, depth=depth) for c in ready)
        return NO_LOOK.union(*looked)

    def look(
        self, number: int, truth: bool | None, guards: Guards, *, any_side: bool, depth: int = 0
    ) -> Looked:
        """Values that an expression was computed from, `truth` being its outcome where it is a predicate."""
        if depth > MAX_DEPTH:
            return NO_LOOK
        asked = (number, None, truth, any_side, False)
        return self._known(asked, guards, lambda: self._look(number, truth, guards, any_side, depth + 1))

    def _known(self, asked: _Question, guards: Guards, look: Callable[[], Looked]) -> Looked:
        """What `look` gives: once for all guards that agree where it makes a difference; nothing inside a cycle."""
        if asked in self._open:
            return NO_LOOK
        deciding = self._deciding.get(asked)
        found = None if deciding is None else self._looked.get((asked, _among(guards, deciding)))
        if deciding is None or found is None:
            outer, self._decided = self._decided, set()
            self._open.add(asked)
            found = look()
            self._open.discard(asked)
            deciding = self._deciding.setdefault(asked, set())
            deciding |= self._decided
            self._looked[asked, _among(guards, deciding)] = found
            self._decided = outer
        self._decided |= deciding
        return found

    def _look(self, number: int, truth: bool | None, guards: Guards, any_side: bool, depth: int) -> Looked:
        entry = self._expressions[number]
        if entry.leaf is not None:
            return self.look_value(entry.leaf, None, truth, guards, any_side=any_side, depth=depth)
        if entry.op is Op.NOT and entry.bits == 1:
            opposite = None if truth is None else not truth
            return self.look(entry.args[0], opposite, guards, any_side=any_side, depth=depth)
        is_boolean = entry.bits == 1 and entry.op in (Op.AND, Op.OR) and truth is not None
        inner = truth if is_boolean else None
        sides = [self.look(a, inner, guards, any_side=any_side, depth=depth) for a in entry.args]
        if is_boolean and truth is (entry.op is Op.OR) and not any_side:
            return sides[0].intersection(*sides[1:])
        return NO_LOOK.union(*sides)

    def look_value(
        self, value: int, part: Part, truth: bool | None, guards: Guards, *, any_side: bool, depth: int = 0
    ) -> Looked:
        """The same for a value, or a part of one."""
        if depth > MAX_DEPTH:
            return NO_LOOK
        asked = (value, part, truth, any_side, True)
        return self._known(
            asked, guards, lambda: self._look_value(value, part, truth, guards, any_side, depth + 1)
        )

    def _look_value(
        self, value: int, part: Part, truth: bool | None, guards: Guards, any_side: bool, depth: int
    ) -> Looked:
        node = self._values.node(value)
        if node.origin is Origin.ENTRY:
            return NO_LOOK
        if node.origin is not Origin.ASSIGN:
            alternatives = self._alternatives(node, part, truth, guards, any_side, depth)
            common = alternatives[0].intersection(*alternatives[1:]) if alternatives else NO_LOOK
            return common | {(value, part)}
        assert node.assign is not None
        if node.assign.op is Op.LOAD:
            return frozenset(((value, None),))
        if node.assign.op in TRANSPARENT:
            inner = content_of(node, self._values.args(value), part)
            looked = (self.look_value(v, p, None, guards, any_side=any_side, depth=depth) for v, p in inner)
            return NO_LOOK.union(*looked)
        number = self._expressions.of_value(value)
        if self._expressions[number].leaf is None:
            return self.look(number, truth, guards, any_side=any_side, depth=depth)
        numbers = [self._expressions.of_value(a) for a in self._values.args(value) if isinstance(a, int)]
        return NO_LOOK.union(*(self.look(n, None, guards, any_side=any_side, depth=depth) for n in numbers))

    def _alternatives(
        self, node: Node, part: Part, truth: bool | None, guards: Guards, any_side: bool, depth: int
    ) -> list[Looked]:
        """What each value that can arrive has looked at, the choice of the way included."""
        found: list[Looked] = []
        for position, conditions, _ in self.ways(node, guards):
            value = node.parts[position]
            if node.origin is Origin.PHI and self.is_later(node.place, value):
                found.append(NO_LOOK)  # the value of the round before
                continue
            constant = self._expressions[self._expressions.of_value(value)].constant
            if truth is not None and constant is not None and bool(constant & 1) is not truth:
                continue
            chosen = self.looked_at(conditions, guards, any_side=any_side, depth=depth)
            own = self.look_value(value, part, truth, guards, any_side=any_side, depth=depth)
            found.append(own | chosen)
        return found

    def ways(self, node: Node, guards: Guards) -> list[tuple[int, tuple[Condition, ...], Guards]]:
        """Values that can arrive where ways meet, by their position among the node's parts: each with what made it
        arrive, and the guards then known."""
        if node.origin is Origin.PHI:
            return [
                (position, self.of_way(way, node.place) if way >= 0 else (), guards)
                for position, way in enumerate(node.ways)
            ]
        chosen = self._chosen_by(node) if is_choice(node) else self.guard(node.place)
        if chosen is None:
            return [(position, (), guards) for position in range(len(node.parts))]
        number, runs = chosen
        self._decided.add(number)
        return [
            (position, self.split(number, truth), guards | {(number, truth)})
            for position, truth in ((0, runs), (1, not runs))
            if (number, not truth) not in guards
        ]

    def _chosen_by(self, node: Node) -> tuple[int, bool]:
        """What holds when a choice is the first of its two."""
        assert node.assign is not None
        return self._expressions.of_operand(node.place, node.assign.args[2]), True

    def is_later(self, block: int, value: int) -> bool:
        """Whether a value is made only after ways met in `block`: there it stems from an earlier round."""
        node = self._values.node(value)
        if node.origin is Origin.ENTRY:
            return False
        where = node.place if node.origin is Origin.PHI else self._model.graph.block_of[node.place]
        return self._model.graph.dominates(block, where)

    @cached_property
    def _sites(self) -> Counter[int]:
        """How many guards and branches ask about each part of a condition."""
        guards = (self.guard(instruction.index) for instruction in self._model.kernel.instructions)
        found: Counter[int] = Counter()
        for number, count in Counter(guard[0] for guard in guards if guard is not None).items():
            parts = {p for truth in (True, False) for p, _ in self._expressions.literal(number, truth)}
            found.update(dict.fromkeys(parts, count))
        return found

    def may_recur(self, condition: Condition) -> bool:
        """Whether another condition can contradict this one, or mean the same."""
        literal = self._expressions.literal(condition.number, condition.truth)
        return any(self._sites[part] > 1 for part, _ in literal)

    def are_possible(self, conditions: frozenset[Condition]) -> bool:
        """Whether conditions can hold together, as far as ranges of single expressions tell."""
        known: dict[int, Ranges] = {}
        for condition in conditions:
            literal = self._expressions.literal(condition.number, condition.truth)
            if not self._fits(literal, known):
                return False
            for part, ranges in literal:
                known[part] = intersect(known[part], ranges) if part in known else ranges
        return all(self._has_side(c, known) for c in conditions) and self._agree(conditions, known)

    def _agree(self, conditions: frozenset[Condition], known: dict[int, Ranges]) -> bool:
        """Whether no condition is wrong for a value that the others leave no choice but one."""
        replaced = {
            part: self._expressions.number_of(value)
            for part, ranges in known.items()
            if (value := only_value(ranges)) is not None and self._expressions[part].leaf is not None
        }
        for condition in conditions if replaced else ():
            number = self._expressions.substitute(condition.number, replaced)
            constant = None if number is None else self._expressions[number].constant
            if constant is not None and bool(constant & 1) is not condition.truth:
                return False
        return True

    def _fits(self, literal: Literal, known: dict[int, Ranges]) -> bool:
        for part, ranges in literal:
            constant = self._expressions[part].constant
            if constant is not None and not intersect(ranges, ((constant, constant),)):
                return False
            if part in known and not intersect(known[part], ranges):
                return False
        return True

    def _has_side(self, condition: Condition, known: dict[int, Ranges]) -> bool:
        """Whether one side of a disjunction that holds is still possible."""
        entry = self._expressions[condition.number]
        is_boolean = entry.bits == 1 and entry.op in (Op.AND, Op.OR)
        if not is_boolean or condition.truth is not (entry.op is Op.OR):
            return True
        wanted = TRUE if condition.truth else FALSE
        sides = ((*self._expressions.literal(a, condition.truth), (a, wanted)) for a in entry.args)
        return any(self._fits(side, known) for side in sides)
