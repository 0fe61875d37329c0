"""Where a walk that looks for what runs before the wait goes on, and where it ends."""

from __future__ import annotations

from harness.audit.barriers import passed_test
from harness.audit.cfg import Edge
from harness.audit.facts import Facts, Knowledge
from harness.audit.model import Model
from harness.audit.ordering import Order, Ordering, Record
from harness.audit.program import Instruction, Kind
from harness.audit.threads import ThreadClass
from harness.audit.walk import Mark

UNKNOWN_KINDS = (Kind.CALL, Kind.OPAQUE, Kind.OPAQUE_BRANCH)


class UnwaitedPolicy:
    """Stops at the wait; at barriers as `ordering` says; a strict walk stops at anything that might order."""

    def __init__(
        self,
        model: Model,
        knowledge: Knowledge,
        events: frozenset[int],
        threads: ThreadClass | None,
        ordering: Ordering | None,
        *,
        strict: bool,
        counts_only: bool = False,
    ) -> None:
        self.events = events
        self.records: list[Record] = []
        self.doubts: dict[int, Instruction] = {}
        self._model = model
        self._knowledge = knowledge
        self._threads = threads
        self._ordering = ordering
        self._flags = {} if ordering is None else ordering.flags
        self._strict = strict
        self._counts_only = counts_only
        self._needs: dict[tuple[int, tuple[bool | None, ...]], bool] = {}

    def key(self, instruction: Instruction, facts: Facts, mark: Mark) -> int | None:  # noqa: ARG002
        """An access whose address depends on a choice is one only where the choice makes it wait."""
        if instruction.index not in self._model.mixed:
            return instruction.index
        known = tuple(
            self._knowledge.truth(self._model.expressions.of_value(c), facts)
            for c in self._model.mixed[instruction.index]
        )
        key = (instruction.index, known)
        if key not in self._needs:
            self._needs[key] = self._model.must_wait_given(instruction, self._knowledge, facts)
        return instruction.index if self._needs[key] else None

    def visit(self, instruction: Instruction, facts: Facts, mark: Mark) -> Mark | None:
        if instruction.kind is Kind.WAIT:
            self.records.append(Record(True, mark, facts))
            return None
        if instruction.kind in UNKNOWN_KINDS:
            return None if self._strict else mark
        if instruction.kind is not Kind.BARRIER or self._ordering is None:
            return mark
        counted = self._ordering.count(instruction, mark)
        if self._counts_only:
            return counted
        order = self._ordering.passing(instruction, self._threads, facts, counted)
        return self._after(order, instruction, counted)

    def cross(self, edge: Edge, branch: Instruction, facts: Facts, mark: Mark) -> Mark | None:
        if self._ordering is None or self._counts_only:
            return mark
        model = self._model
        test = passed_test(model.values, model.expressions, model.kernel.instructions, edge, branch)
        flag = self._flags.get((model.graph.block_of[branch.index], edge.target))
        if test is None:
            return mark if flag is None else self._after(Order.POSSIBLE, flag, mark)
        return self._after(self._ordering.testing(test, self._knowledge, facts), test, mark)

    def _after(self, order: Order, instruction: Instruction, mark: Mark) -> Mark | None:
        if order is Order.PROVEN:
            return None
        if order is Order.POSSIBLE:
            self.doubts[instruction.index] = instruction
            return None if self._strict else mark
        return mark

    def finish(self, facts: Facts, mark: Mark) -> None:
        self.records.append(Record(False, mark, facts))

    def is_final(self, instruction: Instruction) -> bool:
        return instruction.kind in (Kind.WAIT, Kind.BARRIER, *UNKNOWN_KINDS)
