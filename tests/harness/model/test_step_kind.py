"""Laws of the kinds of steps."""

from __future__ import annotations

import pytest

from harness.model.ledger import LedgerRow, StepRequest
from harness.model.step_kind import StepKind, context_of, drafts_of, kind_of

Part = tuple[int | None, int, int]
"""Computed, scheduled and prompt tokens of a request."""


def row(*parts: Part) -> LedgerRow:
    requests = tuple(
        StepRequest(
            request_id=f"r{i}",
            num_scheduled_tokens=scheduled,
            num_prefill_tokens=prefill,
            num_emitted_tokens=1,
            num_computed_tokens=computed,
        )
        for i, (computed, scheduled, prefill) in enumerate(parts)
    )
    return LedgerRow(
        step=0, started_ns=0, duration_ns=0, num_reqs=len(parts), requests=requests, decisions=(), ran={}
    )


DECODE, VERIFY = (10, 1, 0), (10, 3, 0)


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        ([DECODE], StepKind.DECODE),
        ([DECODE, (3, 1, 0)], StepKind.DECODE),
        ([VERIFY, VERIFY], StepKind.VERIFY),
        ([VERIFY, DECODE], StepKind.RAGGED_VERIFY),
        ([(0, 5, 5)], StepKind.PREFILL),
        ([(0, 1, 1)], StepKind.PREFILL),
        ([(128, 7, 7), (0, 3, 3)], StepKind.PREFILL),
        ([(0, 5, 5), DECODE], StepKind.MIXED),
        ([(128, 2, 2), VERIFY], StepKind.MIXED),
        ([(128, 1, 1)], StepKind.PROMPT_END),
        ([(128, 1, 1), DECODE], StepKind.PROMPT_END),
        ([], None),
        ([(None, 1, 0)], None),
    ],
)
def test_what_a_step_computes_tells_its_kind(parts: list[Part], kind: StepKind | None) -> None:
    assert kind_of(row(*parts)) is kind


def test_the_context_is_the_longest_requests_with_the_steps_tokens() -> None:
    assert context_of(row((10, 3, 0), (20, 1, 0))) == 21


def test_drafts_are_the_tokens_behind_the_first_outside_a_prompt() -> None:
    assert drafts_of(row((10, 4, 0), (10, 1, 0))) == 3
    assert drafts_of(row((0, 9, 9), (10, 1, 0))) == 0


@pytest.mark.parametrize(("parts", "context"), [([], 0), ([(None, 3, 0)], 3)])
def test_of_a_step_of_nothing_and_of_what_was_not_recorded_only_scheduled_tokens_count(
    parts: list[Part], context: int
) -> None:
    assert context_of(row(*parts)) == context


def test_a_step_without_requests_computes_no_drafts() -> None:
    assert drafts_of(row()) == 0
