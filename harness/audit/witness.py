"""A way through a kernel as a list of instructions, and whether it contradicts itself."""

from __future__ import annotations

from dataclasses import dataclass

from harness.audit.cfg import Graph
from harness.audit.decide import Site, site_of
from harness.audit.facts import NO_FACTS, Facts, Knowledge
from harness.audit.model import Model
from harness.audit.program import Instruction, Kind
from harness.audit.threads import ThreadClass
from harness.audit.walk import EXIT, Arrival, Choice, Walk


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """From the kernel's entry to a place."""

    graph: Graph
    threads: ThreadClass | None
    blocks: tuple[int, ...]
    choices: tuple[tuple[Choice, ...], ...]
    """Made in each block."""
    place: int
    """The instruction that the way ends at, or EXIT."""

    @property
    def steps(self) -> tuple[tuple[Instruction, bool | None], ...]:
        """All that run on the way and all branches, the end included; with a guarded one, whether it ran."""
        found: list[tuple[Instruction, bool | None]] = []
        final = len(self.blocks) - 1
        for position, (block, choices) in enumerate(zip(self.blocks, self.choices, strict=True)):
            bounds = self.graph.blocks[block]
            end = self.place + 1 if position == final and self.place >= 0 else bounds.end
            made = {c.instruction: c.value for c in choices}
            for instruction in self.graph.kernel.instructions[bounds.start : end]:
                ran = made.get(instruction.index)
                found.append((instruction, ran))
                ends = instruction.kind is Kind.EXIT and ran is not False
                if position == final and self.place == EXIT and ends:
                    break
        return tuple(found)

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """All that run on the way, and its branches."""
        return tuple(i for i, ran in self.steps if ran is not False or i.kind is Kind.BRANCH)


def way_of(graph: Graph, walk: Walk, arrival: Arrival, place: int, threads: ThreadClass | None) -> Way:
    """The way that a walk found."""
    steps = walk.way_to(arrival)
    return Way(
        graph=graph,
        threads=threads,
        blocks=tuple(b for b, _ in steps),
        choices=tuple(c for _, c in steps),
        place=place,
    )


def contradiction(model: Model, way: Way) -> frozenset[int]:
    """Expressions that must be remembered to see that the way is impossible, or that what it reaches need not wait;
    empty when nothing speaks against it.

    Where the walk went straight to a join at which something that the way decides by takes its value, the way is not
    known in full: that value must be remembered.
    """
    knowledge = Knowledge(model.graph, model.values, model.expressions, way.threads, None)
    for number in _predicates_of(model, way):
        for cause in model.expressions.causes(number):
            knowledge.watch(cause)
    instructions = model.kernel.instructions
    facts: Facts = NO_FACTS
    skipped: set[int] = set()
    for position, block in enumerate(way.blocks):
        if position:
            if _goes_straight(model.graph, way, position - 1):
                skipped |= knowledge.merging(block)
            facts = knowledge.enter(way.blocks[position - 1], block, facts)
        made = {c.instruction: c.value for c in way.choices[position]}
        bounds = model.graph.blocks[block]
        is_last = position == len(way.blocks) - 1
        for index in range(bounds.start, bounds.end):
            guard = instructions[index].predicate
            if index in made and guard is not None:
                predicate = model.expressions.of_register(index, guard.register)
                after = knowledge.learn(predicate, made[index] is not guard.negated, facts)
                if after is None:
                    return knowledge.explain(predicate, facts)
                facts = after
            if is_last and index == way.place:
                return _exemption(model, way.place, knowledge, facts) or frozenset(skipped)
            if knowledge.forgets_at(index):
                facts = knowledge.after(instructions[index], facts)
    return frozenset(skipped)


def _goes_straight(graph: Graph, way: Way, position: int) -> bool:
    """Whether the walk left a branching block for the join of its ways, without a choice."""
    block = graph.blocks[way.blocks[position]]
    made = {c.instruction for c in way.choices[position]}
    return len({e.target for e in block.edges}) > 1 and block.end - 1 not in made


def _predicates_of(model: Model, way: Way) -> list[int]:
    """Predicates that the way decided, and those that choose what its end reaches."""
    found = [model.expressions.of_value(c) for c in model.mixed.get(way.place, ())]
    for choice in (c for choices in way.choices for c in choices):
        guard = model.kernel.instructions[choice.instruction].predicate
        if guard is not None:
            found.append(model.expressions.of_register(choice.instruction, guard.register))
    return found


def _exemption(model: Model, place: int, knowledge: Knowledge, facts: Facts) -> frozenset[int]:
    """What shows that an access with several possible arguments reaches, on this way, one that need not wait."""
    choices = model.mixed.get(place, ())
    if not choices or model.must_wait_given(model.kernel.instructions[place], knowledge, facts):
        return frozenset()
    numbers = [model.expressions.of_value(c) for c in choices]
    return frozenset().union(*(knowledge.explain(n, facts) for n in numbers))


def sites_of(way: Way, last: str) -> tuple[Site, ...]:
    """The instructions that matter on a way: decisions, barriers, triggers, and its end with the note `last`."""
    sites: list[Site] = []
    for instruction, ran in way.steps[:-1]:
        if ran is not None:
            words = ("taken", "not taken") if instruction.kind is Kind.BRANCH else ("runs", "does not run")
            sites.append(site_of(instruction, words[0] if ran else words[1]))
        elif instruction.kind in (Kind.BARRIER, Kind.TRIGGER, Kind.CALL):
            sites.append(site_of(instruction))
    if way.steps:
        who = f" (by {way.threads.label})" if way.threads is not None else ""
        sites.append(site_of(way.steps[-1][0], f"{last}{who}"))
    return tuple(sites)
