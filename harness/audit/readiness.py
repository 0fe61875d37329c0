"""Whether data that was read from a mailbox is used only after a test of that same data.

Followed backwards, from each effect (a store, an address, text that is not understood) to the reads that its operands
stem from. On the way back, where ways meet, the conditions known so far take the values of the way. A read that is
made again when its data was not ready is one more alternative: each must be tested on the ways that use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from harness.audit.conditions import NO_GUARDS, Condition, Conditions, Guards, Looked, Part, is_choice
from harness.audit.contents import Content, Contents
from harness.audit.model import Model, Touch
from harness.audit.program import Immediate, Instruction, Kind, Space
from harness.audit.values import Node, Origin

MAX_STEPS = 6_000
MAX_PATH = 16
MAX_SPLITS = 5
"""Places where ways meet that are told apart at once, for one read."""
MAX_ALL_SPLITS = 400
"""The same for all reads of a kernel."""
_OWN = (Space.LOCAL, Space.PARAM)
_UNKNOWN = (Kind.CALL, Kind.OPAQUE)
Element = tuple[int, int]
"""Instruction and element of a read."""
Meeting = tuple[Origin, int, str]
"""Where values meet."""
_Path = tuple[tuple[int, int], ...]
"""Places of one round where ways met, as values, and the way taken."""


class Untested(Enum):
    """How an element is used without a test."""

    SHOWN = "shown"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """An effect that takes an element without a test."""

    untested: Untested
    instruction: Instruction
    is_partial: bool
    """Another element of the same read was tested."""


class _Known(NamedTuple):
    """What holds at a place on the way back."""

    looked: Looked
    guards: Guards
    conditions: frozenset[Condition]


class _State(NamedTuple):
    """A value on its way back from an effect."""

    value: int
    part: Part
    known: _Known
    is_straight: bool
    """No ways met since the effect."""
    path: _Path = ()


class Readiness:
    """Answers for one kernel."""

    def __init__(
        self, model: Model, reads: tuple[Touch, ...], repeats: frozenset[tuple[int, int]] = frozenset()
    ) -> None:
        self._model = model
        self._values = model.values
        self._conditions = Conditions(model, repeats)
        self._read_places = frozenset(t.instruction.index for t in reads)
        self._contents = Contents(model.values, self._read_places)
        self._behind: dict[int, frozenset[Element]] = {}
        """By condition."""
        self._reads: dict[int, frozenset[Element]] = {}
        """By value."""
        self._ways: dict[tuple[_Known, Meeting], list[tuple[int, _Known]]] = {}
        """All values that meet at one place come from it by the same ways."""
        self._split: dict[tuple[_Known, _Path, Meeting], list[_Known]] = {}
        self._steps = 0
        self._splits = 0
        self._seen: set[_State] = set()
        self._found: dict[Element, Use] = {}
        self._used: set[Element] = set()

    @cached_property
    def untested(self) -> dict[Element, Use]:
        """Elements that some effect takes without a test, with that effect."""
        for instruction in self._model.kernel.instructions:
            if instruction.accesses or instruction.kind in _UNKNOWN:
                operands = self._operands(instruction)
                if operands:
                    self._effect(instruction, operands)
        return self._found

    @property
    def used(self) -> set[Element]:
        """Elements that reach some effect."""
        return self._used if self.untested is not None else set()

    def _operands(self, instruction: Instruction) -> list[int]:
        """Values that an instruction lets out of the registers, those of read data only."""
        wanted = [t for a in instruction.accesses for t in a.address.terms]
        wanted += [r for a in instruction.accesses if a.writes for r in a.registers]
        values = [self._values.operand(instruction.index, w) for w in wanted]
        if instruction.kind in _UNKNOWN:
            values += [self._values.use(instruction.index, name) for name in instruction.uses]
        return [
            v for v in dict.fromkeys(values) if isinstance(v, int) and self._contents.sources_of((v, None))
        ]

    def _effect(self, instruction: Instruction, operands: list[int]) -> None:
        conditions = self._conditions.of_instruction(instruction.index)
        guard = self._conditions.guard(instruction.index)
        guards: Guards = NO_GUARDS if guard is None else frozenset((guard,))
        known = _Known(self._conditions.looked_at(conditions, guards), guards, self._relevant(conditions))
        stack = [
            _State(*s, known, True)
            for operand in operands
            for s in self._contents.sources_of((operand, None))
        ]
        self._seen = set()
        while stack:
            state = stack.pop()
            if state in self._seen:
                continue
            self._seen.add(state)
            self._steps += 1
            node = self._values.node(state.value)
            if self._contents.is_source(node):
                self._note(instruction, state, node)
            elif not self._is_tested(state):
                stack += self._back(state, node) if self._steps < MAX_STEPS else []
                if self._steps >= MAX_STEPS:
                    self._give_up(instruction, state.value)

    def _give_up(self, instruction: Instruction, value: int) -> None:
        """Too many ways: every read that the value may come from stays open."""
        loads = self._model.slices.of(value).loads
        for element in loads:
            if element[0] in self._read_places:
                self._used.add(element)
                use = Use(untested=Untested.UNDECIDED, instruction=instruction, is_partial=False)
                self._found.setdefault(element, use)

    def _is_tested(self, state: _State) -> bool:
        return not state.known.looked.isdisjoint(((state.value, None), (state.value, state.part)))

    def _note(self, instruction: Instruction, state: _State, node: Node) -> None:
        assert node.assign is not None
        first = node.assign.args[0] if node.assign.args else Immediate(0)
        element = (node.place, first.value if isinstance(first, Immediate) else 0)
        self._used.add(element)
        if self._is_tested(state) or self._is_tested_on_all_ways(state, MAX_SPLITS):
            return
        use = Use(
            untested=self._verdict(instruction, state, element),
            instruction=instruction,
            is_partial=any(
                self._values.node(v).place == node.place
                for v, _ in state.known.looked
                if self._contents.is_source(self._values.node(v))
            ),
        )
        known = self._found.get(element)
        if known is None or (known.untested is Untested.UNDECIDED and use.untested is Untested.SHOWN):
            self._found[element] = use

    def _is_tested_on_all_ways(self, state: _State, depth: int) -> bool:
        """Whether each way by which a condition's value came about, and that is possible, tested the data."""
        expressions = self._model.expressions
        leaves = frozenset().union(*(expressions.leaves(c.number) for c in state.known.conditions))
        for value in sorted(leaves) if depth else ():
            node = self._values.node(value)
            if (value, None) not in state.known.looked or node.origin not in (Origin.PHI, Origin.MERGE):
                continue
            if node.origin is Origin.PHI and any(
                self._conditions.is_later(node.place, p) for p in node.parts
            ):
                continue
            self._splits += 1
            if self._splits > MAX_ALL_SPLITS:
                return False
            ways = self._states_before(state, node)
            if all(self._is_tested(s) or self._is_tested_on_all_ways(s, depth - 1) for s in ways):
                return True
        return False

    def _states_before(self, state: _State, node: Node) -> list[_State]:
        """The same content with what is known on each possible way to where other values met."""
        asked = (state.known, state.path, _meeting(node))
        if asked not in self._split:
            self._split[asked] = self._known_before(state, node)
        return [state._replace(known=known) for known in self._split[asked]]

    def _known_before(self, state: _State, node: Node) -> list[_Known]:
        found = []
        for position, conditions, guards in self._conditions.ways(node, state.known.guards):
            kept = self._before(state.known.conditions, node, position)
            if kept is None:
                continue
            kept |= frozenset(conditions)
            if not self._conditions.are_possible(kept):
                continue
            looked = self._through(state.known.looked, state.known.conditions, node, position, guards)
            looked |= self._conditions.looked_at(conditions, guards)
            for value, taken in state.path:
                looked |= self._through(looked, kept, self._values.node(value), taken, guards)
            found.append(_Known(looked, guards, kept))
        return found

    def _verdict(self, instruction: Instruction, state: _State, element: Element) -> Untested:
        """Undecided when some condition on the way depends on the read in a manner that is not followed, or when the
        data only moves to memory of the thread's own."""
        if all(a.space in _OWN for a in instruction.accesses if a.writes) and instruction.accesses:
            return Untested.UNDECIDED
        conditions = tuple(state.known.conditions)
        if state.is_straight:
            side = self._conditions.looked_at(conditions, state.known.guards, any_side=True)
            is_beside = any(v == state.value for v, _ in side)
            return Untested.UNDECIDED if is_beside else Untested.SHOWN
        depends = any(element in self._loads_behind(c) for c in conditions if c.is_ready)
        return Untested.UNDECIDED if depends else Untested.SHOWN

    def _loads_behind(self, condition: Condition) -> frozenset[Element]:
        """Elements of mailbox reads that a condition depends on in any manner."""
        found = self._behind.get(condition.number)
        if found is None:
            leaves = self._model.expressions.leaves(condition.number)
            found = frozenset().union(*(self._reads_behind(leaf) for leaf in leaves))
            self._behind[condition.number] = found
        return found

    def _reads_behind(self, value: int) -> frozenset[Element]:
        """Elements of mailbox reads that a value depends on in any manner."""
        found = self._reads.get(value)
        if found is None:
            loads = self._model.slices.of(value).loads
            found = self._reads[value] = frozenset(e for e in loads if e[0] in self._read_places)
        return found

    def _back(self, state: _State, node: Node) -> list[_State]:
        """The alternatives of a value where ways meet, each with what is known on its way."""
        found = []
        meeting = _meeting(node)
        if (state.known, meeting) not in self._ways:
            self._ways[state.known, meeting] = self._ways_to(state.known, node)
        for position, known in self._ways[state.known, meeting]:
            path: _Path = ()
            if node.origin is not Origin.PHI:
                path = state.path
            elif not self._is_round(node, position) and state.value not in dict(state.path):
                path = (*state.path[-MAX_PATH:], (state.value, position))
            arrived = self._values.args(state.value)[position] if is_choice(node) else node.parts[position]
            if isinstance(arrived, int):
                sources = self._contents.sources_of((arrived, state.part))
                found += [_State(*s, known, False, path) for s in sources]
        return found

    def _ways_to(self, known: _Known, node: Node) -> list[tuple[int, _Known]]:
        """The possible ways to where a value meets others, by the value's part, with what is known on each."""
        found = []
        for position, conditions, guards in self._conditions.ways(node, known.guards):
            kept: frozenset[Condition] | None = known.conditions
            if node.origin is Origin.PHI:
                guards = NO_GUARDS
                kept = self._before(known.conditions, node, position)
            if kept is None:
                continue
            kept |= self._relevant(conditions)
            if not self._conditions.are_possible(kept):
                continue
            looked = self._through(known.looked, known.conditions, node, position, guards)
            looked |= self._conditions.looked_at(conditions, guards)
            found.append((position, _Known(looked, guards, kept)))
        return found

    def _relevant(self, conditions: tuple[Condition, ...]) -> frozenset[Condition]:
        """Conditions that say something of what was read, or that another one can contradict."""
        return frozenset(c for c in conditions if self._conditions.may_recur(c) or self._loads_behind(c))

    def _before(
        self, conditions: frozenset[Condition], node: Node, position: int
    ) -> frozenset[Condition] | None:
        """Conditions as they were before ways met: about the values of this way, and those made before. None when
        this way's values contradict them."""
        expressions = self._model.expressions
        is_round, meeting = self._is_round(node, position), _meeting(node)
        found: set[Condition] = set()
        for condition in conditions:
            leaves = expressions.leaves(condition.number)
            met = [leaf for leaf in leaves if _meeting(self._values.node(leaf)) == meeting]
            if is_round and any(self._conditions.is_later(node.place, v) for v in leaves - set(met)):
                continue
            values = {leaf: self._values.node(leaf).parts[position] for leaf in met}
            replaced = {expressions.of_value(v): expressions.of_value(p) for v, p in values.items()}
            number = expressions.substitute(condition.number, replaced) if met else condition.number
            if number is None:
                continue
            constant = expressions[number].constant
            if constant is None:
                found.update(self._conditions.split(number, condition.truth, condition.is_ready))
            elif bool(constant & 1) is not condition.truth:
                return None
        return frozenset(found)

    def _is_round(self, node: Node, position: int) -> bool:
        """Whether a way into a place leads from it around a loop: what is made after the place is then another round's,
        while on other ways it is yet to be made."""
        graph = self._model.graph
        source = node.ways[position] if node.origin is Origin.PHI else -1
        return source >= 0 and graph.dominates(node.place, source)

    def _through(
        self,
        looked: Looked,
        known: frozenset[Condition],
        node: Node,
        position: int,
        guards: Guards,
    ) -> Looked:
        """The same knowledge before ways met: what met there takes the values of this way, and the outcome that a
        condition gives it."""
        conditions, is_round = self._conditions, self._is_round(node, position)
        outcomes = {c.number: c.truth for c in known}
        found: set[Content] = set()
        for value, part in looked:
            other = self._values.node(value)
            outcome = outcomes.get(self._model.expressions.of_value(value)) if part is None else None
            if node.origin is not Origin.PHI:
                found |= conditions.look_value(value, part, outcome, guards, any_side=False)
            elif other.origin is Origin.PHI and other.place == node.place:
                found |= conditions.look_value(other.parts[position], part, outcome, guards, any_side=False)
            elif not is_round or not conditions.is_later(node.place, value):
                found.add((value, part))
        return frozenset(found)


def _meeting(node: Node) -> Meeting:
    """Where the node's value comes about: at a join, for all registers, or by a guarded write of one."""
    return node.origin, node.place, "" if node.origin is Origin.PHI else node.register
