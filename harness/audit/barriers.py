"""Barriers of a kernel: which threads each gathers, and mbarrier objects by their place in shared memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from harness.audit.bounds import Bounds
from harness.audit.cfg import Edge
from harness.audit.expressions import Expressions
from harness.audit.facts import Facts, Knowledge
from harness.audit.forms import SourceKind
from harness.audit.model import Model
from harness.audit.program import BarrierAction, BarrierScope, Instruction, Level, Mbarrier, Op
from harness.audit.threads import WARP, ThreadClass
from harness.audit.values import Origin, Values
from harness.audit.walk import EXIT, Mark, Walker
from harness.audit.witness import contradiction, way_of

MAX_ROUNDS = 6
FULL_WARP = (0xFFFFFFFF, -1)
THREAD_SPECIALS = frozenset(
    ["tid", "laneid", "warpid", "lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt"]
)


@dataclass(frozen=True, slots=True)
class BarrierKey:
    """One barrier: its scope and number; a number of None is one that the text computes."""

    scope: BarrierScope
    number: int | None


@dataclass(frozen=True, slots=True)
class Span:
    """Where in shared memory an mbarrier can lie: bytes `low` to `high` after a sum that is the same for all threads
    and at all times."""

    symbols: tuple[int, ...]
    low: int
    high: int

    def may_meet(self, other: Span) -> bool:
        """Whether both can be one object."""
        return self.symbols != other.symbols or (self.low <= other.high and other.low <= self.high)


class _Everywhere:
    """A policy that ends a way at instructions in `until` only."""

    def __init__(self, events: frozenset[int], until: frozenset[int] = frozenset()) -> None:
        self.events = events | until
        self._until = until

    def key(self, instruction: Instruction, facts: Facts, mark: Mark) -> int:  # noqa: ARG002
        return instruction.index

    def visit(self, instruction: Instruction, facts: Facts, mark: Mark) -> Mark | None:  # noqa: ARG002
        return None if instruction.index in self._until else mark

    def cross(self, edge: Edge, branch: Instruction, facts: Facts, mark: Mark) -> Mark:  # noqa: ARG002
        return mark

    def finish(self, facts: Facts, mark: Mark) -> None:
        """Nothing to note."""

    def is_final(self, instruction: Instruction) -> bool:
        return instruction.index in self._until


class Barriers:
    """Answers for one kernel."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._keys: dict[int, BarrierKey] = {}
        self._spans: dict[int, Span | None] = {}
        self.instructions = tuple(i for i in model.kernel.instructions if i.barrier is not None)
        self.objects = tuple(i for i in model.kernel.instructions if i.mbarrier is not None)

    def key_of(self, instruction: Instruction) -> BarrierKey | None:
        """The barrier that an instruction is about."""
        barrier = instruction.barrier
        if barrier is None:
            return None
        found = self._keys.get(instruction.index)
        if found is None:
            number: int | None = 0
            if barrier.scope is BarrierScope.CTA:
                number = self._model.expressions.constant(instruction.index, barrier.id)
            found = self._keys[instruction.index] = BarrierKey(barrier.scope, number)
        return found

    def count_of(self, instruction: Instruction) -> int | None:
        """The constant count or mask of a barrier, or of an mbarrier operation; None when it has or needs none."""
        source = instruction.barrier or instruction.mbarrier
        if source is None:
            return None
        found = self._model.expressions.constant(instruction.index, source.count)
        # A register that is 0 counts the whole CTA in machine code.
        is_open = found == 0 and source is instruction.barrier and self._model.kernel.level is Level.SASS
        return None if is_open else found

    @cached_property
    def tests(self) -> tuple[Instruction, ...]:
        """Every test of an mbarrier's phase."""
        return tuple(
            i for i in self.objects if i.mbarrier is not None and i.mbarrier.action is BarrierAction.TEST
        )

    @cached_property
    def _reached(self) -> dict[ThreadClass, frozenset[int] | None]:
        """Barrier instructions that each class can run; None when there are too many ways to look at."""
        events = frozenset(i.index for i in (*self.instructions, *self.objects))
        found: dict[ThreadClass, frozenset[int] | None] = {}
        model = self._model
        for threads in model.classes(frozenset(range(len(model.graph.blocks))), events):
            knowledge = Knowledge(model.graph, model.values, model.expressions, threads, frozenset())
            walk = Walker(model.graph, model.expressions, knowledge, _Everywhere(events)).walk(())
            found[threads] = frozenset(p for p in walk.arrivals if p >= 0) if walk.is_complete else None
        return found

    def arriving(self, instructions: set[int], *, is_precise: bool = False) -> int | None:
        """Threads that can run any of `instructions`; None when they cannot be counted. Precise: ways that contradict
        themselves are told apart."""
        if self._model.threads.count is None:
            return None
        chosen = []
        for threads, reached in self._reached.items():
            if reached is None:
                return None
            if reached & instructions and not (is_precise and self._never_runs(threads, instructions)):
                chosen.append(threads)
        return self._count(chosen, is_least=False)

    def _never_runs(self, threads: ThreadClass, instructions: set[int]) -> bool:
        """Whether every way of a class to `instructions` contradicts itself."""
        model = self._model
        tracked: frozenset[int] = frozenset()
        for _ in range(MAX_ROUNDS):
            knowledge = Knowledge(model.graph, model.values, model.expressions, threads, tracked)
            policy = _Everywhere(frozenset(instructions))
            walk = Walker(model.graph, model.expressions, knowledge, policy).walk(())
            places = [p for p in walk.arrivals if p in instructions]
            if not walk.is_complete or not places:
                return walk.is_complete
            ways = [way_of(model.graph, walk, walk.arrivals[p], p, threads) for p in places]
            causes = [contradiction(model, way) for way in ways]
            learned = frozenset().union(*causes) - tracked
            if not all(causes) or not learned:
                return False
            tracked |= learned
        return False

    def surely_arriving(self, instructions: set[int]) -> int:
        """Threads that cannot reach the kernel's end without running one of `instructions`."""
        model = self._model
        chosen = []
        for threads, reached in self._reached.items():
            if reached is None or not reached & instructions:
                continue
            knowledge = Knowledge(model.graph, model.values, model.expressions, threads, frozenset())
            policy = _Everywhere(frozenset(), frozenset(instructions))
            walk = Walker(model.graph, model.expressions, knowledge, policy).walk(())
            if walk.is_complete and EXIT not in walk.arrivals:
                chosen.append(threads)
        return self._count(chosen, is_least=True)

    def _count(self, classes: list[ThreadClass], *, is_least: bool) -> int:
        """Threads of some classes: at most, or at least, where a warp's elected lane may be in one class or another."""
        num_places = len(self._model.threads.places)
        lanes = Counter((t // WARP, c.is_elected) for c in classes for t in c.threads)
        total = 0
        for (warp, is_elected), count in lanes.items():
            is_whole = count == min(WARP, num_places - warp * WARP)
            if is_elected is None:
                total += count
            elif is_elected:
                total += int(is_whole or not is_least)
            else:
                total += count - int(is_whole or is_least)
        return total

    @cached_property
    def _users(self) -> dict[BarrierKey, list[Instruction]]:
        found: dict[BarrierKey, list[Instruction]] = {}
        for instruction in self.instructions:
            key = self.key_of(instruction)
            if key is not None:
                found.setdefault(key, []).append(instruction)
        return found

    @cached_property
    def _relaxed(self) -> frozenset[BarrierKey]:
        return frozenset(k for k, users in self._users.items() if any(_is_relaxed(i) for i in users))

    def is_relaxed(self, key: BarrierKey) -> bool:
        """Whether some use of the barrier orders no memory."""
        return key in self._relaxed

    def is_full(self, key: BarrierKey) -> bool:
        """Whether each round of the barrier gathers all threads that use it."""
        users = self._users[key]
        if self.is_relaxed(key):
            return False
        if key.scope is BarrierScope.CLUSTER:
            return True
        if key.number is None:
            return False
        counts = {self.count_of(i) for i in users}
        if key.scope is BarrierScope.WARP:
            return all(c in FULL_WARP for c in counts)
        if any(k.number is None for k in self._users):
            return False
        if all(i.barrier is not None and i.barrier.count is None for i in users):
            return True
        (count, *others) = counts
        return not others and count is not None and self.arriving({i.index for i in users}) == count

    def place_of(self, instruction: Instruction, mbarrier: Mbarrier) -> tuple[str, int] | None:
        """Where in shared memory the object lies; None when that cannot be followed."""
        forms = self._model.pointers.address(instruction.index, mbarrier.address)
        if len(forms) != 1:
            return None
        (form,) = forms
        names = [s.name for s in form.bases if s.kind is SourceKind.VARIABLE]
        if form.offset is None or len(form.terms) != len(names) or len(names) > 1:
            return None
        return (names[0] if names else "", form.offset)

    @cached_property
    def _bounds(self) -> Bounds:
        return Bounds(self._model)

    def span_of(self, instruction: Instruction) -> Span | None:
        """Where an mbarrier operation's object can lie; None when it may be anywhere."""
        mbarrier = instruction.mbarrier
        if mbarrier is None:
            return None
        if instruction.index not in self._spans:
            self._spans[instruction.index] = self._find_span(instruction.index, mbarrier)
        return self._spans[instruction.index]

    def _find_span(self, index: int, mbarrier: Mbarrier) -> Span | None:
        expressions = self._model.expressions
        low = high = mbarrier.address.offset
        symbols: list[int] = []
        stack = [expressions.of_operand(index, term) for term in mbarrier.address.terms]
        while stack:
            number = stack.pop()
            entry = expressions[number]
            interval = self._bounds.of(number)
            if interval is not None:
                low, high = low + interval[0], high + interval[1]
            elif entry.op is Op.ADD:
                stack += entry.args
            elif entry.op is Op.MAD:
                product = self._bounds.of_product(entry.args[0], entry.args[1])
                if product is None:
                    return None
                low, high = low + product[0], high + product[1]
                stack.append(entry.args[2])
            elif self._is_fixed(number):
                symbols.append(number)
            else:
                return None
        return Span(tuple(sorted(symbols)), low, high)

    def _is_fixed(self, number: int) -> bool:
        """Whether all threads of a CTA have the same value, at all times."""
        values, expressions = self._model.values, self._model.expressions
        for part in expressions.parts(number):
            entry = expressions[part]
            if entry.special.partition(".")[0] in THREAD_SPECIALS or entry.op is Op.ELECT:
                return False
            if entry.leaf is None:
                continue
            node = values.node(entry.leaf)
            if node.origin is not Origin.ASSIGN or node.assign is None or node.assign.op is Op.LOAD:
                return False
            inner = [a for a in values.args(entry.leaf) if isinstance(a, int)]
            if not all(self._is_fixed(expressions.of_value(a)) for a in inner):
                return False
        return True

    @cached_property
    def arrivals(self) -> tuple[tuple[Instruction, tuple[str, int] | None], ...]:
        """Every arrival at an mbarrier, with the object's place where it is constant."""
        return tuple(
            (i, self.place_of(i, i.mbarrier))
            for i in self.objects
            if i.mbarrier is not None and i.mbarrier.action is BarrierAction.ARRIVE
        )


def _is_relaxed(instruction: Instruction) -> bool:
    return instruction.barrier is not None and instruction.barrier.is_relaxed


def passed_test(
    values: Values,
    expressions: Expressions,
    instructions: tuple[Instruction, ...],
    edge: Edge,
    branch: Instruction,
) -> Instruction | None:
    """The mbarrier test that must have succeeded for a branch to go along `edge`."""
    if edge.value is None:
        return None
    predicate = expressions.of_register(branch.index, edge.register)
    for part, ranges in expressions.literal(predicate, edge.value):
        leaf = expressions[part].leaf
        if leaf is None or any(low == 0 for low, _ in ranges):
            continue
        node = values.node(leaf)
        if node.origin not in (Origin.ASSIGN, Origin.MERGE):
            continue
        instruction = instructions[node.place]
        if instruction.mbarrier is not None and instruction.mbarrier.action is BarrierAction.TEST:
            return instruction
    return None
