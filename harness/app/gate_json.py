"""The gate's answer as one JSON document: verdict, whose word each bundle is, what it is worth, waivers, findings."""

from __future__ import annotations

import json
from typing import Any

from bundles.signer import Signer
from harness.app.ruling import Ruling
from harness.app.trust import Holder, Part, TierTrust, known_holders, level_of
from harness.model.judgement import policy_digest
from harness.model.policy import TrustPolicy

Json = dict[str, Any]


def render_gate_json(ruling: Ruling) -> str:
    """The document of `fasttrack gate --format json`, described in docs/bundles.md."""
    return json.dumps(gate_document(ruling), indent=2, allow_nan=False)


def gate_document(ruling: Ruling) -> Json:
    """What the gate says, as plain values."""
    change, policy = ruling.terms.change, ruling.terms.policy
    return {
        "schema_version": 1,
        "verdict": str(ruling.verdict),
        "exit_code": int(ruling.code),
        "reason": " ".join([ruling.about, *ruling.lines]),
        "change": {"merge_base": change.merge_base, "head": change.head},
        "policy": {"version": policy.version, "sha256": policy_digest(policy)},
        "bundles": [_bundle(part, policy.trust) for part in ruling.parts],
        "refused": list(ruling.refused),
        "trust": [_tier(tier) for tier in ruling.trust],
        "waivers": [
            {**r.waiver.model_dump(mode="json"), "signer": r.signer, "refusal": r.refusal}
            for r in ruling.waivers
        ],
        "findings": [finding.model_dump(mode="json") for finding in ruling.findings],
    }


def _bundle(part: Part, trust: TrustPolicy) -> Json:
    holders = known_holders(trust)
    return {
        "name": part.name,
        "content_sha256": part.bundle.content_sha256,
        "tiers": [str(tier) for tier in part.tiers],
        "level": str(level_of(part, trust)),
        "signers": [_signer(signer, holders.get(signer)) for signer in part.signers],
    }


def _signer(signer: Signer, holder: Holder | None) -> Json:
    return {
        "fingerprint": signer.fingerprint,
        "name": holder.name if holder else None,
        "level": str(holder.level) if holder else None,
    }


def _tier(ruled: TierTrust) -> Json:
    return {
        "tier": str(ruled.tier),
        "required": str(ruled.required),
        "reached": str(ruled.reached),
        "is_enough": ruled.is_enough,
        "bundles": [part.name for part in ruled.suppliers],
        "replicates_agree": ruled.agree,
    }
