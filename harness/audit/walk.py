"""All ways through a kernel, for one class of threads, that a policy lets go on.

A state is a block, what is known of conditions, and the policy's own mark. States are finite: facts are kept for a
chosen few expressions only, and a cap ends the walk as incomplete.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from harness.audit.cfg import Edge, Graph
from harness.audit.expressions import Expressions
from harness.audit.facts import NO_FACTS, Facts, Knowledge
from harness.audit.program import Instruction, Kind

MAX_STATES = 6_000
EXIT = -1
"""Stands for the kernel's end among the places that a walk reaches."""

Mark = tuple[int, ...]


class Choice(NamedTuple):
    """A guarded instruction on a way: whether it ran (a branch: was taken)."""

    instruction: int
    value: bool


class State(NamedTuple):
    """Being at the start of a block."""

    block: int
    facts: Facts
    mark: Mark
    parent: int
    choices: tuple[Choice, ...]
    """Made in the parent's block."""
    through: tuple[int, ...] = ()
    """Blocks between the parent's and this one, in which nothing is decided."""


class Arrival(NamedTuple):
    """Reaching an instruction, or the end, for the first time."""

    state: int
    choices: tuple[Choice, ...]
    facts: Facts
    mark: Mark


class Policy(Protocol):
    """What a walk does at instructions of interest."""

    events: frozenset[int]
    """Instructions that the walk stops at to ask."""

    def key(self, instruction: Instruction, facts: Facts, mark: Mark) -> int | None:
        """What an arrival at an instruction is noted under; None when it is none."""
        ...

    def visit(self, instruction: Instruction, facts: Facts, mark: Mark) -> Mark | None:
        """The mark after the instruction ran, or None to end this way."""
        ...

    def cross(self, edge: Edge, branch: Instruction, facts: Facts, mark: Mark) -> Mark | None:
        """The mark after a conditional branch went along `edge`, or None to end this way."""
        ...

    def finish(self, facts: Facts, mark: Mark) -> None:
        """The kernel's end was reached."""
        ...

    def is_final(self, instruction: Instruction) -> bool:
        """Whether a guarded instruction must be split into having run and not."""
        ...


@dataclass(slots=True)
class Walk:
    """What was reached, and how."""

    states: list[State] = field(default_factory=list)
    arrivals: dict[int, Arrival] = field(default_factory=dict)
    """First arrival at each event that may run, and at EXIT."""
    is_complete: bool = True

    def way_to(self, arrival: Arrival) -> list[tuple[int, tuple[Choice, ...]]]:
        """Blocks from the entry, each with the choices made in it."""
        way = [(self.states[arrival.state].block, arrival.choices)]
        at = self.states[arrival.state]
        while at.parent >= 0:
            way += [(block, ()) for block in reversed(at.through)]
            way.append((self.states[at.parent].block, at.choices))
            at = self.states[at.parent]
        return way[::-1]


class _Variant(NamedTuple):
    facts: Facts
    mark: Mark
    choices: tuple[Choice, ...]


class Walker:
    """Walks one kernel."""

    def __init__(self, graph: Graph, expressions: Expressions, knowledge: Knowledge, policy: Policy) -> None:
        self._graph = graph
        self._instructions = graph.kernel.instructions
        self._expressions = expressions
        self._knowledge = knowledge
        self._policy = policy
        self._walk = Walk()
        self._seen: dict[tuple[int, Mark], list[Facts]] = {}
        self._queue: deque[int] = deque()
        stops = sorted(policy.events | knowledge.places() | graph.ends)
        self._stops: dict[int, list[int]] = {}
        for index in stops:
            self._stops.setdefault(graph.block_of[index], []).append(index)
        self._joins = self._find_joins()
        self._onward: dict[int, tuple[int, tuple[int, ...]]] = {}

    def _find_joins(self) -> dict[int, int]:
        """Branches whose ways meet again before anything of interest: the walk goes straight to the join.

        Definitions and merges of what is remembered are of interest, the join's own included: its values depend on the
        way, so no fact grows stale over the shortcut.
        """
        eventful = {self._graph.block_of[i] for i in self._policy.events | self._knowledge.places()}
        merging = self._knowledge.merging_blocks()
        eventful |= merging
        return {
            block: join
            for block, join, between in self._graph.meetings
            if join not in merging and eventful.isdisjoint(between)
        }

    def _first_eventful(self, block: int) -> tuple[int, tuple[int, ...]]:
        """The first block from `block` on where something of interest can happen, and those before it."""
        found = self._onward.get(block)
        if found is None:
            at, through = block, []
            while at not in through and (after := self._only_way_on(at)) is not None:
                through.append(at)
                at = after
            found = self._onward[block] = (at, tuple(through))
        return found

    def _only_way_on(self, block: int) -> int | None:
        """Where every way through a block in which nothing of interest happens goes straight to."""
        if block not in self._joins:
            return None
        last = self._graph.blocks[block].end - 1
        is_quiet = self._stops.get(block) == [last] and self._instructions[last].kind is Kind.BRANCH
        return self._joins[block] if is_quiet else None

    def walk(self, start: Mark) -> Walk:
        """Everything that is reached from the entry."""
        if not self._instructions:
            return self._walk
        self._push(State(0, NO_FACTS, start, -1, ()))
        while self._queue:
            if len(self._walk.states) > MAX_STATES:
                self._walk.is_complete = False
                break
            self._expand(self._queue.popleft())
        return self._walk

    def _push(self, state: State) -> None:
        block, through = self._first_eventful(state.block)
        known = self._seen.setdefault((block, state.mark), [])
        if any(facts <= state.facts for facts in known):
            return
        known.append(state.facts)
        self._walk.states.append(state._replace(block=block, through=through) if through else state)
        self._queue.append(len(self._walk.states) - 1)

    def _expand(self, number: int) -> None:
        state = self._walk.states[number]
        variants = [_Variant(state.facts, state.mark, ())]
        block = self._graph.blocks[state.block]
        last = block.end - 1
        for index in self._stops.get(state.block, ()):
            instruction = self._instructions[index]
            is_branch = index == last and instruction.kind is Kind.BRANCH
            if not is_branch:
                passed = [after for v in variants for after in self._pass(number, instruction, v)]
                variants = list({(v.facts, v.mark): v for v in passed}.values())
        for variant in variants:
            self._leave(number, variant)

    def _note(self, instruction: Instruction, number: int, variant: _Variant) -> None:
        key = self._policy.key(instruction, variant.facts, variant.mark)
        if key is not None:
            self._arrive(key, number, variant)

    def _arrive(self, place: int, number: int, variant: _Variant) -> None:
        if place not in self._walk.arrivals:
            arrival = Arrival(number, variant.choices, variant.facts, variant.mark)
            self._walk.arrivals[place] = arrival
        if place == EXIT:
            self._policy.finish(variant.facts, variant.mark)

    def _pass(self, number: int, instruction: Instruction, variant: _Variant) -> list[_Variant]:
        """The ways on from one instruction inside a block."""
        guard = instruction.predicate
        if guard is None:
            return self._run(number, instruction, variant)
        predicate = self._expressions.of_register(instruction.index, guard.register)
        truth = self._knowledge.truth(predicate, variant.facts)
        wanted = not guard.negated
        if truth is not None:
            if truth is wanted:
                return self._run(number, instruction, variant)
            return [self._skip(instruction, variant)]
        if not self._policy.is_final(instruction) and instruction.kind not in (Kind.EXIT, Kind.TRAP):
            if instruction.index in self._policy.events:
                chosen = self._choose(variant, instruction, predicate, wanted)
                self._note(instruction, number, chosen)
                self._policy.visit(instruction, chosen.facts, chosen.mark)
            return [self._skip(instruction, variant)]
        found = []
        for value in (wanted, not wanted):
            facts = self._knowledge.learn(predicate, value, variant.facts)
            if facts is not None:
                choice = Choice(instruction.index, value is wanted)
                after = _Variant(facts, variant.mark, (*variant.choices, choice))
                if value is wanted:
                    found += self._run(number, instruction, after)
                else:
                    found.append(self._skip(instruction, after))
        return found

    def _choose(self, variant: _Variant, instruction: Instruction, predicate: int, wanted: bool) -> _Variant:
        facts = self._knowledge.learn(predicate, wanted, variant.facts)
        choices = (*variant.choices, Choice(instruction.index, True))
        return _Variant(variant.facts if facts is None else facts, variant.mark, choices)

    def _skip(self, instruction: Instruction, variant: _Variant) -> _Variant:
        facts = self._knowledge.after(instruction, variant.facts)
        return variant if facts is variant.facts else _Variant(facts, variant.mark, variant.choices)

    def _run(self, number: int, instruction: Instruction, variant: _Variant) -> list[_Variant]:
        mark: Mark | None = variant.mark
        if instruction.index in self._policy.events:
            self._note(instruction, number, variant)
            mark = self._policy.visit(instruction, variant.facts, variant.mark)
        if instruction.kind is Kind.EXIT:
            self._arrive(EXIT, number, variant)
            return []
        if mark is None or instruction.kind in (Kind.TRAP, Kind.OPAQUE_BRANCH):
            return []
        facts = self._knowledge.after(instruction, variant.facts)
        return [_Variant(facts, mark, variant.choices)]

    def _leave(self, number: int, variant: _Variant) -> None:
        """Go along every edge that the variant allows."""
        state = self._walk.states[number]
        block = self._graph.blocks[state.block]
        last = self._instructions[block.end - 1]
        if state.block in self._joins:
            join = self._joins[state.block]
            after = self._knowledge.enter(state.block, join, variant.facts)
            self._push(State(join, after, variant.mark, number, variant.choices))
            return
        if block.falls_off and not self._always_branches(last, variant):
            self._arrive(EXIT, number, variant)
        for edge in block.edges:
            facts: Facts | None = variant.facts
            mark: Mark | None = variant.mark
            choices = variant.choices
            if edge.value is not None and last.kind is Kind.BRANCH:
                predicate = self._expressions.of_register(last.index, edge.register)
                facts = self._knowledge.learn(predicate, edge.value, variant.facts)
                if facts is None:
                    continue
                taken = last.predicate is not None and edge.value is not last.predicate.negated
                choices = (*choices, Choice(last.index, taken))
                mark = self._policy.cross(edge, last, facts, variant.mark)
            if facts is not None and mark is not None:
                facts = self._knowledge.enter(state.block, edge.target, facts)
                self._push(State(edge.target, facts, mark, number, choices))

    def _always_branches(self, last: Instruction, variant: _Variant) -> bool:
        if last.kind is not Kind.BRANCH or last.predicate is None:
            return False
        predicate = self._expressions.of_register(last.index, last.predicate.register)
        truth = self._knowledge.truth(predicate, variant.facts)
        return truth is (not last.predicate.negated)
