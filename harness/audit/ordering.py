"""Order between threads: whether passing a barrier shows that some thread of the CTA has waited before.

The n-th time that a thread passes a barrier which gathers everybody, every other thread has arrived n times. A thread
that always waits before its n-th arrival therefore orders all others after their n-th pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from harness.audit.barriers import THREAD_SPECIALS, BarrierKey, Barriers
from harness.audit.facts import Facts, Knowledge
from harness.audit.flags import flag_exits
from harness.audit.integers import intersect
from harness.audit.model import Model
from harness.audit.program import BarrierAction, BarrierScope, Instruction, Op
from harness.audit.threads import WARP, ThreadClass
from harness.audit.values import Origin
from harness.audit.walk import Mark

MAX_COUNT = 3
MAX_KEYS = 5


class Order(Enum):
    """What passing a barrier says about the wait of others."""

    PROVEN = "proven"
    POSSIBLE = "possible"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Record:
    """How one way of a class ended: at the wait, or at the kernel's end without it."""

    waited: bool
    mark: Mark
    facts: Facts


@dataclass(slots=True)
class Census:
    """All ends of the ways of one class up to its first wait."""

    records: list[Record]
    is_complete: bool
    reached: frozenset[int]
    """Places reached before the wait, if no barrier orders anything."""


class Ordering:
    """Barrier order within one kernel, from a census of every class."""

    def __init__(self, model: Model, barriers: Barriers, keys: tuple[BarrierKey, ...]) -> None:
        self._model = model
        self._barriers = barriers
        self.keys = keys[:MAX_KEYS]
        self.flags = flag_exits(model)
        self._passed: dict[tuple[int, int, ThreadClass | None, Facts], Order] = {}
        self._full = {key: barriers.is_full(key) for key in self.keys}
        self._uniform: dict[int, bool] = {}
        self.censuses: dict[ThreadClass, Census] = {}
        self._limits = (MAX_COUNT,) * (2 * len(self.keys))
        self.unwaited_arrivals: frozenset[int] = frozenset()
        """Arrivals at mbarriers that can run before the wait."""
        self.surely_unwaited: frozenset[int] = frozenset()
        """Those of them that nothing on the way could have ordered."""

    @property
    def start(self) -> Mark:
        """Counts of arrivals and passes, two for each barrier."""
        return (0,) * (2 * len(self.keys))

    def count(self, instruction: Instruction, mark: Mark) -> Mark:
        """The counts after a barrier instruction."""
        key = self._barriers.key_of(instruction)
        if key not in self.keys or instruction.barrier is None:
            return mark
        place = 2 * self.keys.index(key)
        counts = list(mark)
        if instruction.barrier.action in (BarrierAction.SYNC, BarrierAction.ARRIVE):
            counts[place] = min(self._limits[place], counts[place] + 1)
        if instruction.barrier.action in (BarrierAction.SYNC, BarrierAction.WAIT):
            counts[place + 1] = min(self._limits[place + 1], counts[place + 1] + 1)
        return tuple(counts)

    def close(self) -> None:
        """All censuses are in: passes need no counting beyond what some wait comes before, arrivals none."""
        records = [r for census in self.censuses.values() for r in census.records if r.waited]
        limits: list[int] = []
        for place in range(0, 2 * len(self.keys), 2):
            most = max((r.mark[place] for r in records), default=-1)
            limits += [0, min(MAX_COUNT, most + 1)]
        self._limits = tuple(limits)
        self._passed.clear()

    def passing(
        self, instruction: Instruction, threads: ThreadClass | None, facts: Facts, mark: Mark
    ) -> Order:
        """What a thread of class `threads` knows once it has passed a barrier; `mark` counts this pass."""
        barrier, key = instruction.barrier, self._barriers.key_of(instruction)
        if barrier is None or key is None or barrier.action is BarrierAction.ARRIVE:
            return Order.NONE
        if self._barriers.is_relaxed(key):
            return Order.NONE
        if key not in self.keys:
            return Order.POSSIBLE
        place = 2 * self.keys.index(key)
        who = threads if key.scope is BarrierScope.WARP else None
        known = (place, mark[place + 1], who, facts)
        if known not in self._passed:
            self._passed[known] = self._pass(key, place, threads, facts, mark[place + 1])
        return self._passed[known]

    def _pass(
        self, key: BarrierKey, place: int, threads: ThreadClass | None, facts: Facts, passes: int
    ) -> Order:
        possible = False
        for other, census in self.censuses.items():
            if key.scope is BarrierScope.WARP and not self._share_a_warp(threads, other):
                continue
            fitting = [r for r in census.records if self._fits(r.facts, facts)]
            before = [r.waited and r.mark[place] < passes for r in fitting]
            possible = possible or any(before) or not census.is_complete
            surely_there = other.is_certain and census.is_complete and self._full[key]
            if key.scope is BarrierScope.WARP and threads is not None:
                surely_there = surely_there and _warps(threads) <= other.certain_warps
            if surely_there and before and all(before):
                return Order.PROVEN
        return Order.POSSIBLE if possible else Order.NONE

    def _share_a_warp(self, first: ThreadClass | None, second: ThreadClass) -> bool:
        return first is None or bool(_warps(first) & _warps(second))

    def _fits(self, first: Facts, second: Facts) -> bool:
        """Whether both can be true of threads of one CTA: what is the same for all threads must agree."""
        known = dict(second)
        return all(
            intersect(ranges, known[number])
            for number, ranges in first
            if number in known and self.is_uniform(number)
        )

    def is_uniform(self, number: int) -> bool:
        """Whether all threads of a CTA see the same value."""
        found = self._uniform.get(number)
        if found is None:
            self._uniform[number] = False  # while a cycle is being looked at
            found = self._uniform[number] = self._look_uniform(number)
        return found

    def _look_uniform(self, number: int) -> bool:
        entry = self._model.expressions[number]
        if entry.special:
            return entry.special.partition(".")[0] not in THREAD_SPECIALS
        if entry.leaf is not None:
            return self._is_uniform_load(entry.leaf)
        if entry.op is Op.ELECT:
            return False
        return all(self.is_uniform(a) for a in entry.args)

    def _is_uniform_load(self, leaf: int) -> bool:
        values = self._model.values
        node = values.node(leaf)
        if node.origin is not Origin.ASSIGN or node.assign is None or node.assign.op is not Op.LOAD:
            return False
        reads = [a for a in self._model.kernel.instructions[node.place].accesses if a.reads]
        expressions = self._model.expressions
        return all(
            self.is_uniform(expressions.of_operand(node.place, term))
            for a in reads
            for term in a.address.terms
        )

    def testing(self, instruction: Instruction, knowledge: Knowledge, facts: Facts) -> Order:
        """What a successful mbarrier test says: all its arrivals came after waits, if all arrivals do."""
        mbarrier = instruction.mbarrier
        if mbarrier is None or mbarrier.is_relaxed:
            return Order.NONE
        if mbarrier.parity is None:
            return Order.POSSIBLE
        parity = self._model.expressions.of_operand(instruction.index, mbarrier.parity)
        value = knowledge.value(parity, dict(facts))
        if value is None:
            return Order.POSSIBLE
        if value & 1:
            return Order.NONE  # the phase before the first one counts as complete
        mine = self._barriers.span_of(instruction)
        others = ((i, self._barriers.span_of(i)) for i, _ in self._barriers.arrivals)
        arrivals = [i for i, span in others if mine is None or span is None or mine.may_meet(span)]
        relaxed = {i.index for i in arrivals if i.mbarrier is not None and i.mbarrier.is_relaxed}
        if not any(i.index in self.unwaited_arrivals | relaxed for i in arrivals):
            return Order.PROVEN if arrivals else Order.NONE
        is_sure = all(i.index in self.surely_unwaited | relaxed for i in arrivals)
        return Order.NONE if is_sure else Order.POSSIBLE


def _warps(threads: ThreadClass) -> frozenset[int]:
    return frozenset(t // WARP for t in threads.threads)
