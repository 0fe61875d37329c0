"""Every fault of a bundle has a word of its own, and none leaves it intact: folders, archives, lists, JSON."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bundles import files
from bundles.archive import opened
from bundles.attestation import sign_bundle
from bundles.files import digest_file, list_files
from bundles.json_text import render_evidence_json
from bundles.keys import make_private_key
from bundles.layout import MANIFEST_JSON, SHA256SUMS, evidence_path
from bundles.verify import verify_bundle
from harness.model.errors import FasttrackError
from harness.model.words import TrustLevel
from tests.bundles.examples import decide_example, environment, plain_report
from tests.bundles.folders import edit, first_evidence, rehash

KEY = make_private_key()


def first_slug(bundle: Path) -> str:
    """The slug of what is found first; empty when the bundle is intact."""
    try:
        with opened(bundle) as folder:
            result = verify_bundle(folder, decide_example, plain_report)
    except FasttrackError as error:
        return error.slug
    return "" if result.intact else result.differences[0].slug


def add_empty_folder(folder: Path) -> None:
    (folder / "raw" / "empty").mkdir()


def add_twin_of_other_case(folder: Path) -> None:
    (folder / "raw" / "CANDIDATE.log").write_text("x")


def rename_log(folder: Path) -> None:
    (folder / "raw" / "candidate.log").rename(folder / "raw" / "a.log")


def swap_two_records(folder: Path) -> None:
    first, second = [folder / path for path in list_files(folder) if "-suite-" in path][:2]
    first.rename(folder / "t")
    second.rename(first)
    (folder / "t").rename(second)


def add_half_a_character(folder: Path) -> None:
    edit(folder, "judgement.json", '"reason": "', '"reason": "\\ud800')
    rehash(folder)


def newer(path: str, field: str = "schema_version") -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        separator = " = " if path.endswith(".toml") else '": '
        edit(folder, path, f"{field}{separator}1", f"{field}{separator}2")
        if path != MANIFEST_JSON:
            rehash(folder)

    return change


def rewrite_with_same_meaning(path: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        name = first_evidence(folder, "suite") if path == "evidence" else path
        value = json.loads((folder / name).read_bytes())
        (folder / name).write_text(json.dumps(value), "utf-8")
        rehash(folder)

    return change


def rewrite_manifest_with_same_meaning(folder: Path) -> None:
    old = digest_file(folder / MANIFEST_JSON, "").sha256
    value = json.loads((folder / MANIFEST_JSON).read_bytes())
    (folder / MANIFEST_JSON).write_text(json.dumps(value), "utf-8")
    edit(folder, SHA256SUMS, old, digest_file(folder / MANIFEST_JSON, "").sha256)


def write_integer_as_float(folder: Path) -> None:
    edit(folder, first_evidence(folder, "suite"), '"seed": 7', '"seed": 7.0')
    rehash(folder)


def sign_then_edit(folder: Path) -> None:
    sign_bundle(folder, KEY, TrustLevel.MAINTAINER)
    (folder / "raw" / "candidate.log").write_text("another")


def rename_signature(folder: Path) -> None:
    path = folder / sign_bundle(folder, KEY, TrustLevel.MAINTAINER)
    path.rename(path.with_name("key-other.intoto.jsonl"))


def forget_machine(folder: Path) -> None:
    (folder / first_evidence(folder, "environment")).unlink()
    for number, path in enumerate(sorted((folder / "evidence").iterdir())):
        path.rename(path.with_name(f"{number:04d}{path.name[4:]}"))
    rehash(folder)


def describe_another_machine(folder: Path) -> None:
    (folder / first_evidence(folder, "environment")).unlink()
    other = environment().model_copy(update={"num_cores": 64})
    (folder / evidence_path(0, other.id)).write_bytes(render_evidence_json(other))
    rehash(folder)


def add_socket(folder: Path) -> None:
    os.mkfifo(folder / "raw" / "socket")


@pytest.mark.parametrize(
    ("damage", "slug"),
    [
        (add_empty_folder, "bundle-extra-folder"),
        (add_twin_of_other_case, "bundle-name-twice"),
        (rename_log, "bundle-renamed-file"),
        (swap_two_records, "bundle-altered-file"),
        (add_half_a_character, "evidence-malformed-json"),
        (newer("judgement.json"), "evidence-newer-version"),
        (newer("policy.toml"), "evidence-newer-version"),
        (newer(MANIFEST_JSON), "evidence-newer-version"),
        (newer(MANIFEST_JSON, "bundle_version"), "evidence-newer-version"),
        (rewrite_with_same_meaning("judgement.json"), "file-not-canonical"),
        (rewrite_with_same_meaning("change.json"), "file-not-canonical"),
        (rewrite_with_same_meaning("evidence"), "file-not-canonical"),
        (rewrite_with_same_meaning("ro-crate-metadata.json"), "ro-crate-differs"),
        (rewrite_manifest_with_same_meaning, "file-not-canonical"),
        (write_integer_as_float, "evidence-wrong-type"),
        (sign_then_edit, "bundle-altered-file"),
        (rename_signature, "attestation-malformed"),
        (add_socket, "bundle-link"),
        (forget_machine, "bundle-unknown-machine"),
        (describe_another_machine, "bundle-unknown-machine"),
    ],
)
def test_a_damaged_folder_is_named_by_its_fault(
    folder: Path, damage: Callable[[Path], None], slug: str
) -> None:
    assert first_slug(folder) == ""
    damage(folder)
    assert first_slug(folder) == slug


def packed(place: Path, folder: Path, *extra: tuple[tarfile.TarInfo, bytes], tail: bytes = b"") -> Path:
    """An archive of the folder with further members, and with bytes behind its end."""
    buffer = io.BytesIO()
    own = [(tarfile.TarInfo(path), file.read_bytes()) for path, file in list_files(folder).items()]
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member, data in (*own, *extra):
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    archive = place / "b.tar.gz"
    archive.write_bytes(gzip.compress(buffer.getvalue() + tail))
    return archive


def member(name: str, kind: bytes = tarfile.REGTYPE, **headers: str) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.pax_headers = kind, headers
    return made


SPARSE = {"GNU.sparse.map": "0,1", "GNU.sparse.size": str(900 << 20)}


@pytest.mark.parametrize(
    ("extra", "slug"),
    [
        (member("raw/s", **SPARSE), "bundle-link"),
        (member("raw/s", tarfile.GNUTYPE_SPARSE), "bundle-link"),
        (member("raw/l", tarfile.LNKTYPE), "bundle-link"),
        (member("raw/b", tarfile.BLKTYPE), "bundle-link"),
        (member("raw/u", b"Z"), "bundle-link"),
        (member("raw/ok", path="../../etc/passwd"), "bundle-bad-path"),
        (member("raw/" + "d/" * 130 + "x"), "bundle-bad-path"),
        (member("raw/a\nb"), "bundle-bad-path"),
        (member("raw/ok", size=str(9 << 40)), "bundle-too-large"),
        (member("policy.toml"), "bundle-name-twice"),
        (member("Policy.toml"), "bundle-name-twice"),
        (member("raw/a\0b"), "bundle-extra-file"),
        (member("raw/late.part"), "bundle-extra-file"),
    ],
)
def test_a_hostile_member_is_refused(folder: Path, tmp_path: Path, extra: tarfile.TarInfo, slug: str) -> None:
    assert first_slug(packed(tmp_path, folder)) == ""
    assert first_slug(packed(tmp_path, folder, (extra, b"1"))) == slug


@pytest.mark.parametrize("tail", [b"evil", b"\0" * 4096 + b"x"])
def test_what_lies_behind_the_end_of_an_archive_is_found(folder: Path, tmp_path: Path, tail: bytes) -> None:
    assert first_slug(packed(tmp_path, folder, tail=tail)) == "bundle-bad-archive"


def test_a_million_folders_end_at_the_limit_like_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_FILES", 40)
    for i in range(40):
        (folder / "raw" / str(i)).mkdir()
    assert first_slug(folder) == "bundle-too-many-files"


def test_what_is_read_into_memory_has_a_limit_of_its_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_PARSED_BYTES", 10_000)
    assert first_slug(folder) == "bundle-too-large"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_is_done_to_a_file_is_found(original: Path, data: st.DataObject) -> None:
    present = list_files(original)
    path = data.draw(st.sampled_from(sorted(present)))
    file, content = present[path], present[path].read_bytes()
    at = data.draw(st.integers(0, len(content)))
    kind = data.draw(st.sampled_from(["flip", "insert", "delete", "cut", "repeat", "swap", "move", "copy"]))
    other = data.draw(st.sampled_from(sorted(set(present) - {path})))
    moved = file.with_name(f"x{file.name}")
    try:
        if kind == "move":
            file.rename(moved)
        elif kind == "copy":
            moved.write_bytes(content)
        else:
            changed = {
                "flip": content[:at] + bytes([content[at % len(content)] ^ 1]) + content[at + 1 :],
                "insert": content[:at] + b" " + content[at:],
                "delete": content[: at - 1] + content[at:] if at else content[1:],
                "cut": content[: min(at, len(content) - 1)],
                "repeat": content + content,
                "swap": present[other].read_bytes(),
            }[kind]
            file.write_bytes(changed)
            if changed == content:
                return
        assert first_slug(original)
    finally:
        moved.unlink(missing_ok=True)
        file.write_bytes(content)
