"""Laws of a visit's account: only whole, pure decode steps are timed, and every token is counted."""

from __future__ import annotations

import pytest

from harness.model.ledger import CodeTargets, LedgerRow, StepDecision, StepRequest
from perf_sweeps.decode_steps import VisitSteps, read_visit

TARGETS = CodeTargets(specialized_code=frozenset({"fast"}), baseline_code=frozenset({"plain"}))


def row(
    step: int, *ids: str, prefill: int = 0, emitted: int = 1, fast: bool = True, reason: str = ""
) -> LedgerRow:
    return LedgerRow(
        step=step,
        started_ns=step * 5_000_000,
        duration_ns=1,
        num_reqs=len(ids),
        requests=tuple(
            StepRequest(
                request_id=f"cmpl-{i}-0-x",
                num_scheduled_tokens=1,
                num_prefill_tokens=prefill,
                num_emitted_tokens=emitted,
            )
            for i in ids
        ),
        decisions=(StepDecision(target="t", specialized=fast, reason=reason),),
        ran={"fast": int(fast), "plain": int(not fast)},
    )


def read(*rows: LedgerRow) -> VisitSteps:
    return read_visit(rows, ["ar", "br"], batch=2, targets=TARGETS)


def test_prefill_steps_and_partial_batches_are_counted_and_not_timed() -> None:
    steps = read(
        row(0, "ar", "br", prefill=3), row(1, "ar", "br"), row(2, "ar", "br"), row(4, "ar"), row(9, "ar")
    )
    assert (steps.num_tokens, steps.num_prefill_tokens, steps.decode_step_ms) == (8, 6, 5.0)


def test_steps_that_hold_a_stranger_are_not_timed() -> None:
    assert read(row(1, "ar", "br", "zr"), row(2, "ar", "br", "zr")).decode_step_ms is None


def test_a_gap_over_another_step_is_no_decode_step() -> None:
    steps = read(row(1, "ar", "br"), row(2, "zr"), row(3, "ar", "br"))
    assert steps.decode_step_ms is None


def test_the_share_of_the_path_is_that_of_decode_tokens_alone() -> None:
    steps = read(
        row(0, "ar", "br", prefill=2, fast=False), row(1, "ar", "br"), row(2, "ar", "br", fast=False)
    )
    assert steps.specialized_share == 0.5


def test_the_acceptance_length_is_tokens_by_request_and_step() -> None:
    assert read(
        row(1, "ar", "br", emitted=3), row(2, "ar", "br", emitted=2)
    ).acceptance_length == pytest.approx(2.5)


def test_the_span_is_that_of_the_visits_own_steps() -> None:
    assert read(row(0, "zr"), row(1, "ar"), row(3, "br"), row(9, "zr")).span_s == pytest.approx(0.010000001)
    assert read(row(0, "zr")).span_s is None


def test_steps_that_fell_back_are_counted_by_the_reason_that_was_told() -> None:
    contradicted = row(3, "ar").model_copy(update={"ran": {"plain": 1}})
    undecided = row(4, "ar", fast=False).model_copy(update={"decisions": ()})
    steps = read(
        row(0, "ar", "br", prefill=2, fast=False, reason="a prompt"),
        row(1, "ar", fast=False, reason="drafts"),
        row(2, "br", fast=False, reason="drafts"),
        contradicted,
        undecided,
        row(5, "ar"),
        row(6, "ar", fast=False),
        row(7, "zr", fast=False, reason="a stranger's"),
    )
    assert steps.fallbacks == {"drafts": 2, "decided to be, and other code ran": 1, "no reason told": 1}
