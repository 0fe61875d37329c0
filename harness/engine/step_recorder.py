"""Turns what happens between the start and the end of an engine step into one row of the ledger.

A decode step that goes on as the one before does not name its requests again: that would take longer, for a full batch,
than a hundredth of the step.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Hashable
from typing import Any

from harness.engine.expert_tally import ExpertTally
from harness.engine.import_hook import Wrapper
from harness.engine.ledger_file import LedgerFile
from harness.engine.perturb import Perturber
from harness.engine.step_book import ScheduledRequest, Steady, StepBook
from harness.engine.step_profile import StepProfile, make_cuda_profiler
from harness.engine.trace_settings import DecisionTarget

FAULTS = (AttributeError, KeyError, IndexError, TypeError, ValueError, OSError, AssertionError)
"""What reading an engine's or a subject's objects may raise when they are not as expected."""


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
        self.ran: dict[str, int] = {}
        self.decisions: list[dict[str, Any]] = []
        self.follows_graphs = False
        """Whether captures and replays of graphs are told, and a planted call showed that they are."""
        self.is_aside = False
        """Nothing is recorded: what the tracer stands around runs as if it were not there."""
        self._is_warming_up = False
        self._was_replayed = False
        self._before_capture: tuple[dict[str, int], int] = ({}, 0)
        self._captured: dict[Hashable, tuple[dict[str, int], list[dict[str, Any]]]] = {}
        self._scheduled: tuple[ScheduledRequest, ...] = ()
        self._steady: Steady | None = None
        """The batch, where the present step goes on as the one before."""
        self._num_draft_tokens = 0
        self._started_ns = 0
        self._duration_ns = 0

    def count_wrapper(self, function: Callable[..., Any], target: str) -> Callable[..., Any]:
        """The function, its calls counted, and its result disturbed while the perturber is on."""
        ran, perturber = self.ran, self.perturber

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
        self.decisions.append(read_decision(result, point))

    def around_execute(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`execute_model`: a step begins; it also ends here when the runner returns its output at once.

        vLLM's second model runner calls it for its own warm-ups, too, with requests that nobody made.
        """

        @functools.wraps(function)
        def execute_model(runner: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            if self.is_aside or self._is_warming_up or kwargs.get("dummy_run"):
                return function(runner, scheduler_output, *args, **kwargs)
            self.guard("the start of a step", self._begin, scheduler_output)
            result = self._timed(function, runner, scheduler_output, *args, **kwargs)
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
            result = self._timed(function, runner, *args, **kwargs)
            self.guard("the end of a step", self._end, result)
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

    def _timed(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        started_ns = time.monotonic_ns()
        is_done = False
        try:
            result = function(*args, **kwargs)
            is_done = True
            return result
        finally:
            self._duration_ns += time.monotonic_ns() - started_ns
            if not is_done:
                self.report_error("a step that did not end", sys.exc_info()[1])

    def reset(self) -> None:
        """Forgets calls and decisions that belong to no step, such as those of a warm-up."""
        self.ran.clear()
        self.decisions = []
        self._was_replayed = False

    def capture_begun(self) -> None:
        """What is called and decided from now on becomes part of a graph."""
        self._before_capture = dict(self.ran), len(self.decisions)

    def capture_ended(self, key: Hashable) -> None:
        """The graph `key` holds what was called and decided since the capture began."""
        ran, num_decisions = self._before_capture
        calls = {t: count - ran.get(t, 0) for t, count in self.ran.items() if count > ran.get(t, 0)}
        self._captured[key] = calls, self.decisions[num_decisions:]

    def replayed(self, key: Hashable) -> None:
        """A graph runs again: what it holds counts for the present step, since no Python of it will run.

        Raises:
            KeyError: its capture was not told.
        """
        if self.is_aside:
            return
        calls, decisions = self._captured[key]
        for target, count in calls.items():
            self.ran[target] = self.ran.get(target, 0) + count
        self.decisions += decisions
        self._was_replayed = True

    def _begin(self, scheduler_output: Any) -> None:
        self.reset()
        self.experts.begin_step()
        self._duration_ns = 0
        self._scheduled, self._steady, self._num_draft_tokens = (), None, 0
        self._started_ns = time.monotonic_ns()
        self._steady = self.book.goes_on(scheduler_output)
        self.profile.begin_step(goes_on=self._steady is not None)
        if self._steady is None:
            self._scheduled = self.book.schedule(scheduler_output)
            self._num_draft_tokens = sum(request.num_draft_tokens for request in self._scheduled)

    def _end(self, result: Any) -> None:
        scheduled, steady = self._scheduled, self._steady
        self._scheduled, self._steady = (), None
        if not scheduled and steady is None:
            return
        row = {
            "step": self.num_steps,
            "started_ns": self._started_ns,
            "duration_ns": self._duration_ns,
            "num_reqs": len(steady.ids if steady is not None else scheduled),
            "decisions": list(self.decisions),
            "ran": dict(self.ran),
            "num_draft_tokens": self._num_draft_tokens,
            "graph_replayed": self._was_replayed,
        }
        self.num_steps += 1
        # An output that is still to be fetched may have fields of the same names, without their final contents.
        if hasattr(result, "get_output"):
            self._write_row_later(row, scheduled, steady, result)
        else:
            self._write_row(row, scheduled, steady, result)

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

    def _write_row_later(
        self,
        row: dict[str, Any],
        scheduled: tuple[ScheduledRequest, ...],
        steady: Steady | None,
        result: Any,
    ) -> None:
        """Under asynchronous scheduling the sampled tokens are known once the engine fetches the output."""
        fetch = result.get_output

        def get_output() -> Any:
            output = fetch()
            self.guard("a late row", self._write_row, row, scheduled, steady, output)
            return output

        result.get_output = get_output

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
