"""Signed envelopes: DSSE (Dead Simple Signing Envelope, protocol version 1) with Ed25519.

Source: the specification in github.com/secure-systems-lab/dsse, protocol.md and envelope.md.
"""

from __future__ import annotations

import base64
import binascii

from bundles.error import BundleError
from bundles.keys import PrivateKey, PublicKey, parse_public_key
from harness.model.errors import ConfigurationError
from harness.model.record import Record

PAYLOAD_TYPE = "application/vnd.in-toto+json"


class Signature(Record):
    """One signature of an envelope."""

    keyid: str
    """The public key, as `PublicKey.line` writes it."""
    sig: str
    """Base64."""


class Envelope(Record):
    """A payload, in base64, and signatures over its type and its bytes."""

    payloadType: str
    payload: str
    signatures: tuple[Signature, ...]


def encode_for_signing(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: type and payload, each after its length."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def sign(payload: bytes, key: PrivateKey) -> Envelope:
    """An envelope of an in-toto statement, signed by one key."""
    signature = key.sign(encode_for_signing(PAYLOAD_TYPE, payload))
    return Envelope(
        payloadType=PAYLOAD_TYPE,
        payload=base64.b64encode(payload).decode("ascii"),
        signatures=(Signature(keyid=key.public.line, sig=base64.b64encode(signature).decode("ascii")),),
    )


def open_envelope(envelope: Envelope, where: str) -> tuple[bytes, PublicKey]:
    """The payload, and the key that signed it. Whether that key means anything is the caller's to know.

    The `keyid` is the public key itself, so that a signature can be checked by anybody; the envelope has no other
    spelling with the same meaning.

    Raises:
        BundleError: not one signature, not the key's, another payload type, or text that is not canonical base64.
    """
    if envelope.payloadType != PAYLOAD_TYPE:
        message = f"an envelope of {envelope.payloadType!r}, not of {PAYLOAD_TYPE!r}."
        raise BundleError("attestation-malformed", where, message)
    if len(envelope.signatures) != 1:
        message = f"{len(envelope.signatures)} signatures in one envelope, expected 1."
        raise BundleError("attestation-malformed", where, message)
    payload = _decode(envelope.payload, where)
    try:
        key = parse_public_key(envelope.signatures[0].keyid)
    except ConfigurationError as error:
        raise BundleError("attestation-malformed", where, error.message) from error
    signature = _decode(envelope.signatures[0].sig, where)
    if key.line != envelope.signatures[0].keyid or not key.verifies(
        signature, encode_for_signing(PAYLOAD_TYPE, payload)
    ):
        raise BundleError("attestation-bad-signature", where, f"{key.fingerprint} did not sign this.")
    return payload, key


def _decode(text: str, where: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BundleError("attestation-malformed", where, f"not base64: {error}.") from error
    if base64.b64encode(data).decode("ascii") != text:
        raise BundleError("attestation-malformed", where, "not the one base64 spelling of its bytes.")
    return data
