"""A keyless signature counts for the bundle, the identity and the issuer that it was made for, and for nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bundles.error import BundleError
from bundles.keyless import keyless_path, read_keyless
from bundles.signer import SigstoreIdentity

pytest.importorskip("sigstore")
from tests.bundles.sigstore_instance import IDENTITY, ISSUER, Instance

REFUSALS = ("attestation-bad-signature", "attestation-malformed")
SUMS = b"0" * 64 + b"  change.json\n"


@pytest.fixture(scope="module")
def instance() -> Instance:
    return Instance()


@pytest.fixture(scope="module")
def root(instance: Instance, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return instance.write_root(tmp_path_factory.mktemp("sigstore") / "trusted_root.json")


@pytest.fixture(scope="module")
def signature(instance: Instance) -> bytes:
    return instance.sign(SUMS)


def read(data: bytes, root: Path, sums: bytes = SUMS) -> SigstoreIdentity:
    return read_keyless(keyless_path(data), data, sums, root)


def slug_of(data: bytes, root: Path, sums: bytes = SUMS) -> str:
    with pytest.raises(BundleError) as caught:
        read(data, root, sums)
    return caught.value.slug


@pytest.mark.parametrize("identity", [IDENTITY, "somebody@example.org"])
def test_a_signature_that_holds_says_who_made_it(instance: Instance, root: Path, identity: str) -> None:
    found = read(instance.sign(SUMS, identity), root)
    assert found == SigstoreIdentity(identity=identity, issuer=ISSUER)


def test_a_signature_of_another_bundle_holds_for_none(signature: bytes, root: Path) -> None:
    assert slug_of(signature, root, SUMS.replace(b"0", b"1", 1)) == "attestation-bad-signature"


def test_a_signature_of_another_instance_does_not_hold(root: Path) -> None:
    assert slug_of(Instance().sign(SUMS), root) == "attestation-bad-signature"


def test_a_file_under_another_name_than_its_digests_is_refused(signature: bytes, root: Path) -> None:
    with pytest.raises(BundleError, match="not the file that it is named for"):
        read_keyless(keyless_path(b"other"), signature, SUMS, root)


def _entry(document: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = document["verificationMaterial"]["tlogEntries"][0]
    return entry


def _with(document: dict[str, Any], place: str, value: object) -> None:
    """Puts a value at a place of the document, or takes what is there out."""
    holder, _, key = place.rpartition("/")
    for part in holder.split("/") if holder else ():
        document = document[int(part) if part.isdigit() else part]  # type: ignore[call-overload]
    if value is ABSENT:
        del document[key]
    else:
        document[key] = value


ABSENT = object()
ENTRY = "verificationMaterial/tlogEntries/0"


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("mediaType", "application/json"),
        ("messageSignature", ABSENT),
        ("messageSignature/signature", "AAAA"),
        ("verificationMaterial/certificate", ABSENT),
        ("verificationMaterial/certificate/rawBytes", "AAAA"),
        ("verificationMaterial/tlogEntries", []),
        (f"{ENTRY}/integratedTime", "1700000000"),
        (f"{ENTRY}/inclusionProof", ABSENT),
        (f"{ENTRY}/inclusionPromise", ABSENT),
        (f"{ENTRY}/inclusionProof/rootHash", "A" * 43 + "="),
        (f"{ENTRY}/logId/keyId", "AAAA"),
    ],
)
def test_a_tampered_signature_is_refused(signature: bytes, root: Path, place: str, value: object) -> None:
    document = json.loads(signature)
    _with(document, place, value)
    assert slug_of(json.dumps(document).encode(), root) in REFUSALS


@pytest.mark.parametrize(
    "part", ["messageSignature", "verificationMaterial/certificate", "verificationMaterial/tlogEntries"]
)
def test_no_part_of_somebody_elses_signature_fits(
    instance: Instance, signature: bytes, root: Path, part: str
) -> None:
    document, other = json.loads(signature), json.loads(instance.sign(SUMS, "https://evil.example/w"))
    for key in part.split("/"):
        other = other[key]
    _with(document, part, other)
    assert slug_of(json.dumps(document).encode(), root) in REFUSALS


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b'{"a": 1, "a": 2}', b"\xff", b"{" * 5000])
def test_what_is_no_sigstore_bundle_is_refused(root: Path, data: bytes) -> None:
    assert slug_of(data, root) in (*REFUSALS, "evidence-malformed-json", "evidence-not-utf8")


def test_a_signature_that_cannot_be_checked_is_not_passed_over(
    signature: bytes, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sigstore.errors", None)
    assert slug_of(signature, root) == "attestation-unchecked"
