"""Signing a finished bundle, and telling who signed one.

A signer's statements lie in the bundle, one DSSE envelope a line, in a file of the signer's own. Since they are a
function of the bundle, a signed payload is compared with what the bundle gives: there is nothing in it to believe.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bundles.contents import Bundle, parse_record
from bundles.dsse import Envelope, open_envelope, sign
from bundles.error import BundleError
from bundles.files import digest_bytes, write_atomic
from bundles.json_text import parse_json
from bundles.keyless import SUFFIX, read_keyless
from bundles.keys import PrivateKey, PublicKey
from bundles.layout import ATTESTATION_FOLDER, SHA256SUMS
from bundles.reader import load_folder, parse_folder
from bundles.signer import Signer
from bundles.statement import JUDGEMENT, build_statements
from harness.model.record import render_canonical_json
from harness.model.words import TrustLevel

_NUM_STATEMENTS = 2
MAX_SIGNATURES = 32
"""Files of signatures that are looked at: each costs time, and anybody can make any number of keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attestation:
    """One file of signatures on the bundle that it lies in."""

    path: str
    signer: Signer
    """The signature is this key's or this identity's; what that is worth, the reader must know."""
    claimed_trust: TrustLevel
    """What the signer says to be; an identity says nothing of the kind."""


def sign_bundle(folder: Path, key: PrivateKey, trust: TrustLevel) -> str:
    """Adds the key's statements to a sealed bundle and returns their path in it.

    Raises:
        BundleError: the bundle is not whole.
    """
    loaded = load_folder(folder)
    bundle = parse_folder(loaded)
    statements = build_statements(bundle, loaded.digests[SHA256SUMS].sha256, trust)
    path = attestation_path(key.public)
    write_atomic(folder / path, _render(sign(statement, key) for statement in statements))
    return path


def attestation_path(key: PublicKey) -> str:
    """Where a key's statements lie."""
    name = re.sub(r"[^A-Za-z0-9]", "-", key.fingerprint.removeprefix("SHA256:"))
    return f"{ATTESTATION_FOLDER}/key-{name}.intoto.jsonl"


def read_attestations(
    files: Mapping[str, bytes], bundle: Bundle, sums: bytes, sigstore_root: Path | None = None
) -> tuple[Attestation, ...]:
    """Every file of signatures, each checked against its key or identity and against the bundle.

    Args:
        files: Bytes by path of the files in the attestation folder.
        bundle: What the bundle's files say.
        sums: The bytes of its `sha256sums.txt`.
        sigstore_root: As in `bundles.keyless.read_keyless`.

    Raises:
        BundleError: a file is not what `sign_bundle` or `sign_keyless` writes, was altered, or speaks of another
            bundle.
    """
    if len(files) > MAX_SIGNATURES:
        message = f"{len(files)} files of signatures, more than {MAX_SIGNATURES}."
        raise BundleError("bundle-too-many-files", ATTESTATION_FOLDER, message, "Keep those that count.")
    return tuple(
        Attestation(
            path=path,
            signer=read_keyless(path, files[path], sums, sigstore_root),
            claimed_trust=TrustLevel.CONTRIBUTOR,
        )
        if path.endswith(SUFFIX)
        else _read_statements(path, files[path], bundle, sums)
        for path in sorted(files)
    )


def _read_statements(path: str, data: bytes, bundle: Bundle, sums: bytes) -> Attestation:
    lines = data.splitlines()
    envelopes = [parse_record(Envelope, line, path) for line in lines[:_NUM_STATEMENTS]]
    opened = [open_envelope(envelope, path) for envelope in envelopes]
    signers = {key for _, key in opened}
    if len(signers) != 1 or path != attestation_path(opened[0][1]):
        message = "it does not hold the statements of the one key that it is named for."
        raise BundleError("attestation-malformed", path, message)
    payloads = tuple(payload for payload, _ in opened)
    trust = _claimed_trust(payloads, path)
    if payloads != build_statements(bundle, digest_bytes(sums).sha256, trust):
        message = "its statements are not those of this bundle: it was signed for another one, or altered."
        raise BundleError("attestation-of-another-bundle", path, message)
    if data != _render(envelopes):
        raise BundleError("attestation-malformed", path, "it was not written by fasttrack.")
    return Attestation(path=path, signer=signers.pop(), claimed_trust=trust)


def _render(envelopes: Iterable[Envelope]) -> bytes:
    return b"".join(render_canonical_json(envelope) + b"\n" for envelope in envelopes)


def _claimed_trust(payloads: Iterable[bytes], path: str) -> TrustLevel:
    for payload in payloads:
        statement = parse_json(payload, path)
        if isinstance(statement, dict) and statement.get("predicateType") == JUDGEMENT:
            predicate = statement.get("predicate")
            claimed = predicate.get("trust") if isinstance(predicate, dict) else None
            if claimed in list(TrustLevel):
                return TrustLevel(claimed)
    message = "no statement of the kind that fasttrack signs is in it."
    raise BundleError("attestation-malformed", path, message)
