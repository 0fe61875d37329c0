"""A Sigstore instance of the tests' own: certificate authority, certificate log, signature log; keys are made here."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

ISSUER = "https://token.actions.githubusercontent.com"
IDENTITY = "https://github.com/o/r/.github/workflows/gpu.yml@refs/heads/main"
_SCT_LIST = ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_ISSUER_OID = ObjectIdentifier("1.3.6.1.4.1.57264.1.8")
_NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
_HOUR = timedelta(hours=1)
Key = ec.EllipticCurvePrivateKey


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def spki(key: Key) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.DER, form)


def log_id(key: Key) -> bytes:
    return hashlib.sha256(spki(key)).digest()


def new_key() -> Key:
    return ec.generate_private_key(ec.SECP256R1())


def signed(key: Key, data: bytes) -> bytes:
    return key.sign(data, ec.ECDSA(hashes.SHA256()))


@dataclass(frozen=True)
class Instance:
    """What an honest one does; `sign` gives what `sigstore sign` would."""

    authority: Key = field(default_factory=new_key)
    certificate_log: Key = field(default_factory=new_key)
    signature_log: Key = field(default_factory=new_key)

    def write_root(self, file: Path) -> Path:
        """Its `trusted_root.json`."""
        valid = {"start": "2026-01-01T00:00:00Z"}

        def log(key: Key) -> dict[str, Any]:
            public = {"rawBytes": b64(spki(key)), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": valid}
            identifier = {"keyId": b64(log_id(key))}
            return {
                "baseUrl": "https://log.invalid",
                "hashAlgorithm": "SHA2_256",
                "publicKey": public,
                "logId": identifier,
            }

        certificate = self._root().public_bytes(serialization.Encoding.DER)
        authority = {
            "subject": {"organization": "t", "commonName": "t"},
            "uri": "https://ca.invalid",
            "certChain": {"certificates": [{"rawBytes": b64(certificate)}]},
            "validFor": valid,
        }
        document = {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log(self.signature_log)],
            "certificateAuthorities": [authority],
            "ctlogs": [log(self.certificate_log)],
            "timestampAuthorities": [],
        }
        file.write_text(json.dumps(document))
        return file

    def sign(self, data: bytes, identity: str = IDENTITY, issuer: str = ISSUER) -> bytes:
        """The Sigstore bundle of a signature over `data`."""
        key = new_key()
        certificate = self._leaf(key, identity, issuer)
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        signature = signed(key, data)
        body = {
            "apiVersion": "0.0.1",
            "kind": "hashedrekord",
            "spec": {
                "data": {"hash": {"algorithm": "sha256", "value": hashlib.sha256(data).hexdigest()}},
                "signature": {"content": b64(signature), "publicKey": {"content": b64(pem)}},
            },
        }
        document = {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {
                "certificate": {"rawBytes": b64(certificate.public_bytes(serialization.Encoding.DER))},
                "tlogEntries": [self._entry(_canonical(body))],
            },
            "messageSignature": {
                "messageDigest": {"algorithm": "SHA2_256", "digest": b64(hashlib.sha256(data).digest())},
                "signature": b64(signature),
            },
        }
        return json.dumps(document).encode()

    def _entry(self, body: bytes) -> dict[str, Any]:
        """The one entry of a log of size one."""
        seconds = int(_NOW.timestamp()) + 60
        identifier = log_id(self.signature_log)
        root = hashlib.sha256(b"\0" + body).digest()
        promise = {"body": b64(body), "integratedTime": seconds, "logID": identifier.hex(), "logIndex": 0}
        note = f"log.invalid - 1\n1\n{b64(root)}\n"
        signature = b64(identifier[:4] + signed(self.signature_log, note.encode()))
        return {
            "logIndex": "0",
            "logId": {"keyId": b64(identifier)},
            "kindVersion": {"kind": "hashedrekord", "version": "0.0.1"},
            "integratedTime": str(seconds),
            "inclusionPromise": {
                "signedEntryTimestamp": b64(signed(self.signature_log, _canonical(promise)))
            },
            "inclusionProof": {
                "logIndex": "0",
                "rootHash": b64(root),
                "treeSize": "1",
                "hashes": [],
                "checkpoint": {"envelope": f"{note}\n— log.invalid {signature}\n"},
            },
            "canonicalizedBody": b64(body),
        }

    def _root(self) -> x509.Certificate:
        return (
            _builder(self.authority.public_key(), "root", days=3650)
            .serial_number(1)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(key_cert_sign=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self.authority.public_key()), critical=False
            )
            .sign(self.authority, hashes.SHA256())
        )

    def _leaf(self, key: Key, identity: str, issuer: str) -> x509.Certificate:
        """A certificate whose log's receipt is over itself without that receipt."""
        builder = (
            _builder(key.public_key(), "", days=0)
            .serial_number(7)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(_subject(identity), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.authority.public_key()),
                critical=False,
            )
            .add_extension(
                x509.UnrecognizedExtension(_ISSUER_OID, bytes([12, len(issuer)]) + issuer.encode()),
                critical=False,
            )
        )

        def finished(receipts: bytes) -> x509.Certificate:
            extension = x509.UnrecognizedExtension(_SCT_LIST, receipts)
            return builder.add_extension(extension, critical=False).sign(self.authority, hashes.SHA256())

        draft = finished(_receipts(log_id(self.certificate_log), 0, b"\0" * 70))
        tbs = draft.tbs_precertificate_bytes
        milliseconds = int(_NOW.timestamp() * 1000)
        entry = hashlib.sha256(spki(self.authority)).digest() + len(tbs).to_bytes(3, "big") + tbs
        over = struct.pack("!BBQH", 0, 0, milliseconds, 1) + entry + b"\0\0"
        return finished(
            _receipts(log_id(self.certificate_log), milliseconds, signed(self.certificate_log, over))
        )


def _canonical(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _builder(public: ec.EllipticCurvePublicKey, name: str, *, days: int) -> x509.CertificateBuilder:
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else []
    return (
        x509.CertificateBuilder()
        .public_key(public)
        .subject_name(x509.Name(subject))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "root")]))
        .not_valid_before(_NOW - timedelta(days=days))
        .not_valid_after(_NOW + timedelta(days=days) + _HOUR)
    )


def _subject(identity: str) -> x509.SubjectAlternativeName:
    kind = x509.UniformResourceIdentifier if "://" in identity else x509.RFC822Name
    return x509.SubjectAlternativeName([kind(identity)])


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _receipts(identifier: bytes, milliseconds: int, signature: bytes) -> bytes:
    """An SCT list of one (RFC 6962, section 3.3), in the octet string that its extension holds."""
    one = b"\0" + identifier + milliseconds.to_bytes(8, "big") + b"\0\0" + b"\4\3"
    one += len(signature).to_bytes(2, "big") + signature
    inner = len(one).to_bytes(2, "big") + one
    listed = len(inner).to_bytes(2, "big") + inner
    # DER: lengths from 128 on take a byte more.
    return bytes([4, len(listed)]) + listed if len(listed) < 128 else bytes([4, 0x81, len(listed)]) + listed
