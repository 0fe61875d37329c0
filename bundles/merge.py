"""Joining bundles of one change whose tiers were collected on different machines.

Every tier comes whole from one bundle: parts of two runs are never mixed within a tier, since the checks of a tier join
its records with each other. Where several bundles have a tier, they are replicates, and each is a choice. Static
evidence is a function of the commits: a bundle that says all that another says there stands for both.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from bundles.contents import Bundle
from bundles.error import BundleError
from bundles.readings import content_of
from harness.model.evidence import (
    AnyEvidence,
    EnvironmentEvidence,
    EvidenceRecord,
    GapEvidence,
    SourceEvidence,
)
from harness.model.words import Tier

MAX_CHOICES = 64
"""Ways to take each tier from one bundle that are looked at; more replicates than that serve nobody."""

_ABOUT_THE_RUN = (EnvironmentEvidence, GapEvidence, SourceEvidence)

Choice = Mapping[Tier, int]
"""By tier: the index of the bundle that supplies it."""


def supplied_tiers(bundle: Bundle) -> frozenset[Tier]:
    """The tiers of which the bundle holds more than the note that they are missing."""
    return frozenset(
        {r.tier for r in bundle.records} - {r.tier for r in bundle.records if is_missing_tier(r)}
    )


def is_missing_tier(record: AnyEvidence) -> bool:
    """Whether a record is the note that its whole tier was not collected."""
    return isinstance(record, GapEvidence) and record.what == f"tier {record.tier}"


def list_choices(
    bundles: Sequence[Bundle], *, known: tuple[type[EvidenceRecord], ...] = ()
) -> tuple[Choice, ...]:
    """Every way to take each supplied tier from one bundle; more than one where a tier was collected several times.

    Args:
        bundles: of one question.
        known: kinds of static evidence that are known without the bundles, so that no choice is made for them.

    Raises:
        BundleError: too many ways.
    """
    suppliers: dict[Tier, list[int]] = {Tier.STATIC: _static_suppliers(bundles, known)}
    for tier in [tier for tier in Tier if tier is not Tier.STATIC]:
        found = [index for index, bundle in enumerate(bundles) if tier in supplied_tiers(bundle)]
        if found:
            suppliers[tier] = found
    choices = list(itertools.islice(itertools.product(*suppliers.values()), MAX_CHOICES + 1))
    if len(choices) > MAX_CHOICES:
        raise BundleError("merge-too-many", "", f"more than {MAX_CHOICES} ways to combine the bundles.")
    return tuple(dict(zip(suppliers, choice, strict=True)) for choice in choices)


def _static_suppliers(bundles: Sequence[Bundle], known: tuple[type[EvidenceRecord], ...]) -> list[int]:
    """The bundles whose static evidence says something that no other's says; of equal ones the first.

    One that holds all of another's records speaks further only of what the other has no record of: no bundle that
    can be read tells one thing twice (`bundles.readings`).
    """
    said = [_static_content(bundle, known) for bundle in bundles]
    return [
        index
        for index, mine in enumerate(said)
        if not any(mine < other or (mine == other and i < index) for i, other in enumerate(said))
    ]


def _static_content(bundle: Bundle, known: tuple[type[EvidenceRecord], ...]) -> frozenset[str]:
    """Digests of what was found, whenever and wherever; what was not looked at says nothing."""
    return frozenset(
        content_of(record)
        for record in bundle.records
        if record.tier is Tier.STATIC and not isinstance(record, (*_ABOUT_THE_RUN, *known))
    )


def require_one_question(bundles: Sequence[Bundle]) -> None:
    """Nothing, when all bundles answer the same question.

    Raises:
        BundleError: they speak of other commits, another manifest or policy, or were made by another fasttrack.
    """
    for bundle in bundles[1:]:
        if differing := other_terms(bundles[0], bundle):
            message = f"the bundles differ in: {', '.join(differing)}."
            advice = "Only bundles of the same commits, manifest and policy can be joined."
            raise BundleError("merge-other-question", "", message, advice)


def other_terms(one: Bundle, other: Bundle) -> list[str]:
    """What two bundles were not asked alike, in words; empty where both answer the same question."""
    return [
        what
        for what, left, right in (
            ("head", one.change.head, other.change.head),
            ("merge base", one.change.merge_base, other.change.merge_base),
            ("--paths", one.change.limited_to, other.change.limited_to),
            ("manifest", one.manifest_text, other.manifest_text),
            ("policy", one.policy_text, other.policy_text),
            ("version of fasttrack", one.judgement.harness_version, other.judgement.harness_version),
        )
        if left != right
    ]


def merged_records(
    bundles: Sequence[Bundle], choice: Choice, signers: Sequence[Sequence[str]]
) -> tuple[AnyEvidence, ...]:
    """The evidence of one choice, and for each bundle a record of what came from it.

    Args:
        bundles: Bundles of one question, at least one.
        choice: Which of them supplies each tier.
        signers: For each bundle the fingerprints of the keys that signed it.
    """
    records: list[AnyEvidence] = []
    for index, bundle in enumerate(bundles):
        # A copy has the id of its content as it is written now; an older version may have written it otherwise.
        taken = tuple(r.model_copy() for r in bundle.records if _is_taken(r, index, choice))
        if not taken:
            continue
        records += taken
        records.append(
            SourceEvidence(
                tier=Tier.STATIC,
                recorded_at=max(r.recorded_at for r in taken),
                content_sha256=bundle.content_sha256,
                signers=tuple(signers[index]),
                evidence=tuple(r.id for r in taken),
            )
        )
    return tuple({record.id: record for record in records}.values())


def _is_taken(record: AnyEvidence, index: int, choice: Choice) -> bool:
    if isinstance(record, EnvironmentEvidence):
        return index in choice.values()
    if isinstance(record, SourceEvidence):
        return False
    return choice.get(record.tier, choice[Tier.STATIC]) == index
