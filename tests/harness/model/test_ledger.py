"""Laws of the ledger: what counts as served by the specialised path."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.model.ledger import (
    CodeTargets,
    LedgerRow,
    Path,
    StepDecision,
    StepRequest,
    belongs_to,
    count_served,
    path_of,
    served_by_batch,
)

TARGETS = CodeTargets(specialized_code=frozenset({"m:fast"}), baseline_code=frozenset({"m:plain"}))


def row(
    *, decided: bool, fast: int, plain: int, requests: tuple[StepRequest, ...] | None = None, step: int = 0
) -> LedgerRow:
    if requests is None:
        requests = (decode("cmpl-a-0"),)
    return LedgerRow(
        step=step,
        started_ns=0,
        duration_ns=1,
        num_reqs=len(requests),
        requests=requests,
        decisions=(StepDecision(target="m:plan", specialized=decided, reason="r"),),
        ran={"m:fast": fast, "m:plain": plain},
    )


def decode(request_id: str, emitted: int = 1) -> StepRequest:
    return StepRequest(
        request_id=request_id, num_scheduled_tokens=1, num_prefill_tokens=0, num_emitted_tokens=emitted
    )


def prefill(request_id: str) -> StepRequest:
    return StepRequest(
        request_id=request_id, num_scheduled_tokens=5, num_prefill_tokens=5, num_emitted_tokens=1
    )


def test_a_step_is_specialized_when_decision_and_execution_agree() -> None:
    assert path_of(row(decided=True, fast=1, plain=0), TARGETS) is Path.SPECIALIZED


def test_a_decision_whose_code_did_not_run_counts_for_neither_path() -> None:
    assert path_of(row(decided=True, fast=0, plain=1), TARGETS) is Path.CONTRADICTORY


def test_specialized_code_that_hands_over_to_the_baseline_counts_for_neither_path() -> None:
    assert path_of(row(decided=True, fast=1, plain=1), TARGETS) is Path.CONTRADICTORY


def test_specialized_code_without_a_decision_counts_for_neither_path() -> None:
    assert path_of(row(decided=False, fast=1, plain=0), TARGETS) is Path.CONTRADICTORY


def test_a_step_in_which_nothing_known_ran_is_not_called_baseline() -> None:
    assert path_of(row(decided=False, fast=0, plain=0), TARGETS) is Path.CONTRADICTORY


@given(st.booleans(), st.integers(0, 2), st.integers(0, 2))
def test_specialized_needs_all_three_witnesses(decided: bool, fast: int, plain: int) -> None:
    is_specialized = path_of(row(decided=decided, fast=fast, plain=plain), TARGETS) is Path.SPECIALIZED
    assert is_specialized == (decided and fast > 0 and plain == 0)


def test_tokens_of_a_step_with_a_prefill_are_not_decode_tokens() -> None:
    mixed = row(decided=True, fast=1, plain=0, requests=(decode("cmpl-a-0"), prefill("cmpl-b-0")))
    assert count_served([mixed], TARGETS).total == 0


def test_a_request_is_counted_under_its_own_client_id_only() -> None:
    both = row(decided=True, fast=1, plain=0, requests=(decode("cmpl-ax-0"), decode("cmpl-bx-0", 3)))
    assert count_served([both], TARGETS, ["bx"]).specialized == 3


def test_no_decode_tokens_means_no_share_rather_than_a_perfect_one() -> None:
    assert count_served([], TARGETS).share is None


def test_an_id_does_not_claim_a_longer_id_that_it_begins() -> None:
    assert belongs_to("cmpl-p1x-0-abc", "p1x")
    assert belongs_to("chatcmpl-p1x", "p1x")
    assert not belongs_to("cmpl-p1xy-0", "p1x")


def test_batches_are_told_apart_by_the_requests_of_the_step() -> None:
    rows = [
        row(decided=True, fast=1, plain=0),
        row(decided=False, fast=0, plain=1, requests=(decode("cmpl-a-0"), decode("cmpl-b-0"))),
    ]
    shares = {batch: served.share for batch, served in served_by_batch(rows, TARGETS).items()}
    assert shares == {1: 1.0, 2: 0.0}
