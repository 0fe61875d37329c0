"""Laws of evidence records: content-addressed, strict, finite."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from harness.model.evaluation import TokenLogprobs
from harness.model.evidence import EVIDENCE_ADAPTER, GapEvidence
from harness.model.words import Tier


def gap(reason: str = "no GPU") -> GapEvidence:
    return GapEvidence(
        tier=Tier.GPU, recorded_at="2026-01-01T00:00:00Z", what="tier gpu", broke=False, reason=reason
    )


def test_the_id_changes_with_any_byte_of_the_content() -> None:
    assert gap("no GPU").id != gap("no GPU.").id
    assert gap().id == gap().id


def test_a_record_comes_back_from_json_as_itself() -> None:
    assert EVIDENCE_ADAPTER.validate_json(gap().model_dump_json()) == gap()


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(ValidationError, match="extra"):
        EVIDENCE_ADAPTER.validate_python(gap().model_dump() | {"verdict": "admit"})


def test_log_probabilities_without_a_token_each_are_refused() -> None:
    with pytest.raises(ValidationError, match="1 log probabilities of 2 tokens"):
        TokenLogprobs(token_ids=(1, 2), logprobs=(-0.1,))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(ValidationError, match="finite"):
        TokenLogprobs(token_ids=(1,), logprobs=(value,))
