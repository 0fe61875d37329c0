"""What the gate said of the evidence: waivers, and whose word each tier is. A bundle's own report has none of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reports.shown import Piece, Sentence, Shown, clip, pointer, visible

GATE_JSON = "gate.json"
"""Where the gate's document lies beside a report that shows it."""
REASON_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class WaiverRow:
    """One signed waiver."""

    check: Shown
    signer: Shown
    until: Shown
    reason: Shown
    refusal: Shown | None
    """Why it does not count; None where it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignerRow:
    """One signature that holds."""

    name: Shown | None
    """As the policy calls the signer; None where it does not know it."""
    fingerprint: Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleRow:
    """One bundle at the gate."""

    name: Shown
    tiers: tuple[Shown, ...]
    level: Shown
    signers: tuple[SignerRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TierRow:
    """What one tier's evidence is worth."""

    tier: Shown
    required: Shown
    reached: Shown
    is_enough: bool
    replicates_agree: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RulingView:
    """The gate's word."""

    verdict: Shown
    waivers: tuple[WaiverRow, ...]
    bundles: tuple[BundleRow, ...]
    tiers: tuple[TierRow, ...]

    @property
    def waived(self) -> frozenset[str]:
        """Ids of the checks in spite of which the gate lets through."""
        return frozenset(waiver.check.text for waiver in self.waivers if waiver.refusal is None)

    @property
    def additions(self) -> Sentence:
        """What the verdict rests on besides the outcomes of checks."""
        said: list[Piece] = []
        for waiver in self.waivers:
            if waiver.refusal is None:
                said += [waiver.check, " is waived by ", waiver.signer, " until ", waiver.until, ". "]
        for tier in self.tiers:
            if not tier.is_enough:
                said += ["The ", tier.tier, " tier has ", tier.reached, " evidence; "]
                said += [tier.required, " evidence is asked for. "]
        return tuple(said)


def view_ruling(document: Mapping[str, Any]) -> RulingView:
    """The gate's document (`fasttrack gate --format json`) as shown, each value with its place in `gate.json`."""

    def shown(*parts: str | int) -> Shown:
        value: Any = document
        for part in parts:
            value = value[part]
        return clip(Shown(text=visible(str(value)), ref=pointer(GATE_JSON, *parts)), REASON_CHARACTERS)

    return RulingView(
        verdict=shown("verdict"),
        waivers=tuple(
            WaiverRow(
                **{key: shown("waivers", i, key) for key in ("check", "signer", "until", "reason")},
                refusal=shown("waivers", i, "refusal") if waiver["refusal"] else None,
            )
            for i, waiver in enumerate(document["waivers"])
        ),
        bundles=tuple(
            BundleRow(
                name=shown("bundles", i, "name"),
                tiers=tuple(shown("bundles", i, "tiers", j) for j in range(len(bundle["tiers"]))),
                level=shown("bundles", i, "level"),
                signers=tuple(
                    SignerRow(
                        name=shown("bundles", i, "signers", j, "name") if signer["name"] else None,
                        fingerprint=shown("bundles", i, "signers", j, "fingerprint"),
                    )
                    for j, signer in enumerate(bundle["signers"])
                ),
            )
            for i, bundle in enumerate(document["bundles"])
        ),
        tiers=tuple(
            TierRow(
                **{key: shown("trust", i, key) for key in ("tier", "required", "reached")},
                is_enough=tier["is_enough"],
                replicates_agree=tier["replicates_agree"],
            )
            for i, tier in enumerate(document["trust"])
        ),
    )
