"""Laws of joining: each tier whole from one bundle, replicates are choices and never a silent one, provenance kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bundles.contents import Bundle
from bundles.error import BundleError
from bundles.merge import list_choices, merged_records, require_one_question, supplied_tiers
from bundles.reader import read_bundle
from harness.model.evidence import (
    AnyEvidence,
    EnvironmentEvidence,
    GapEvidence,
    SourceEvidence,
    SuiteEvidence,
)
from harness.model.words import Arm, Tier
from tests.bundles.examples import changed_files, environment, plain_report, suite, write_bundle


def gap(tier: Tier, what: str, reason: str = "none here") -> GapEvidence:
    return GapEvidence(tier=tier, recorded_at="2026-11-02T10:00:00Z", what=what, broke=False, reason=reason)


def on(machine: str) -> EnvironmentEvidence:
    return environment().model_copy(update={"cpu": machine})


def answers(arm: Arm, num_wrong: int = 0) -> SuiteEvidence:
    """On no named machine, so that a bundle of any machine may hold them."""
    return suite(arm, num_wrong=num_wrong).model_copy(update={"hardware": ""})


NO_GPU = gap(Tier.GPU, "tier gpu")
NO_CPU = gap(Tier.CPU, "tier cpu")
GPU_WORK = gap(Tier.GPU, "suite greedy")
"""Stands for evidence of a GPU: something of the tier other than the note that the tier is missing."""


def bundle_of(place: Path, records: Sequence[AnyEvidence]) -> Bundle:
    write_bundle(place, records, plain_report)
    return read_bundle(place)


@pytest.fixture
def cpu(tmp_path: Path) -> Bundle:
    return bundle_of(tmp_path / "cpu", [on("AMD"), changed_files(), answers(Arm.BASELINE), NO_GPU])


@pytest.fixture
def gpu(tmp_path: Path) -> Bundle:
    later = changed_files().model_copy(update={"recorded_at": "2026-11-03T10:00:00Z"})
    return bundle_of(tmp_path / "gpu", [on("Xeon"), later, NO_CPU, GPU_WORK])


def test_the_note_that_a_tier_is_missing_does_not_supply_it(cpu: Bundle, gpu: Bundle) -> None:
    assert supplied_tiers(cpu) == {Tier.STATIC, Tier.CPU}
    assert supplied_tiers(gpu) == {Tier.STATIC, Tier.GPU}


@pytest.mark.parametrize("turned", [False, True])
def test_each_tier_comes_from_the_bundle_that_has_it_whatever_the_order(
    cpu: Bundle, gpu: Bundle, turned: bool
) -> None:
    bundles = [gpu, cpu] if turned else [cpu, gpu]
    (choice,) = list_choices(bundles)
    records = merged_records(bundles, choice, [[], []])
    assert {r.id for r in (answers(Arm.BASELINE), GPU_WORK)} <= {r.id for r in records}
    assert not {NO_GPU.id, NO_CPU.id} & {r.id for r in records}


def test_every_record_of_a_merged_bundle_names_the_bundle_and_the_machine_that_it_came_from(
    cpu: Bundle, gpu: Bundle
) -> None:
    records = merged_records([cpu, gpu], list_choices([cpu, gpu])[0], [["SHA256:a"], []])
    sources = [r for r in records if isinstance(r, SourceEvidence)]
    told = {i: s.content_sha256 for s in sources for i in s.evidence}
    assert told[answers(Arm.BASELINE).id] == cpu.content_sha256
    assert told[GPU_WORK.id] == gpu.content_sha256
    assert set(told) == {r.id for r in records} - {s.id for s in sources}
    assert [s.signers for s in sources] == [("SHA256:a",), ()]
    assert [r.cpu for r in records if isinstance(r, EnvironmentEvidence)] == ["AMD", "Xeon"]


def test_a_tier_that_two_bundles_have_is_a_choice_between_them(cpu: Bundle, tmp_path: Path) -> None:
    again = bundle_of(
        tmp_path / "again", [on("Xeon"), changed_files(), answers(Arm.BASELINE, num_wrong=1), NO_GPU]
    )
    assert [c[Tier.CPU] for c in list_choices([cpu, again])] == [0, 1]


def test_static_evidence_that_differs_is_a_choice_and_not_silently_the_first(
    cpu: Bundle, tmp_path: Path
) -> None:
    other = changed_files().model_copy(update={"num_not_judged": 3})
    forged = bundle_of(tmp_path / "forged", [on("Xeon"), other, NO_CPU, GPU_WORK])
    assert {c[Tier.STATIC] for c in list_choices([cpu, forged])} == {0, 1}


def test_of_static_evidence_the_bundle_that_says_more_stands_for_all(cpu: Bundle, tmp_path: Path) -> None:
    more: list[AnyEvidence] = [
        on("Xeon"),
        changed_files(),
        answers(Arm.BASELINE).model_copy(update={"tier": Tier.STATIC}),
    ]
    fuller = bundle_of(tmp_path / "fuller", [*more, NO_CPU, GPU_WORK])
    assert [c[Tier.STATIC] for c in list_choices([cpu, fuller])] == [1]


def test_a_bundle_that_tells_one_thing_twice_cannot_stand_for_another(tmp_path: Path) -> None:
    other = changed_files().model_copy(update={"num_not_judged": 3})
    with pytest.raises(BundleError) as caught:
        bundle_of(tmp_path / "forged", [on("Xeon"), changed_files(), other])
    assert caught.value.slug == "bundle-record-twice"


def test_too_many_replicates_are_an_error(cpu: Bundle) -> None:
    with pytest.raises(BundleError, match="more than 64 ways"):
        list_choices([cpu] * 65)


@pytest.mark.parametrize("field", ["head", "merge_base"])
def test_bundles_of_other_commits_do_not_join(cpu: Bundle, field: str) -> None:
    other = replace(cpu, change=cpu.change.model_copy(update={field: "0" * 40}))
    with pytest.raises(BundleError) as caught:
        require_one_question([cpu, other])
    assert caught.value.slug == "merge-other-question"


@pytest.mark.parametrize("field", ["manifest_text", "policy_text"])
def test_bundles_of_another_manifest_or_policy_do_not_join(cpu: Bundle, field: str) -> None:
    with pytest.raises(BundleError):
        require_one_question([cpu, replace(cpu, **{field: "x"})])  # type: ignore[arg-type]
