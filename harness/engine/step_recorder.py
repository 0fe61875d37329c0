"""Turns what happens between the start and the end of an engine step into one row of the ledger.

A decode step that goes on as the one before does not name its requests again: that would take longer, for a full batch,
than a hundredth of the step. While the ledger's records are held back, a step that may be such a one is only kept, and
its row is made with the block's others at its end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic_ns
from typing import Any, TypeAlias

from harness.engine.expert_tally import ExpertTally
from harness.engine.import_hook import Wrapper
from harness.engine.ledger_file import LedgerFile
from harness.engine.perturb import Perturber
from harness.engine.step_book import ScheduledRequest, Steady, StepBook
from harness.engine.step_profile import StepProfile, make_cuda_profiler
from harness.engine.trace_settings import DecisionTarget

FAULTS = (AttributeError, KeyError, IndexError, TypeError, ValueError, OSError, AssertionError)
"""What reading an engine's or a subject's objects may raise when they are not as expected."""

MOST_KEPT = 100_000
"""Objects that steps whose rows are still to be made keep alive, about: some 10 MB."""
KEPT_OF_A_STEP = 15
"""Beside one for each request."""

Told: TypeAlias = tuple[dict[str, int], list[dict[str, Any]]]
"""Calls by target, and decisions: of a step, or of a graph's capture. A graph's never change."""


Begun: TypeAlias = tuple[dict[str, Any], tuple[ScheduledRequest, ...], Steady | None]
"""A row without its tokens, with what the step scheduled."""


@dataclass(slots=True)
class _Step:
    """A step that has ended, until its row is written."""

    plain: Any
    """What it schedules, where that is still to be read."""
    output: Any
    started_ns: int
    duration_ns: int
    ran: dict[str, int]
    decisions: list[dict[str, Any]]
    graph_replayed: bool
    is_awaited: bool = False
    """Whether the engine has still to fetch the output."""
    begun: Begun | None = None


class StepRecorder:
    """Collects decisions and calls, and writes a row when the step's tokens are known.

    A fault of the recorder itself becomes an error record; the engine goes on.
    """

    def __init__(self, file: LedgerFile) -> None:
        self._file = file
        self.book = StepBook()
        self.perturber = Perturber()
        self.experts = ExpertTally()
        self.profile = StepProfile(make_cuda_profiler)
        self.num_steps = 0
        self._ran: dict[str, int] = {}
        self._decisions: list[dict[str, Any]] = []
        self.follows_graphs = False
        """Whether captures and replays of graphs are told, and a planted call showed that they are."""
        self.is_aside = False
        """Nothing is recorded: what the tracer stands around runs as if it were not there."""
        self._is_warming_up = False
        self._was_replayed = False
        self._before_capture: tuple[dict[str, int], int] = ({}, 0)
        self._captured: dict[Hashable, Told] = {}
        self._replays: list[Told] = []
        """What replayed graphs hold, not yet among the step's calls and decisions."""
        self._scheduled: tuple[ScheduledRequest, ...] = ()
        self._steady: Steady | None = None
        """The batch, where the present step goes on as the one before."""
        self._num_draft_tokens = 0
        self._started_ns = 0
        self._duration_ns = 0
        self._plain: Any = None
        """What the present step schedules, where its row is not made at once."""
        self.after_steps: Callable[[], None] = lambda: None
        """What looks at the process once rows are made."""
        self._kept: list[_Step] = []
        """Steps whose rows are not made."""
        self._num_kept = 0

    @property
    def ran(self) -> dict[str, int]:
        """Calls of the present step, by target."""
        self._count_replays()
        return self._ran

    @property
    def decisions(self) -> list[dict[str, Any]]:
        """Of the present step, in their order."""
        self._count_replays()
        return self._decisions

    def count_wrapper(self, function: Callable[..., Any], target: str) -> Callable[..., Any]:
        """The function, its calls counted, and its result disturbed while the perturber is on."""
        ran, perturber = self._ran, self.perturber

        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            if self.is_aside:
                return function(*args, **kwargs)
            ran[target] = ran.get(target, 0) + 1
            return perturber.result_of(target, function(*args, **kwargs))

        return counted

    def decision_wrapper(self, point: DecisionTarget) -> Wrapper:
        """A wrapper that records what a decision point returns."""

        def wrap(function: Callable[..., Any], _target: str) -> Callable[..., Any]:
            @functools.wraps(function)
            def decided(*args: Any, **kwargs: Any) -> Any:
                result = function(*args, **kwargs)
                if not self.is_aside:
                    self.guard(f"the decision of {point.target}", self._record_decision, result, point)
                return result

            return decided

        return wrap

    def _record_decision(self, result: Any, point: DecisionTarget) -> None:
        self._count_replays()
        self._decisions.append(read_decision(result, point))

    def around_execute(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`execute_model`: a step begins; it also ends here when the runner returns its output at once.

        vLLM's second model runner calls it for its own warm-ups, too, with requests that nobody made.
        """

        @functools.wraps(function)
        def execute_model(runner: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            if self.is_aside or self._is_warming_up or kwargs.get("dummy_run"):
                return function(runner, scheduler_output, *args, **kwargs)
            try:
                self._begin(scheduler_output)
            except FAULTS as error:
                self.report_error("the start of a step", error)
            started_ns = monotonic_ns()
            try:
                result = function(runner, scheduler_output, *args, **kwargs)
            except BaseException as error:
                self.report_error("a step that did not end", error)
                raise
            self._started_ns, self._duration_ns = started_ns, monotonic_ns() - started_ns
            if result is not None:
                self.guard("the end of a step", self._end, result)
            return result

        return execute_model

    def around_sample(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`sample_tokens`: a step that `execute_model` began ends."""

        @functools.wraps(function)
        def sample_tokens(runner: Any, *args: Any, **kwargs: Any) -> Any:
            if self.is_aside or self._is_warming_up:
                return function(runner, *args, **kwargs)
            started_ns = monotonic_ns()
            try:
                result = function(runner, *args, **kwargs)
            except BaseException as error:
                self.report_error("a step that did not end", error)
                raise
            self._duration_ns += monotonic_ns() - started_ns
            try:
                self._end(result)
            except FAULTS as error:
                self.report_error("the end of a step", error)
            return result

        return sample_tokens

    def around_warm_up(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A worker's warm-up: what it computes meanwhile, with requests of its own, is no step."""

        @functools.wraps(function)
        def warm_up(worker: Any, *args: Any, **kwargs: Any) -> Any:
            before, self._is_warming_up = self._is_warming_up, True
            try:
                return function(worker, *args, **kwargs)
            finally:
                self._is_warming_up = before

        return warm_up

    def reset(self) -> None:
        """Forgets calls and decisions that belong to no step, such as those of a warm-up."""
        self._ran.clear()
        self._decisions, self._replays = [], []
        self._was_replayed = False

    def capture_begun(self) -> None:
        """What is called and decided from now on becomes part of a graph."""
        self._count_replays()
        self._before_capture = dict(self._ran), len(self._decisions)

    def capture_ended(self, key: Hashable) -> None:
        """The graph `key` holds what was called and decided since the capture began."""
        self._count_replays()
        ran, num_decisions = self._before_capture
        calls = {t: count - ran.get(t, 0) for t, count in self._ran.items() if count > ran.get(t, 0)}
        self._captured[key] = calls, self._decisions[num_decisions:]

    def replayed(self, key: Hashable) -> None:
        """A graph runs again: what it holds counts for the present step, since no Python of it will run.

        Raises:
            KeyError: its capture was not told.
        """
        if self.is_aside:
            return
        self._replays.append(self._captured[key])
        self._was_replayed = True

    def _count_replays(self) -> None:
        """Puts what replayed graphs hold among the step's calls and decisions, in which they come in their order."""
        for calls, decisions in self._replays:
            for target, count in calls.items():
                self._ran[target] = self._ran.get(target, 0) + count
            self._decisions += decisions
        self._replays = []

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Rows are written at the end, and most of them made together with others."""
        self.hold_back()
        try:
            yield
        finally:
            self.write_held()

    def hold_back(self) -> None:
        """Rows are written later from now on; those that wait already stay."""
        self._file.hold_back()

    def write_held(self) -> None:
        """Makes the rows of the steps that are kept and writes what waited, and every further row at once."""
        self.settle()
        self._file.write_held()

    def settle(self) -> None:
        """Makes the rows of the steps that are kept, so that `num_steps` counts them."""
        kept, self._kept, self._num_kept = self._kept, [], 0
        for step in kept:
            try:
                self._read(step.plain)
                self._make_row(step)
            except FAULTS as error:
                self.report_error("a row", error)
        self.guard("the look after a step", self.after_steps)

    def _begin(self, scheduler_output: Any) -> None:
        self._plain, self._scheduled, self._steady = None, (), None
        if self._ran or self._decisions or self._was_replayed:
            self.reset()
        if self.experts.is_on:
            self.experts.begin_step()
        # Nothing that an engine changes later is kept: requests that come or go, and drafts, are read at once.
        if (
            self._file.held is not None
            and not scheduler_output.scheduled_new_reqs
            and not scheduler_output.finished_req_ids
            and not scheduler_output.scheduled_spec_decode_tokens
            and not self.profile.is_armed
        ):
            self._plain = scheduler_output
        else:
            if self._kept:
                self.settle()
            self._read(scheduler_output)

    def _read(self, scheduler_output: Any) -> None:
        self._num_draft_tokens = 0
        self._steady = self.book.goes_on(scheduler_output)
        if self.profile.is_armed:
            self.profile.begin_step(goes_on=self._steady is not None)
        if self._steady is None:
            self._scheduled = self.book.schedule(scheduler_output)
            self._num_draft_tokens = sum(request.num_draft_tokens for request in self._scheduled)

    def _end(self, result: Any) -> None:
        plain, self._plain = self._plain, None
        # Most often a step is one replay; what the graph holds need not be copied then.
        if len(self._replays) == 1 and not self._ran and not self._decisions:
            ran, decisions = self._replays.pop()
        else:
            self._count_replays()
            ran, decisions = dict(self._ran), self._decisions
        step = _Step(plain, result, self._started_ns, self._duration_ns, ran, decisions, self._was_replayed)
        self._decisions, self._was_replayed = [], False
        # An output that is still to be fetched may have fields of the same names, without their final contents.
        if hasattr(result, "get_output"):
            self._await_output(step)
        if plain is None:
            self._make_row(step)
            self.settle()
            return
        self._kept.append(step)
        self._num_kept += KEPT_OF_A_STEP + len(plain.num_scheduled_tokens)
        if self._num_kept >= MOST_KEPT:
            self.settle()

    def _await_output(self, step: _Step) -> None:
        """Lets the step have its tokens once the engine fetches them: it does so later under asynchronous scheduling,
        and with vLLM's second model runner at every step."""
        result, fetch = step.output, step.output.get_output
        step.is_awaited = True

        def get_output() -> Any:
            # The engine's own again, or the result would keep itself alive, and its memory on the GPU.
            del result.get_output
            step.output, step.is_awaited = fetch(), False
            if step.begun is not None:
                self.guard("a late row", self._write_row, *step.begun, step.output)
            return step.output

        step.output, result.get_output = None, get_output

    def _make_row(self, step: _Step) -> None:
        scheduled, steady = self._scheduled, self._steady
        self._scheduled, self._steady = (), None
        if not scheduled and steady is None:
            return
        row = {
            "step": self.num_steps,
            "started_ns": step.started_ns,
            "duration_ns": step.duration_ns,
            "num_reqs": len(steady.ids if steady is not None else scheduled),
            "decisions": step.decisions,
            "ran": step.ran,
            "num_draft_tokens": self._num_draft_tokens,
            "graph_replayed": step.graph_replayed,
        }
        self.num_steps += 1
        if step.is_awaited:
            step.begun = row, scheduled, steady
        else:
            self._write_row(row, scheduled, steady, step.output)

    def _write_row(
        self,
        row: dict[str, Any],
        scheduled: tuple[ScheduledRequest, ...],
        steady: Steady | None,
        output: Any,
    ) -> None:
        if steady is not None:
            if self.book.went_on(steady, output):
                self._file.write("row", **row, goes_on=True)
                return
            scheduled = self.book.spelt(steady)
        sampled = output.sampled_token_ids
        requests, emitted = [], []
        for request in scheduled:
            index = output.req_id_to_index.get(request.request_id)
            token_ids = sampled[index] if index is not None and index < len(sampled) else ()
            emitted.append(self.book.emit(request.request_id, token_ids))
            requests.append(
                {
                    "request_id": request.request_id,
                    "num_scheduled_tokens": request.num_scheduled_tokens,
                    "num_prefill_tokens": request.num_prefill_tokens,
                    "num_emitted_tokens": emitted[-1],
                    "num_computed_tokens": request.num_computed_tokens,
                    "num_draft_tokens": request.num_draft_tokens,
                }
            )
        self._file.write("row", **row, requests=requests)
        self.book.settle(scheduled, emitted)

    def guard(self, where: str, action: Callable[..., None], *args: Any) -> None:
        """Runs a part of the tracer; what it fails at becomes an error record."""
        try:
            action(*args)
        except FAULTS as error:
            self.report_error(where, error)

    def report_error(self, where: str, error: BaseException | None) -> None:
        """Writes an error record: what was not seen must not look as if it had not happened."""
        self._file.write("error", where=where, message=f"{type(error).__name__}: {error}")


def read_decision(result: Any, point: DecisionTarget) -> dict[str, Any]:
    """One decision as the ledger keeps it; raises AttributeError when the result lacks what `point` names."""
    value = getattr(result, point.value) if point.value else result
    reason = getattr(result, point.reason) if point.reason else ""
    text = str(getattr(value, "value", value))
    is_specialized = text == point.specialized or (
        isinstance(value, bool) and text.lower() == point.specialized.lower()
    )
    return {
        "target": point.target,
        "specialized": is_specialized,
        "reason": "" if reason is None else str(getattr(reason, "value", reason)),
    }
