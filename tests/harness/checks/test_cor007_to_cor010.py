"""Outcomes of the evaluation checks COR007 to COR010, and attempts to fool them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import pytest

from harness.checks.correctness.cor003_specialized_share import SpecializedShare
from harness.checks.correctness.cor007_long_context_retrieval import LongContextRetrieval
from harness.checks.correctness.cor008_reasoning import Reasoning
from harness.checks.correctness.cor009_negative_control import NegativeControl
from harness.checks.correctness.cor010_comparable_answers import ComparableAnswers
from harness.model.check import BaseCheck
from harness.model.evals import AimeSection, EvalsSection
from harness.model.evaluation import EvalRow, SuiteItem, TokenLogprobs
from harness.model.evidence import EvalSetEvidence, EvidenceSet, LedgerEvidence, SuiteEvidence
from harness.model.finding import Finding
from harness.model.judgement import worst
from harness.model.policy import EvalsPolicy
from harness.model.words import Arm, Outcome
from tests.harness.checks.eval_builder import EvalWorld, answer_of, build_evals
from tests.harness.checks.evidence_builder import (
    MANIFEST,
    POLICY,
    change_items,
    change_records,
    context_of,
    without,
)

CHECKS = (LongContextRetrieval, Reasoning, NegativeControl, ComparableAnswers)
SCORES = {"mrcr": LongContextRetrieval, "aime": Reasoning}
Items = Sequence[SuiteItem]


@cache
def clean() -> EvidenceSet:
    return build_evals()


@cache
def made(world: EvalWorld) -> EvidenceSet:
    return build_evals(world)


def findings_of(check: type[BaseCheck], evidence: EvidenceSet) -> dict[str, Finding]:
    return {f.subject: f for f in check().run(context_of(evidence))}  # type: ignore[attr-defined]


def outcome_of(check: type[BaseCheck], evidence: EvidenceSet) -> Outcome:
    return worst([f.outcome for f in findings_of(check, evidence).values()])


def outcomes(evidence: EvidenceSet) -> dict[str, Outcome]:
    return {check.id: outcome_of(check, evidence) for check in CHECKS}


def with_items(suite: str, arm: Arm, change: Callable[[Items], Items]) -> EvidenceSet:
    return change_items(clean(), suite, arm, change)


def everywhere(suite: str, change: Callable[[Items], Items]) -> EvidenceSet:
    evidence = clean()
    for arm in Arm:
        evidence = change_items(evidence, suite, arm, change)
    return evidence


def with_rows(suite: str, change: Callable[[EvalSetEvidence], EvalSetEvidence]) -> EvidenceSet:
    return change_records(clean(), EvalSetEvidence, lambda r: change(r) if r.suite == suite else r)


def with_control(suite: str, change: Callable[[SuiteEvidence], SuiteEvidence]) -> EvidenceSet:
    return change_records(clean(), SuiteEvidence, lambda r: change(r) if r.suite == f"{suite}_control" else r)


def each(**update: object) -> Callable[[Items], Items]:
    return lambda items: [item.model_copy(update=update) for item in items]


@pytest.mark.parametrize("seed", range(3))
def test_a_clean_change_passes_all_four(seed: int) -> None:
    assert set(outcomes(made(EvalWorld(seed=seed))).values()) == {Outcome.PASS}


@pytest.mark.parametrize("check", CHECKS)
def test_no_evidence_is_never_a_pass(check: type[BaseCheck]) -> None:
    assert outcome_of(check, EvidenceSet(())) is Outcome.NOT_RUN


@pytest.mark.parametrize("check", CHECKS)
def test_no_finding_passes_once_a_record_that_it_rested_on_is_gone(check: type[BaseCheck]) -> None:
    passed = [f for f in findings_of(check, clean()).values() if f.outcome is Outcome.PASS]
    for gone in {name for finding in passed for name in finding.evidence}:
        left = findings_of(check, EvidenceSet(tuple(r for r in clean() if r.id != gone)))
        for finding in passed:
            if gone in finding.evidence:
                assert finding.subject not in left or left[finding.subject].outcome is not Outcome.PASS


@pytest.mark.parametrize("loss", [0.25, 0.4])
def test_a_broken_state_that_costs_many_points_fails_both(loss: float) -> None:
    found = outcomes(made(EvalWorld(loss=loss, num_rows=220)))
    assert (found["COR007"], found["COR008"]) == (Outcome.FAIL, Outcome.FAIL)


def test_ten_points_lost_on_twice_the_rows_fail_and_the_losers_are_named() -> None:
    finding = findings_of(Reasoning, made(EvalWorld(loss=0.1, samples=16)))["all problems"]
    assert finding.outcome is Outcome.FAIL
    assert finding.items and all(i.baseline > i.candidate for i in finding.items)


def test_a_point_lost_and_ten_points_gained_pass() -> None:
    for loss in (0.01, -0.1):
        found = outcomes(made(EvalWorld(loss=loss, samples=16)))
        assert (found["COR007"], found["COR008"]) == (Outcome.PASS, Outcome.PASS)


def test_more_noise_than_the_rows_can_bear_decides_nothing_and_says_how_many_would() -> None:
    finding = findings_of(LongContextRetrieval, made(EvalWorld(discordance=0.4, num_rows=90)))["all rows"]
    assert finding.outcome is Outcome.INCONCLUSIVE and "answers instead of 72" in finding.advice


def test_a_bin_that_is_clearly_worse_fails_by_itself_however_small() -> None:
    def broken_when_long(items: Items) -> Items:
        return [
            i.model_copy(update={"text": "nothing"}) if int(i.row[1:]) // 3 % 3 == 2 else i for i in items
        ]

    found = findings_of(LongContextRetrieval, with_items("mrcr", Arm.CANDIDATE, broken_when_long))
    assert found["rows of long"].outcome is Outcome.FAIL and "rows of short" not in found


def test_bins_with_enough_rows_gate() -> None:
    found = findings_of(LongContextRetrieval, made(EvalWorld(num_rows=405)))
    assert {f.outcome for f in found.values()} == {Outcome.PASS}
    assert set(found) == {"all rows", "rows of short", "rows of middle", "rows of long"}


@pytest.mark.parametrize("suite", SCORES)
def test_a_baseline_that_differs_from_itself_judges_nothing(suite: str) -> None:
    def scrambled(items: Items) -> Items:
        return [i.model_copy(update={"text": "none"}) for i in items]

    evidence = with_items(suite, Arm.BASELINE_AGAIN, scrambled)
    evidence = change_items(evidence, suite, Arm.CANDIDATE, scrambled)
    finding = next(iter(findings_of(SCORES[suite], evidence).values()))
    assert finding.outcome is Outcome.INCONCLUSIVE and "differs from itself" in finding.message


@pytest.mark.parametrize("suite", SCORES)
@pytest.mark.parametrize("is_right", [True, False])
def test_a_suite_that_everybody_solves_or_nobody_decides_nothing(suite: str, is_right: bool) -> None:
    rows = {r.row: r for e in clean().of(EvalSetEvidence) for r in e.rows}
    evidence = everywhere(
        suite,
        lambda items: [i.model_copy(update={"text": answer_of(suite, rows[i.row], is_right)}) for i in items],
    )
    finding = next(iter(findings_of(SCORES[suite], evidence).values()))
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert ("too easy" if is_right else "no room to fall") in finding.message


@pytest.mark.parametrize("suite", SCORES)
def test_answers_that_the_specialised_path_did_not_make_are_no_evidence(suite: str) -> None:
    evidence = made(EvalWorld(serves=never))
    finding = next(iter(findings_of(SCORES[suite], evidence).values()))
    assert finding.outcome is Outcome.INCONCLUSIVE and finding.message.startswith("0 of ")


@pytest.mark.parametrize("suite", SCORES)
def test_requests_that_the_candidate_fails_are_not_left_out_but_score_nothing(suite: str) -> None:
    def failed(items: Items) -> Items:
        return [
            i.model_copy(update={"error": "HTTP 500", "request_id": "none"}) if n % 3 == 0 else i
            for n, i in enumerate(items)
        ]

    assert outcome_of(SCORES[suite], with_items(suite, Arm.CANDIDATE, failed)) is Outcome.FAIL


def never(_item: str) -> bool:
    return False


def all_but_some(item: str) -> bool:
    return not item.startswith(("m1", "a1"))


@pytest.mark.parametrize("suite", SCORES)
def test_only_answers_that_the_specialised_path_made_count(suite: str) -> None:
    whole = next(iter(findings_of(SCORES[suite], clean()).values())).measurements
    part = next(iter(findings_of(SCORES[suite], made(EvalWorld(serves=all_but_some))).values())).measurements
    assert max(m.n for m in part if m.unit == "score") < max(m.n for m in whole if m.unit == "score")


@pytest.mark.parametrize("suite", SCORES)
def test_answers_copied_from_the_baseline_have_no_ledger_and_count_for_nothing(suite: str) -> None:
    (baseline,) = (r for r in clean().of(SuiteEvidence) if r.suite == suite and r.arm is Arm.BASELINE)
    evidence = with_items(suite, Arm.CANDIDATE, lambda _items: baseline.items)
    assert outcome_of(SCORES[suite], evidence) is Outcome.INCONCLUSIVE


def test_the_share_of_an_evaluation_is_judged_at_every_batch() -> None:
    evidence = made(EvalWorld(serves=lambda item: not item.endswith("@c8")))
    message = findings_of(SpecializedShare, evidence)["suite mrcr"].message
    assert "0 of" in message and "suite mrcr in steps of 8 requests" in message


def test_the_policy_may_ask_a_suite_for_another_share() -> None:
    evidence = made(EvalWorld(serves=all_but_some))
    lenient = POLICY.model_copy(update={"evals": EvalsPolicy(min_specialized_share={"mrcr": 0.5})})
    found = {f.subject: f.outcome for f in SpecializedShare().run(context_of(evidence, policy=lenient))}
    assert (found["suite mrcr"], found["suite aime"]) == (Outcome.PASS, Outcome.FAIL)


@pytest.mark.parametrize("suite", SCORES)
@pytest.mark.parametrize("num_left_out", [0, 500])
def test_a_suite_without_rows_decides_nothing(suite: str, num_left_out: int) -> None:
    evidence = with_rows(suite, lambda r: r.model_copy(update={"rows": (), "num_left_out": num_left_out}))
    for arm in Arm:
        evidence = change_items(evidence, suite, arm, lambda _items: ())
    assert outcome_of(SCORES[suite], evidence) is Outcome.INCONCLUSIVE
    assert outcome_of(ComparableAnswers, evidence) is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("suite", SCORES)
@pytest.mark.parametrize("arm", list(Arm))
def test_an_arm_with_half_the_rows_decides_nothing(suite: str, arm: Arm) -> None:
    evidence = with_items(suite, arm, lambda items: items[: len(items) // 2])
    assert outcome_of(SCORES[suite], evidence) is Outcome.INCONCLUSIVE
    assert findings_of(ComparableAnswers, evidence)[suite].outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("suite", SCORES)
def test_questions_that_nobody_was_asked_keep_the_suite_from_passing(suite: str) -> None:
    evidence = everywhere(suite, lambda items: [i for i in items if i.row not in ("m1", "a1")])
    assert outcome_of(SCORES[suite], evidence) is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("suite", SCORES)
def test_answers_to_the_rows_of_another_set_are_an_error(suite: str) -> None:
    other = with_rows(
        suite,
        lambda r: r.model_copy(
            update={"rows": tuple(row.model_copy(update={"row": f"other{row.row}"}) for row in r.rows)}
        ),
    )
    assert outcome_of(SCORES[suite], other) is Outcome.ERROR
    assert findings_of(ComparableAnswers, other)[suite].outcome is Outcome.ERROR


@pytest.mark.parametrize("suite", SCORES)
def test_rows_of_one_name_are_an_error(suite: str) -> None:
    evidence = with_rows(suite, lambda r: r.model_copy(update={"rows": (*r.rows, r.rows[0])}))
    assert outcome_of(SCORES[suite], evidence) is Outcome.ERROR


@pytest.mark.parametrize("suite", SCORES)
def test_the_same_sample_under_two_names_is_an_error(suite: str) -> None:
    def doubled(items: Items) -> Items:
        return [*items, items[0].model_copy(update={"item": "again", "request_id": "again"})]

    assert outcome_of(SCORES[suite], everywhere(suite, doubled)) is Outcome.ERROR


def test_rows_that_ask_the_same_thing_count_once() -> None:
    def all_alike(record: EvalSetEvidence) -> EvalSetEvidence:
        rows = tuple(
            r.model_copy(update={"messages": record.rows[i % 20].messages}) for i, r in enumerate(record.rows)
        )
        return record.model_copy(update={"rows": rows})

    finding = findings_of(LongContextRetrieval, with_rows("mrcr", all_alike))["all rows"]
    assert finding.outcome is Outcome.INCONCLUSIVE


def test_one_giant_conversation_decides_nothing() -> None:
    def one_document(record: EvalSetEvidence) -> EvalSetEvidence:
        rows = tuple(r.model_copy(update={"cluster": "book"}) for r in record.rows)
        return record.model_copy(update={"rows": rows})

    finding = findings_of(LongContextRetrieval, with_rows("mrcr", one_document))["all rows"]
    assert finding.outcome is Outcome.INCONCLUSIVE and finding.measurements[0].ci_low == -1


def test_samples_with_one_seed_count_once() -> None:
    def one_seed(items: Items) -> Items:
        return [i.model_copy(update={"seed": 1}) for i in items]

    evidence = change_items(everywhere("aime", one_seed), "aime_control", Arm.CANDIDATE, one_seed)
    finding = findings_of(Reasoning, evidence)["all problems"]
    assert finding.outcome is Outcome.INCONCLUSIVE and "is void" not in finding.message


@pytest.mark.parametrize("text", ["NaN", "nan", "", "1e400", "\x00"])
def test_answers_that_are_no_numbers_score_nothing_and_are_noticed(text: str) -> None:
    evidence = with_items("aime", Arm.CANDIDATE, each(text=text))
    assert outcome_of(Reasoning, evidence) is Outcome.FAIL
    assert findings_of(ComparableAnswers, evidence)["aime"].outcome is Outcome.FAIL


def looping(items: Items) -> Items:
    return [
        i.model_copy(update={"token_ids": (7, 8, 9) * 20}) if n % 4 == 0 else i for n, i in enumerate(items)
    ]


def cut(items: Items) -> Items:
    return [
        i.model_copy(update={"finish_reason": "length"}) if n % 4 == 0 else i for n, i in enumerate(items)
    ]


def refused(items: Items) -> Items:
    return [
        i.model_copy(update={"error": "HTTP 400", "text": ""}) if n % 4 == 0 else i
        for n, i in enumerate(items)
    ]


def shortened(items: Items) -> Items:
    return [i.model_copy(update={"num_prompt_tokens": 3}) if n % 4 == 0 else i for n, i in enumerate(items)]


@pytest.mark.parametrize("suite", SCORES)
@pytest.mark.parametrize("change", [looping, cut, refused, shortened])
def test_defects_of_the_candidate_alone_fail_and_of_the_baseline_alone_are_void(
    suite: str, change: Callable[[Items], Items]
) -> None:
    on_candidate = findings_of(ComparableAnswers, with_items(suite, Arm.CANDIDATE, change))[suite]
    on_baseline = findings_of(ComparableAnswers, with_items(suite, Arm.BASELINE, change))[suite]
    assert (on_candidate.outcome, on_baseline.outcome) == (Outcome.FAIL, Outcome.INCONCLUSIVE)


def test_defects_that_every_arm_has_are_no_difference() -> None:
    assert findings_of(ComparableAnswers, everywhere("aime", cut))["aime"].outcome is Outcome.PASS


def test_one_more_cut_answer_among_many_is_within_the_limit() -> None:
    def cut_first(items: Items) -> Items:
        return [items[0].model_copy(update={"finish_reason": "length"}), *items[1:]]

    assert outcome_of(ComparableAnswers, with_items("aime", Arm.CANDIDATE, cut_first)) is Outcome.PASS


def test_a_log_probability_that_is_not_finite_fails_unless_the_baseline_has_it() -> None:
    def sick(items: Items) -> Items:
        top = TokenLogprobs(token_ids=(), logprobs=(), num_not_finite=1)
        return [items[0].model_copy(update={"top_logprobs": (top,)}), *items[1:]]

    evidence = with_items("mrcr", Arm.CANDIDATE, sick)
    assert findings_of(ComparableAnswers, evidence)["mrcr"].outcome is Outcome.FAIL
    evidence = change_items(evidence, "mrcr", Arm.BASELINE, sick)
    assert findings_of(ComparableAnswers, evidence)["mrcr"].outcome is Outcome.INCONCLUSIVE


def voided(evidence: EvidenceSet, suite: str) -> bool:
    """Whether the control does not pass, and the suite's own check does not either and says why."""
    control = findings_of(NegativeControl, evidence)[suite]
    score = next(iter(findings_of(SCORES[suite], evidence).values()))
    return (
        not control.outcome.lets_through
        and score.outcome is Outcome.INCONCLUSIVE
        and "is void" in score.message
    )


@pytest.mark.parametrize("suite", SCORES)
@pytest.mark.parametrize(
    "update",
    [{"num_perturbed_calls": 0}, {"perturbation": ""}, {"num_perturbed_calls": 3}, {"items": ()}],
    ids=["no-calls", "no-noise", "fewer-calls-than-steps", "no-answers"],
)
def test_a_control_that_does_not_prove_its_noise_voids_the_suite(
    suite: str, update: dict[str, object]
) -> None:
    assert voided(with_control(suite, lambda r: r.model_copy(update=update)), suite)


@pytest.mark.parametrize("suite", SCORES)
def test_a_suite_without_a_control_is_void(suite: str) -> None:
    assert voided(without(clean(), SuiteEvidence, suite=f"{suite}_control"), suite)


def test_a_control_that_scores_as_well_voids_the_suite() -> None:
    assert voided(made(EvalWorld(control_loss=0.03)), "aime")


@pytest.mark.parametrize("suite", SCORES)
def test_a_result_that_reaches_no_answer_fails(suite: str) -> None:
    evidence = made(EvalWorld(num_rows=220))
    (candidate,) = (r for r in evidence.of(SuiteEvidence) if r.suite == suite and r.arm is Arm.CANDIDATE)
    answers = {i.item: i for i in candidate.items}

    def same_answers(record: SuiteEvidence) -> SuiteEvidence:
        if record.suite != f"{suite}_control":
            return record
        items = tuple(
            i.model_copy(update={"text": answers[i.item].text, "token_ids": answers[i.item].token_ids})
            for i in record.items
        )
        return record.model_copy(update={"items": items})

    finding = findings_of(NegativeControl, change_records(evidence, SuiteEvidence, same_answers))[suite]
    assert finding.outcome is Outcome.FAIL and "reaches no answer" in finding.message


def renamed(record: SuiteEvidence) -> SuiteEvidence:
    return record.model_copy(
        update={"items": tuple(i.model_copy(update={"item": f"x{i.item}"}) for i in record.items)}
    )


def reseeded(record: SuiteEvidence) -> SuiteEvidence:
    return record.model_copy(update={"items": tuple(i.model_copy(update={"seed": 99}) for i in record.items)})


def of_other_rows(record: SuiteEvidence) -> SuiteEvidence:
    return record.model_copy(update={"items": tuple(i.model_copy(update={"row": "z"}) for i in record.items)})


@pytest.mark.parametrize("suite", SCORES)
@pytest.mark.parametrize("change", [renamed, reseeded, of_other_rows])
def test_a_control_on_other_questions_is_an_error(
    suite: str, change: Callable[[SuiteEvidence], SuiteEvidence]
) -> None:
    evidence = with_control(suite, change)
    assert findings_of(NegativeControl, evidence)[suite].outcome is Outcome.ERROR
    assert voided(evidence, suite)


@pytest.mark.parametrize("suite", SCORES)
def test_a_control_made_of_the_suites_own_answers_is_an_error(suite: str) -> None:
    (candidate,) = (r for r in clean().of(SuiteEvidence) if r.suite == suite and r.arm is Arm.CANDIDATE)
    evidence = with_control(suite, lambda r: r.model_copy(update={"items": candidate.items}))
    assert findings_of(NegativeControl, evidence)[suite].outcome is Outcome.ERROR


@pytest.mark.parametrize("suite", SCORES)
def test_a_control_of_failed_requests_notices_nothing(suite: str) -> None:
    def failed(record: SuiteEvidence) -> SuiteEvidence:
        items = tuple(i.model_copy(update={"error": "HTTP 500", "text": ""}) for i in record.items)
        return record.model_copy(update={"items": items})

    assert voided(with_control(suite, failed), suite)


@pytest.mark.parametrize("suite", SCORES)
def test_a_control_that_the_ledger_does_not_know_notices_nothing(suite: str) -> None:
    def without_control_rows(record: LedgerEvidence) -> LedgerEvidence:
        rows = tuple(r for r in record.rows if "control" not in r.requests[0].request_id)
        return record.model_copy(update={"rows": rows})

    evidence = change_records(clean(), LedgerEvidence, without_control_rows)
    assert voided(evidence, suite)


def test_a_row_keeps_its_own_cluster_where_its_question_is_its_own() -> None:
    rows: tuple[EvalRow, ...] = next(r.rows for r in clean().of(EvalSetEvidence) if r.suite == "mrcr")
    assert len({r.row for r in rows}) == len({repr(r.messages) for r in rows})


def on_every_arm_and_the_control(suite: str, change: Callable[[Items], Items]) -> EvidenceSet:
    return change_items(everywhere(suite, change), f"{suite}_control", Arm.CANDIDATE, change)


@pytest.mark.parametrize(("suite", "temperature"), [("aime", 0.0), ("aime", 5.0), ("mrcr", 1.0)])
def test_answers_at_another_temperature_than_the_manifests_are_an_error(
    suite: str, temperature: float
) -> None:
    evidence = on_every_arm_and_the_control(suite, each(temperature=temperature))
    finding = next(iter(findings_of(SCORES[suite], evidence).values()))
    assert finding.outcome is Outcome.ERROR and "another temperature" in finding.message


def test_samples_that_no_seed_changes_count_once() -> None:
    def all_alike(items: Items) -> Items:
        first: dict[str, SuiteItem] = {}
        alike = [first.setdefault(i.row, i) for i in items]
        return [
            i.model_copy(update={"text": f.text, "token_ids": f.token_ids})
            for i, f in zip(items, alike, strict=True)
        ]

    finding = findings_of(Reasoning, on_every_arm_and_the_control("aime", all_alike))["all problems"]
    assert finding.outcome is Outcome.INCONCLUSIVE and "is void" not in finding.message


@pytest.mark.parametrize("suite", SCORES)
def test_lost_answers_that_change_places_so_that_the_baseline_loses_them_too_are_an_error(suite: str) -> None:
    evidence = made(EvalWorld(loss=0.25, num_rows=220))
    (baseline,) = (r for r in evidence.of(SuiteEvidence) if r.suite == suite and r.arm is Arm.BASELINE)
    texts = {i.item: i.text for i in baseline.items}

    def swapped(items: Items) -> Items:
        lost = [n for n, i in enumerate(items) if texts[i.item] != i.text]
        out = list(items)
        for here, there in zip(lost, lost[1:] + lost[:1], strict=True):
            out[here] = items[here].model_copy(
                update={"row": items[there].row, "sample": items[there].sample}
            )
        return out

    assert outcome_of(SCORES[suite], change_items(evidence, suite, Arm.CANDIDATE, swapped)) is Outcome.ERROR


@pytest.mark.parametrize("suite", SCORES)
@pytest.mark.parametrize("level", [1, 4])
def test_a_suite_that_was_asked_at_one_load_says_nothing_of_the_scopes_others(suite: str, level: int) -> None:
    evidence = on_every_arm_and_the_control(suite, each(concurrency=level))
    finding = next(iter(findings_of(SCORES[suite], evidence).values()))
    assert finding.outcome is Outcome.INCONCLUSIVE and "None of them was asked at" in finding.message


def test_conversations_of_the_shorter_half_of_the_context_say_nothing_of_the_longer() -> None:
    evidence = on_every_arm_and_the_control("mrcr", each(num_prompt_tokens=255))
    finding = findings_of(LongContextRetrieval, evidence)["all rows"]
    assert finding.outcome is Outcome.INCONCLUSIVE and "longer half" in finding.message
    evidence = on_every_arm_and_the_control("mrcr", each(num_prompt_tokens=256))
    assert findings_of(LongContextRetrieval, evidence)["all rows"].outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("suite", "update"),
    [
        ("aime", {"answer": "abc"}),
        ("aime", {"answer": "1000"}),
        ("aime", {"messages": ()}),
        ("mrcr", {"prefix": ""}),
        ("mrcr", {"prefix": "another"}),
        ("mrcr", {"answer": ""}),
        ("mrcr", {"messages": ()}),
    ],
)
def test_a_question_that_no_rule_can_grade_is_an_error_and_no_crash(
    suite: str, update: dict[str, object]
) -> None:
    def spoilt(record: EvalSetEvidence) -> EvalSetEvidence:
        return record.model_copy(
            update={"rows": (record.rows[0].model_copy(update=update), *record.rows[1:])}
        )

    evidence = with_rows(suite, spoilt)
    assert outcome_of(SCORES[suite], evidence) is Outcome.ERROR
    for check in (NegativeControl, ComparableAnswers):
        assert findings_of(check, evidence)[suite].outcome is Outcome.ERROR


def test_rows_of_another_data_set_than_the_manifests_are_an_error() -> None:
    manifest = MANIFEST.model_copy(update={"evals": EvalsSection(aime=AimeSection(path="data/aime25.jsonl"))})

    def found(evidence: EvidenceSet) -> Finding:
        (finding,) = Reasoning().run(context_of(evidence, manifest))
        return finding

    named = with_rows("aime", lambda r: r.model_copy(update={"source": "data/aime25.jsonl"}))
    assert found(named).outcome is Outcome.PASS
    assert found(clean()).outcome is Outcome.ERROR and "the manifest names" in found(clean()).message


@pytest.mark.parametrize("suite", SCORES)
@pytest.mark.parametrize("arm", list(Arm))
def test_an_arm_that_was_made_wrong_while_it_answered_is_no_arm(suite: str, arm: Arm) -> None:
    def spoilt(record: SuiteEvidence) -> SuiteEvidence:
        is_meant = record.suite == suite and record.arm is arm
        return record.model_copy(update={"perturbation": "noise"}) if is_meant else record

    evidence = change_records(clean(), SuiteEvidence, spoilt)
    assert outcome_of(SCORES[suite], evidence) is Outcome.ERROR
    assert findings_of(ComparableAnswers, evidence)[suite].outcome is Outcome.ERROR
    if arm is Arm.CANDIDATE:
        assert findings_of(NegativeControl, evidence)[suite].outcome is Outcome.ERROR


LESS = {
    "fewer tokens": {"finish_reason": "length", "token_ids": (1, 2), "num_completion_tokens": 2, "text": ""},
    "another load": {"concurrency": 3},
}


@pytest.mark.parametrize("suite", SCORES)
@pytest.mark.parametrize("less", LESS)
def test_a_control_that_was_asked_less_than_the_suite_notices_nothing(suite: str, less: str) -> None:
    evidence = change_items(clean(), f"{suite}_control", Arm.CANDIDATE, each(**LESS[less]))
    assert findings_of(NegativeControl, evidence)[suite].outcome is Outcome.ERROR
    assert voided(evidence, suite)


@pytest.mark.parametrize(("problems", "outcome"), [(49, Outcome.INCONCLUSIVE), (50, Outcome.PASS)])
def test_answers_too_few_to_tell_the_share_are_no_pass(problems: int, outcome: Outcome) -> None:
    evidence = made(EvalWorld(num_problems=problems, samples=1))
    assert findings_of(ComparableAnswers, evidence)["aime"].outcome is outcome
