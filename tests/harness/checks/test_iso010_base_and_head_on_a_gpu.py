"""Outcomes of ISO010, as far as they are not those of ISO007."""

from __future__ import annotations

import pytest

from harness.checks.isolation.iso010_base_and_head_on_a_gpu import BaseAndHeadOnAGpu
from harness.model.evidence import DefaultOffEvidence
from harness.model.finding import Finding
from harness.model.probe import ServedAnswer
from harness.model.words import Outcome, Tier
from tests.harness.checks.evidence_builder import context_of
from tests.harness.checks.test_iso007_base_and_head import OTHER, side, snapshot

GRAPHS: dict[str, object] = {"num_graphs": 2, "graph_kernels": {"gemm": 4}}
OTHER_ANSWER = {"answers": (ServedAnswer(request="r0", token_ids=(1, 2), logprobs=(-0.5, -1.25)),)}


def findings_of(*, tier: Tier = Tier.GPU, **head: object) -> dict[str, Finding]:
    records = [
        side("base", snapshot("bystander", **GRAPHS), has_model=False),
        side("head", snapshot("bystander", **(GRAPHS | head))),
    ]
    on_tier = [DefaultOffEvidence.model_validate(r.model_dump() | {"tier": tier}) for r in records]
    return {f.subject: f for f in BaseAndHeadOnAGpu().run(context_of(on_tier))}


def test_the_same_kernels_pass() -> None:
    assert findings_of()[f"captured graphs, {OTHER}"].outcome is Outcome.PASS


@pytest.mark.parametrize("head", [{"num_graphs": 3}, {"graph_kernels": {"gemm": 4, "fused": 1}}])
def test_another_graph_or_kernel_fails(head: dict[str, object]) -> None:
    assert findings_of(**head)[f"captured graphs, {OTHER}"].outcome is Outcome.FAIL


def test_graphs_whose_kernels_were_not_read_decide_nothing() -> None:
    records = [
        side(name, snapshot("bystander", num_graphs=2), has_model=False).model_copy(update={"tier": Tier.GPU})
        for name in ("base", "head")
    ]
    found = {f.subject: f for f in BaseAndHeadOnAGpu().run(context_of(records))}  # type: ignore[arg-type]
    assert found[f"captured graphs, {OTHER}"].outcome is Outcome.INCONCLUSIVE


def test_answers_that_differ_decide_nothing_since_the_base_was_served_once() -> None:
    found = findings_of(**OTHER_ANSWER)
    assert found[f"answers, {OTHER}"].outcome is Outcome.INCONCLUSIVE
    assert {f.outcome for s, f in found.items() if not s.startswith("answers")} <= {
        Outcome.PASS,
        Outcome.NOT_APPLICABLE,
    }


def test_what_a_cpu_showed_is_no_evidence_for_a_gpu() -> None:
    (finding,) = findings_of(tier=Tier.CPU).values()
    assert finding.outcome is Outcome.NOT_RUN
