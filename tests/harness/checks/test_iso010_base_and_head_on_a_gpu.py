"""Outcomes of ISO010, as far as they are not those of ISO007."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from harness.checks.isolation.iso010_base_and_head_on_a_gpu import BaseAndHeadOnAGpu
from harness.model.evidence import DefaultOffEvidence
from harness.model.finding import Finding
from harness.model.probe import ServedAnswer
from harness.model.words import Outcome, Tier
from tests.harness.checks.evidence_builder import MANIFEST, context_of
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


STEADY = ServedAnswer(request="r1", token_ids=(5, 6), logprobs=(-0.5, -0.5))


def answer(*logprobs: float, tokens: tuple[int, ...] = (1, 2)) -> ServedAnswer:
    return ServedAnswer(request="r0", token_ids=tokens, logprobs=logprobs)


def answers_of(base: Sequence[Sequence[ServedAnswer]], head: Sequence[ServedAnswer]) -> Outcome:
    """`base`: the answers of each of its runs."""
    runs = {"answers": tuple(base[0]), "repeats": tuple(map(tuple, base[1:]))}
    pair = (snapshot("bystander", **GRAPHS, **runs), snapshot("bystander", **GRAPHS, answers=tuple(head)))
    return BaseAndHeadOnAGpu().decide(*pair, MANIFEST.dispatch, ())["answers"].outcome


def test_an_answer_that_the_base_itself_does_not_repeat_is_held_to_the_tokens_of_its_runs() -> None:
    base = [[answer(-0.5, -1.5), STEADY], [answer(-0.5, -1.4), STEADY]]
    assert answers_of(base, [answer(-0.5, -1.3), STEADY]) is Outcome.PASS
    assert answers_of(base, [answer(-0.5, -1.3, tokens=(1, 3)), STEADY]) is Outcome.INCONCLUSIVE


def test_an_answer_that_the_base_repeats_and_the_head_does_not_give_decides_nothing() -> None:
    base = [[answer(-0.5, -1.5), STEADY]] * 3
    assert answers_of(base, [answer(-0.5, -1.3), STEADY]) is Outcome.INCONCLUSIVE


def test_answers_of_which_the_base_repeats_none_decide_nothing() -> None:
    base = [[answer(-0.5, -1.5)], [answer(-0.5, -1.4)]]
    assert answers_of(base, [answer(-0.5, -1.3)]) is Outcome.INCONCLUSIVE


def test_an_answer_that_is_missing_in_the_head_is_not_excused_by_an_unsteady_base() -> None:
    base = [[answer(-0.5, -1.5), STEADY], [answer(-0.5, -1.4), STEADY]]
    assert answers_of(base, [STEADY]) is Outcome.INCONCLUSIVE


def test_what_a_cpu_showed_is_no_evidence_for_a_gpu() -> None:
    (finding,) = findings_of(tier=Tier.CPU).values()
    assert finding.outcome is Outcome.NOT_RUN
