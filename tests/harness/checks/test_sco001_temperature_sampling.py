"""Outcomes of SCO001."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from harness.checks.scope.sco001_temperature_sampling import TemperatureSampling
from harness.model.evaluation import SuiteItem
from harness.model.evidence import EvidenceSet
from harness.model.finding import Finding
from harness.model.manifest import Manifest
from harness.model.words import Arm, Outcome
from tests.harness.checks.evidence_builder import (
    MANIFEST,
    World,
    build_evidence,
    change_items,
    clean_evidence,
    context_of,
)

Change = Callable[[Sequence[SuiteItem]], Sequence[SuiteItem]]
SERVED = "served by the specialised path"


def findings_of(evidence: EvidenceSet, manifest: Manifest = MANIFEST) -> dict[str, Finding]:
    return {f.subject: f for f in TemperatureSampling().run(context_of(evidence, manifest))}


def faulty(**fault: object) -> dict[str, Finding]:
    return findings_of(build_evidence(World(num_greedy=8, num_forced=4, **fault)))  # type: ignore[arg-type]


def failed(found: dict[str, Finding]) -> set[str]:
    return {subject for subject, finding in found.items() if finding.outcome is Outcome.FAIL}


def on_all_arms(change: Change) -> dict[str, Finding]:
    evidence = clean_evidence()
    for arm in Arm:
        evidence = change_items(evidence, "sampling", arm, change)
    return findings_of(evidence)


def test_a_candidate_that_ignores_the_temperature_fails_at_both_and_for_its_seeds() -> None:
    found = faulty(temperature_of=lambda _asked: 0.0)
    assert failed(found) == {"temperature 0.3", "temperature 1", "other seeds"}
    assert found["same seed again"].outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("applied", "subject"), [((1.0, 0.3), "temperature 1"), ((0.3, 1.0), "temperature 0.3")]
)
def test_a_wrong_temperature_fails_where_it_is_applied_though_seeds_and_repeats_work(
    applied: tuple[float, float], subject: str
) -> None:
    asked, used = applied
    found = faulty(temperature_of=lambda t: used if t == asked else t)
    assert subject in failed(found)
    assert found["same seed again"].outcome is Outcome.PASS


def test_a_slightly_wrong_temperature_fails_too() -> None:
    assert "temperature 1" in failed(faulty(temperature_of=lambda t: 0.8 * t))


def test_a_candidate_that_ignores_the_seed_fails_its_repeats() -> None:
    assert {"same seed again", "temperature 1"} <= failed(faulty(ignores_seed=True))


def test_a_fallback_gives_right_answers_and_fails() -> None:
    assert failed(faulty(falls_back=lambda suite, _batch: suite == "sampling")) == {SERVED}


def test_a_candidate_of_which_most_draws_differ_a_little_later_still_fails() -> None:
    def late(items: Sequence[SuiteItem]) -> Sequence[SuiteItem]:
        return [i.model_copy(update={"token_ids": (*i.token_ids[:-1], 99)}) for i in items]

    found = findings_of(change_items(clean_evidence(), "sampling", Arm.CANDIDATE, late))
    assert (
        "temperature 1" in failed(found)
        and "differs from the baseline at token 3" in found["temperature 1"].details[0]
    )


def test_draws_that_no_temperature_changes_cannot_show_that_it_is_obeyed() -> None:
    def same(items: Sequence[SuiteItem]) -> Sequence[SuiteItem]:
        cold = {i.item.replace("/t0.3/", "/"): i for i in items if i.temperature == 0.3}
        return [
            i.model_copy(
                update={"token_ids": cold[i.item.replace("/t1.0/", "/").replace("/t0.3/", "/")].token_ids}
            )
            for i in items
        ]

    assert on_all_arms(same)["temperature 1"].outcome is Outcome.INCONCLUSIVE


def test_a_model_that_says_the_same_whatever_the_seed_cannot_show_that_seeds_matter() -> None:
    def fixed(items: Sequence[SuiteItem]) -> Sequence[SuiteItem]:
        return [i.model_copy(update={"token_ids": (1, 2, 3, 4)}) for i in items]

    assert on_all_arms(fixed)["other seeds"].outcome is Outcome.INCONCLUSIVE


def test_too_few_draws_are_inconclusive_and_the_finding_says_how_many_are_needed() -> None:
    found = findings_of(build_evidence(World(num_greedy=8, num_forced=4, num_sampling=6)))
    assert found["temperature 1"].outcome is Outcome.INCONCLUSIVE and "52" in found["temperature 1"].advice


def test_one_temperature_alone_is_inconclusive() -> None:
    found = on_all_arms(lambda items: [i for i in items if i.temperature == 1.0])
    assert found["temperatures"].outcome is Outcome.INCONCLUSIVE


def test_draws_that_were_all_alone_show_nothing_of_their_neighbours_seeds() -> None:
    found = on_all_arms(lambda items: [i.model_copy(update={"concurrency": 1}) for i in items])
    assert found["several at once"].outcome is Outcome.INCONCLUSIVE


def test_without_repeats_nothing_is_known_of_them() -> None:
    found = on_all_arms(lambda items: [i for i in items if i.item.endswith("r0")])
    assert found["same seed again"].outcome is Outcome.INCONCLUSIVE


def test_greedy_requests_under_the_suites_name_are_no_draws() -> None:
    found = on_all_arms(lambda items: [i.model_copy(update={"temperature": 0.0}) for i in items])
    assert Outcome.INCONCLUSIVE in {f.outcome for f in found.values()}
    assert not any(subject.startswith("temperature ") for subject in found)


def test_refused_requests_fail() -> None:
    def refused(items: Sequence[SuiteItem]) -> Sequence[SuiteItem]:
        return [i.model_copy(update={"error": "HTTP 500", "token_ids": ()}) for i in items]

    found = findings_of(change_items(clean_evidence(), "sampling", Arm.CANDIDATE, refused))
    assert {"temperature 1", "same seed again"} <= failed(found)


def test_a_feature_that_the_manifest_does_not_claim_is_not_applicable() -> None:
    manifest = MANIFEST.model_copy(update={"features": ("full_context",)})
    assert [f.outcome for f in findings_of(clean_evidence(), manifest).values()] == [Outcome.NOT_APPLICABLE]
