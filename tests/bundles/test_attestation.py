"""Laws of signed bundles: who signed is known by the key, and no byte of a signature can change unseen."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from datetime import date
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bundles.attestation import MAX_SIGNATURES, attestation_path, sign_bundle
from bundles.dsse import encode_for_signing, sign
from bundles.error import BundleError
from bundles.keys import (
    PrivateKey,
    PublicKey,
    make_private_key,
    parse_public_key,
    read_private_key,
    write_key_pair,
)
from bundles.layout import check_relative_path, is_attestation_path
from bundles.verify import VerifyResult, verify_bundle
from bundles.waiver import Waiver, read_waiver, sign_waiver
from harness.model.errors import ConfigurationError
from harness.model.words import TrustLevel
from tests.bundles.examples import (
    decide_example,
    evidence_to_reject,
    evidence_undecided,
    plain_report,
    write_bundle,
)
from tests.bundles.folders import copy_of, edit, rehash


@pytest.fixture(scope="module")
def key() -> PrivateKey:
    return make_private_key()


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory, key: PrivateKey) -> Path:
    folder = tmp_path_factory.mktemp("signed") / "b"
    write_bundle(folder, evidence_to_reject(), plain_report)
    sign_bundle(folder, key, TrustLevel.MAINTAINER)
    return folder


def verify(folder: Path) -> VerifyResult:
    return verify_bundle(folder, decide_example, plain_report)


def slugs(folder: Path) -> set[str]:
    return {difference.slug for difference in verify(folder).differences}


def test_a_signed_bundle_is_intact_and_names_its_signer(signed: Path, key: PrivateKey) -> None:
    result = verify(signed)
    assert result.intact
    assert [(a.signer, a.claimed_trust) for a in result.attestations] == [(key.public, TrustLevel.MAINTAINER)]


def test_an_unsigned_bundle_has_no_signer(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", evidence_to_reject(), plain_report)
    assert verify(tmp_path / "b").attestations == ()


def test_several_keys_sign_one_bundle_side_by_side(signed: Path, key: PrivateKey, tmp_path: Path) -> None:
    folder, other = copy_of(signed, tmp_path), make_private_key()
    sign_bundle(folder, other, TrustLevel.CONTRIBUTOR)
    assert {a.signer for a in verify(folder).attestations} == {key.public, other.public}


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_one_changed_byte_of_the_signed_statements_is_found(
    signed: Path, key: PrivateKey, data: st.DataObject
) -> None:
    file = signed / attestation_path(key.public)
    content = file.read_bytes()
    at = data.draw(st.integers(0, len(content) - 1))
    changed = bytearray(content)
    changed[at] ^= data.draw(st.integers(1, 255))
    try:
        file.write_bytes(changed)
        assert not verify(signed).intact
    finally:
        file.write_bytes(content)


@pytest.mark.parametrize("change", [b"", b"\n", b" ", b"{}\n"])
def test_what_is_written_behind_the_statements_is_found(
    signed: Path, key: PrivateKey, tmp_path: Path, change: bytes
) -> None:
    folder = copy_of(signed, tmp_path)
    file = folder / attestation_path(key.public)
    file.write_bytes(file.read_bytes() + change if change else b"")
    assert not verify(folder).intact


def test_more_signatures_than_anybody_needs_are_refused_unread(signed: Path, tmp_path: Path) -> None:
    folder = copy_of(signed, tmp_path / "b")
    for number in range(MAX_SIGNATURES):
        (folder / f"attestations/key-{number}.intoto.jsonl").write_bytes(b"")
    assert slugs(folder) == {"bundle-too-many-files"}


def test_a_waiver_says_of_which_commit_it_is_in_one_way(key: PrivateKey) -> None:
    waiver = Waiver(check="PERF002", head="a" * 40, reason="r", until=date(2026, 12, 1))
    envelope = json.loads(sign_waiver(waiver, key))
    payload = base64.b64decode(envelope["payload"]).replace(b'"gitCommit":"a', b'"gitCommit":"b')
    with pytest.raises(BundleError, match="says of its commit"):
        read_waiver(sign(payload, key).model_dump_json().encode(), "w")


def test_the_signature_of_another_bundle_counts_for_nothing(signed: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_bundle(other, evidence_undecided(), plain_report)
    shutil.copytree(signed / "attestations", other / "attestations")
    assert slugs(other) == {"attestation-of-another-bundle"}


def test_a_bundle_that_was_made_anew_around_edited_evidence_loses_its_signature(
    signed: Path, tmp_path: Path
) -> None:
    folder = copy_of(signed, tmp_path)
    edit(folder, "policy.toml", "2026-11", "2026-12")
    rehash(folder)
    assert "attestation-of-another-bundle" in slugs(folder)


def test_statements_under_the_name_of_another_key_are_refused(
    signed: Path, key: PrivateKey, tmp_path: Path
) -> None:
    folder = copy_of(signed, tmp_path)
    mine = folder / attestation_path(key.public)
    mine.rename(folder / attestation_path(make_private_key().public))
    assert slugs(folder) == {"attestation-malformed"}


def test_a_folder_that_signs_itself_with_any_file_name_is_refused(signed: Path, tmp_path: Path) -> None:
    folder = copy_of(signed, tmp_path)
    (folder / "attestations/notes.txt").write_text("trust me")
    assert "bundle-extra-file" in slugs(folder)


@given(st.binary(min_size=32, max_size=32))
def test_every_key_has_a_file_name_that_a_bundle_may_hold(raw: bytes) -> None:
    path = attestation_path(PublicKey(raw))
    assert is_attestation_path(check_relative_path(path))


def test_the_encoding_that_is_signed_is_that_of_the_specification() -> None:
    text = encode_for_signing("http://example.com/HelloWorld", b"hello world")
    assert text == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


@pytest.mark.parametrize("passphrase", ["", "correct horse"])
def test_a_written_key_reads_back_and_is_its_owners_alone(tmp_path: Path, passphrase: str) -> None:
    key, path = make_private_key(), tmp_path / "k"
    public = write_key_pair(path, key, passphrase)
    assert read_private_key(path, passphrase).public == key.public == parse_public_key(public.read_text())
    assert path.stat().st_mode & 0o077 == 0


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    write_key_pair(tmp_path / "k", make_private_key(), "")
    with pytest.raises(ConfigurationError, match="exists"):
        write_key_pair(tmp_path / "k", make_private_key(), "")


def test_a_wrong_passphrase_opens_nothing(tmp_path: Path) -> None:
    write_key_pair(tmp_path / "k", make_private_key(), "right")
    for wrong in ("", "wrong"):
        with pytest.raises(ConfigurationError, match="cannot be opened"):
            read_private_key(tmp_path / "k", wrong)


@pytest.mark.parametrize(
    "text",
    ["", "ssh-rsa AAAA", "ssh-ed25519", "ssh-ed25519 !!!!", "ssh-ed25519 AAAA", "ssh-ed25519 " + "A" * 68],
)
def test_a_line_that_is_no_ed25519_key_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="Not a public key"):
        parse_public_key(text)


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_ssh_keygen_reads_our_keys_and_we_read_its(tmp_path: Path) -> None:
    ours = make_private_key()
    public = write_key_pair(tmp_path / "ours", ours, "")
    shown = subprocess.run(["ssh-keygen", "-l", "-f", public], capture_output=True, text=True, check=True)
    assert ours.public.fingerprint in shown.stdout
    theirs = tmp_path / "theirs"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", theirs], check=True)
    assert read_private_key(theirs, "secret").public == parse_public_key(
        theirs.with_name("theirs.pub").read_text()
    )
