"""Laws of what a bundle says of the commits: all records are of its change, and none contradicts another."""

from __future__ import annotations

from typing import get_args

import pytest

from bundles.error import BundleError
from bundles.readings import check_readings
from harness.model.evidence import (
    AnyEvidence,
    DefaultOffEvidence,
    EvidenceRecord,
    HooksEvidence,
    KernelSourcesEvidence,
    OwnTestsEvidence,
    PythonEffectsEvidence,
    SubjectEvidence,
    WaitSourceEvidence,
)
from harness.model.words import Tier
from tests.bundles.examples import CHANGE

OTHER = "1" * 40
AT = {"recorded_at": "2026-11-02T10:00:00Z"}
HEAD, BASE = CHANGE.head, CHANGE.merge_base


def effects(commit: str = HEAD, *, files: int = 0, tier: Tier = Tier.STATIC) -> PythonEffectsEvidence:
    searched = tuple(f"engine {n}" for n in range(files))
    return PythonEffectsEvidence(
        tier=tier, commit=commit, files=(), effects=(), searched=searched, searches=(), **AT
    )


def default_off(side: str, commit: str) -> DefaultOffEvidence:
    return DefaultOffEvidence(
        tier=Tier.CPU,
        side=side,  # type: ignore[arg-type]
        commit=commit,
        has_model=True,
        imported=(),
        files={},
        snapshots=(),
        **AT,
    )


def refusal_of(*records: AnyEvidence) -> str:
    with pytest.raises(BundleError) as caught:
        check_readings(records, CHANGE)
    return caught.value.slug


OF_HEAD_AND_BASE = [
    effects(),
    HooksEvidence(tier=Tier.STATIC, base=BASE, commit=HEAD, files=(), **AT),
    default_off("base", BASE),
    default_off("head", HEAD),
]


def test_records_of_the_heads_and_the_bases_commit_are_of_the_change() -> None:
    check_readings(OF_HEAD_AND_BASE, CHANGE)


@pytest.mark.parametrize(
    "record",
    [
        effects(OTHER),
        SubjectEvidence(tier=Tier.CPU, commit=OTHER, files={}, **AT),
        KernelSourcesEvidence(tier=Tier.STATIC, commit=OTHER, num_files=0, files=(), **AT),
        OwnTestsEvidence(tier=Tier.CPU, commit=OTHER, files=(), tests=(), modules=(), num_outside=0, **AT),
        HooksEvidence(tier=Tier.STATIC, base=OTHER, commit=HEAD, files=(), **AT),
        default_off("base", HEAD),
        default_off("head", BASE),
    ],
    ids=lambda record: record.kind,
)
def test_a_record_that_says_it_is_of_another_commit_is_refused(record: AnyEvidence) -> None:
    assert refusal_of(record) == "bundle-other-commit"


def test_no_kind_of_evidence_names_a_commit_under_another_word() -> None:
    kinds: tuple[type[EvidenceRecord], ...] = get_args(get_args(AnyEvidence)[0])
    names = {name for kind in kinds for name in kind.model_fields}
    assert {n for n in names if "commit" in n or "base" in n or "head" in n} == {"commit", "base"}


def test_two_records_that_say_different_things_of_the_same_commit_are_refused() -> None:
    assert refusal_of(effects(), effects(files=1)) == "bundle-record-twice"


def test_what_was_read_twice_and_came_out_the_same_is_no_contradiction() -> None:
    later = effects().model_copy(update={"recorded_at": "2026-11-02T11:00:00Z", "hardware": "other"})
    check_readings([effects(), later], CHANGE)


@pytest.mark.parametrize(
    "record", [effects(tier=Tier.CPU), WaitSourceEvidence(tier=Tier.GPU, num_files=0, statements=(), **AT)]
)
def test_what_follows_from_the_commits_is_of_no_tier_but_the_static_one(record: AnyEvidence) -> None:
    assert refusal_of(record) == "bundle-other-tier"
