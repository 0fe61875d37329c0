"""Waivers: a signed word that one check need not hold for one commit, until a day.

A waiver changes no outcome. The gate lets the change through in spite of what the check says, and shows both.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal

from pydantic import Field, ValidationError

from bundles.contents import parse_record
from bundles.dsse import Envelope, open_envelope, sign
from bundles.error import BundleError
from bundles.json_text import parse_json
from bundles.keys import PrivateKey, PublicKey, parse_public_key
from bundles.statement import STATEMENT_TYPE
from harness.model.policy import TrustPolicy
from harness.model.record import Record, render_canonical_json

PREDICATE = "urn:fasttrack:waiver:v1"
"""Described in docs/bundles.md."""


class Waiver(Record):
    """What is waived, for which commit, why and how long."""

    schema_version: Literal[1] = 1
    check: str
    head: str = Field(pattern="^[0-9a-f]{40}$")
    """The one commit that it holds for."""
    reason: str = Field(min_length=1)
    until: date
    """The last day on which it holds, UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuledWaiver:
    """A waiver, who signed it, and whether it counts."""

    waiver: Waiver
    signer: str
    """The holder's name as the policy has it, or the key's fingerprint."""
    refusal: str
    """Why it does not count; empty when it does."""


def sign_waiver(waiver: Waiver, key: PrivateKey) -> bytes:
    """The waiver's file: a DSSE envelope around an in-toto statement about the commit."""
    return render_canonical_json(sign(_statement(waiver), key)) + b"\n"


def _statement(waiver: Waiver) -> bytes:
    return render_canonical_json(
        {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": "head", "digest": {"gitCommit": waiver.head}}],
            "predicateType": PREDICATE,
            "predicate": waiver.model_dump(mode="json"),
        }
    )


def read_waiver(data: bytes, where: str) -> tuple[Waiver, PublicKey]:
    """The waiver of a file, and the key that signed it.

    Raises:
        BundleError: not what `sign_waiver` writes, or the signature is not the key's.
    """
    payload, key = open_envelope(parse_record(Envelope, data, where), where)
    statement = parse_json(payload, where)
    if not isinstance(statement, dict) or statement.get("predicateType") != PREDICATE:
        raise BundleError("waiver-malformed", where, "it is signed, and is no waiver.")
    try:
        waiver = Waiver.model_validate(statement.get("predicate"))
    except ValidationError as error:
        raise BundleError("waiver-malformed", where, f"{error.error_count()} fields are wrong.") from error
    if payload != _statement(waiver):
        raise BundleError("waiver-malformed", where, "it says of its commit what its predicate does not.")
    return waiver, key


def rule_waivers(
    waivers: Sequence[tuple[Waiver, PublicKey]],
    trust: TrustPolicy,
    *,
    head: str,
    today: date,
    open_checks: Collection[str],
) -> tuple[RuledWaiver, ...]:
    """Which of the waivers count.

    Args:
        waivers: With the keys whose signatures hold.
        trust: Who may waive what, and for how long.
        head: The commit at the gate.
        today: UTC.
        open_checks: Ids of the required checks that do not let the change through.
    """
    holders = {parse_public_key(key.public_key): key for key in trust.keys}

    def refusal(waiver: Waiver, key: PublicKey) -> str:
        holder = holders.get(key)
        if holder is None:
            return "the policy does not know the key"
        if waiver.check not in holder.may_waive:
            return f"{holder.name} may not waive {waiver.check}"
        if waiver.head != head:
            return f"it was given for {waiver.head[:12]}"
        if waiver.until < today:
            return f"it ended on {waiver.until}"
        if waiver.until > today + timedelta(days=trust.max_waiver_days):
            return f"it ends more than {trust.max_waiver_days} days ahead"
        if waiver.check not in open_checks:
            return f"{waiver.check} is not required, or holds without it"
        return ""

    return tuple(
        RuledWaiver(
            waiver=waiver,
            signer=holders[key].name if key in holders else key.fingerprint,
            refusal=refusal(waiver, key),
        )
        for waiver, key in waivers
    )
