"""Outcomes of SCO002."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from harness.checks.scope.sco002_structured_output import StructuredOutput, find_fault
from harness.model.evaluation import SuiteItem
from harness.model.evidence import EvidenceSet
from harness.model.finding import Finding
from harness.model.manifest import Manifest
from harness.model.words import Arm, Outcome
from tests.harness.checks.evidence_builder import (
    MANIFEST,
    SCHEMA,
    World,
    build_evidence,
    change_items,
    context_of,
    small_evidence,
)

Change = Callable[[Sequence[SuiteItem]], Sequence[SuiteItem]]


def findings_of(evidence: EvidenceSet, manifest: Manifest = MANIFEST) -> dict[str, Finding]:
    return {f.subject: f for f in StructuredOutput().run(context_of(evidence, manifest))}


def with_candidate(change: Change) -> dict[str, Finding]:
    return findings_of(change_items(small_evidence(), "structured", Arm.CANDIDATE, change))


def on_all_arms(change: Change) -> dict[str, Finding]:
    evidence = small_evidence()
    for arm in Arm:
        evidence = change_items(evidence, "structured", arm, change)
    return findings_of(evidence)


def each(at: int = 4, **update: object) -> Change:
    """Every answer at one concurrency, replaced."""
    return lambda items: [i.model_copy(update=update) if i.concurrency == at else i for i in items]


def answer(text: str, finish_reason: str = "stop", schema: str = SCHEMA) -> SuiteItem:
    return SuiteItem(
        item="p0@c1",
        request_id="0r",
        concurrency=1,
        num_prompt_tokens=1,
        token_ids=(1,),
        text=text,
        finish_reason=finish_reason,
        num_completion_tokens=1,
        schema_text=schema,
    )


def test_a_grammar_that_is_dropped_under_load_fails_at_that_concurrency_alone() -> None:
    world = World(num_greedy=8, num_forced=4, num_sampling=1, drops_grammar=lambda level: level == 4)
    found = findings_of(build_evidence(world))
    assert (found["concurrency 1"].outcome, found["concurrency 4"].outcome) == (Outcome.PASS, Outcome.FAIL)
    assert "not JSON" in found["concurrency 4"].details[0]


def test_one_broken_answer_of_ten_fails() -> None:
    found = with_candidate(lambda items: [items[0].model_copy(update={"text": '{"n": "x"}'}), *items[1:]])
    assert found["concurrency 1"].outcome is Outcome.FAIL
    assert "breaks the schema at $.n" in found["concurrency 1"].details[0]


def test_refusals_under_load_fail_and_are_counted() -> None:
    found = with_candidate(each(error="HTTP 500: boom", text="", num_completion_tokens=0))
    assert (
        found["concurrency 4"].outcome is Outcome.FAIL
        and "10 are broken or refused" in found["concurrency 4"].message
    )


def test_a_fallback_gives_right_answers_and_fails() -> None:
    world = World(
        num_greedy=8, num_forced=4, num_sampling=1, falls_back=lambda suite, _b: suite == "structured"
    )
    assert {f.outcome for f in findings_of(build_evidence(world)).values()} == {Outcome.FAIL}


def test_answers_that_grow_until_they_are_cut_off_fail_when_there_are_enough() -> None:
    assert with_candidate(each(finish_reason="length"))["concurrency 4"].outcome is Outcome.FAIL


def test_a_single_answer_that_is_cut_off_is_inconclusive() -> None:
    def one(items: Sequence[SuiteItem]) -> Sequence[SuiteItem]:
        return [items[0].model_copy(update={"finish_reason": "length"}), *items[1:]]

    assert with_candidate(one)["concurrency 1"].outcome is Outcome.INCONCLUSIVE


def test_answers_that_shrink_under_load_without_an_error_fail() -> None:
    found = with_candidate(each(num_completion_tokens=4))
    assert (
        found["concurrency 4"].outcome is Outcome.FAIL
        and "Lengths change by" in found["concurrency 4"].message
    )


def test_requests_that_the_baseline_does_not_finish_either_do_not_count() -> None:
    found = on_all_arms(each(finish_reason="length"))
    assert found["concurrency 4"].outcome is Outcome.INCONCLUSIVE
    assert "of the 0 answers" in found["concurrency 4"].message


def test_a_baseline_that_breaks_the_schema_cannot_vouch_for_the_candidate() -> None:
    found = findings_of(change_items(small_evidence(), "structured", Arm.BASELINE, each(text="babble")))
    assert found["concurrency 4"].outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("schema", ["", "{", '{"type": 7}', "[]"])
def test_requests_without_a_usable_schema_are_an_error(schema: str) -> None:
    assert on_all_arms(each(schema_text=schema))["concurrency 4"].outcome is Outcome.ERROR


@pytest.mark.parametrize(("level", "word"), [(1, "together"), (4, "alone")])
def test_requests_at_one_concurrency_only_leave_the_other_unknown(level: int, word: str) -> None:
    found = on_all_arms(lambda items: [i for i in items if i.concurrency == level])
    assert found["concurrency"].outcome is Outcome.INCONCLUSIVE and word in found["concurrency"].message


def test_seven_answers_are_too_few() -> None:
    found = on_all_arms(lambda items: [i for i in items if not i.item.startswith(("p7", "p8", "p9"))])
    assert found["concurrency 1"].outcome is Outcome.INCONCLUSIVE


def test_a_suite_without_requests_is_inconclusive() -> None:
    assert {f.outcome for f in on_all_arms(lambda _items: []).values()} == {Outcome.INCONCLUSIVE}


def test_a_feature_that_the_manifest_does_not_claim_is_not_applicable() -> None:
    manifest = MANIFEST.model_copy(update={"features": ("full_context",)})
    assert [f.outcome for f in findings_of(small_evidence(), manifest).values()] == [Outcome.NOT_APPLICABLE]


@pytest.mark.parametrize(
    ("item", "fault"),
    [
        (answer('{"n": 3}'), ""),
        (answer(' {"n": 3}\n'), ""),
        (answer('{"n": NaN}'), "not JSON"),
        (answer('{"n": 3} trailing'), "not JSON"),
        (answer("[" * 100_000), "not JSON"),
        (answer('{"n": 3}', finish_reason="length"), "unfinished"),
        (answer('{"n": 3}', finish_reason="abort"), 'ended with "abort"'),
        (answer("{}"), "breaks the schema"),
    ],
)
def test_an_answer_is_sound_only_if_it_finished_and_obeys(item: SuiteItem, fault: str) -> None:
    assert find_fault(item).startswith(fault) and bool(find_fault(item)) == bool(fault)


def test_a_schema_that_refers_elsewhere_is_never_fetched() -> None:
    schema = json.dumps({"$ref": "http://127.0.0.1:9/schema.json"})
    assert "cannot be applied" in find_fault(answer("{}", schema=schema))
