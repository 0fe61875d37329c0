"""Laws of reading: a bundle that is not what it says is refused with one clear error."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bundles.contents import parse_evidence
from bundles.error import BundleError
from bundles.files import digest_file, list_files
from bundles.json_text import render_both_forms, render_evidence_json
from bundles.layout import evidence_path
from bundles.reader import read_bundle, read_partial
from bundles.writer import EvidenceStore
from harness.model.evidence import GapEvidence
from harness.model.words import Arm, Tier
from tests.bundles.examples import (
    MANIFEST_TEXT,
    POLICY_TEXT,
    environment,
    evidence_undecided,
    plain_report,
    suite,
    write_bundle,
)
from tests.bundles.folders import copy_of, edit, first_evidence, rehash


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle") / "b"
    write_bundle(folder, evidence_undecided(), plain_report)
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return copy_of(original, tmp_path)


def slug_of(folder: Path) -> str:
    with pytest.raises(BundleError) as caught:
        read_bundle(folder)
    assert caught.value.message
    assert caught.value.advice
    return caught.value.slug


def test_what_was_sealed_is_read_back(folder: Path) -> None:
    bundle = read_bundle(folder)
    assert bundle.records == evidence_undecided()
    assert (bundle.manifest_text, bundle.policy_text) == (MANIFEST_TEXT, POLICY_TEXT)
    assert bundle.manifest.change.model == "Kimi K3"


@pytest.mark.parametrize(
    "path", ["change.json", "judgement.json", "policy.toml", "report.html", "raw/candidate.log"]
)
def test_a_missing_file_is_named(folder: Path, path: str) -> None:
    (folder / path).unlink()
    with pytest.raises(BundleError, match=path) as caught:
        read_bundle(folder)
    assert caught.value.slug == "bundle-missing-file"


@pytest.mark.parametrize("path", ["manifest.json", "sha256sums.txt"])
def test_a_missing_list_is_named(folder: Path, path: str) -> None:
    (folder / path).unlink()
    with pytest.raises(BundleError, match=path) as caught:
        read_bundle(folder)
    assert caught.value.slug == "bundle-missing-file"


@pytest.mark.parametrize("path", ["extra.txt", "raw/extra.log", "evidence/extra.json", "raw/late.part"])
def test_an_extra_file_is_named(folder: Path, path: str) -> None:
    (folder / path).write_text("x")
    with pytest.raises(BundleError, match=path) as caught:
        read_bundle(folder)
    assert caught.value.slug == "bundle-extra-file"


def test_an_extra_file_that_the_lists_name_is_still_refused(folder: Path) -> None:
    (folder / "extra.txt").write_text("x")
    rehash(folder)
    assert slug_of(folder) == "bundle-extra-file"


def test_all_altered_files_are_counted(folder: Path) -> None:
    for path in ("policy.toml", "report.html", "judgement.json"):
        (folder / path).write_text("x")
    with pytest.raises(BundleError, match="2 more of its files differ") as caught:
        read_bundle(folder)
    assert caught.value.slug == "bundle-altered-file"


def make_link(folder: Path) -> None:
    (folder / "policy.toml").unlink()
    (folder / "policy.toml").symlink_to("/etc/hostname")


def make_folder_link(folder: Path) -> None:
    (folder / "raw" / "more").symlink_to("/etc", target_is_directory=True)


def make_fifo(folder: Path) -> None:
    os.mkfifo(folder / "raw" / "pipe")


@pytest.mark.parametrize("make", [make_link, make_folder_link, make_fifo])
def test_what_is_not_a_plain_file_is_refused_without_being_opened(
    folder: Path, make: Callable[[Path], None]
) -> None:
    make(folder)
    assert slug_of(folder) == "bundle-link"


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "a\\\\b", "raw/../policy.toml", "raw/a b"]
)
def test_a_list_that_names_a_path_outside_is_refused(folder: Path, name: str) -> None:
    edit(folder, "manifest.json", '"raw/candidate.log"', f'"{name}"')
    assert slug_of(folder) == "bundle-bad-path"


def test_a_bundle_under_the_digest_of_another_is_refused(folder: Path) -> None:
    content = read_bundle(folder).content_sha256
    old = digest_file(folder / "manifest.json", "").sha256
    edit(folder, "manifest.json", content, "0" * 64)
    edit(folder, "sha256sums.txt", old, digest_file(folder / "manifest.json", "").sha256)
    with pytest.raises(BundleError, match="content_sha256") as caught:
        read_bundle(folder)
    assert caught.value.slug == "bundle-altered-file"


def test_a_file_with_a_name_that_hides_is_refused(folder: Path) -> None:
    (folder / "raw" / ".hidden").write_text("x")
    assert slug_of(folder) == "bundle-bad-path"


@pytest.mark.parametrize(
    ("old", "new", "slug"),
    [
        ('"schema_version": 1', '"schema_version": 2', "evidence-newer-version"),
        ('"schema_version": 1', '"schema_version": 0', "evidence-unknown-version"),
        ('"schema_version": 1', '"schema_version": true', "evidence-unknown-version"),
        ('"seed": 7', '"seed": 8', "evidence-id-mismatch"),
        ('"seed": 7', '"seed": 1e999', "evidence-wrong-type"),
        ('"seed": 7', '"seed": NaN', "evidence-malformed-json"),
        ('"seed": 7', '"seed": 7, "seed": 7', "evidence-malformed-json"),
        ('"kind": "suite"', '"kind": "hearsay"', "evidence-wrong-type"),
        ('"seed": 7', '"seed": 7, "extra": 1', "evidence-wrong-type"),
        ("{", "", "evidence-malformed-json"),
    ],
)
def test_evidence_that_is_not_what_it_says_is_refused_even_when_the_digests_hold(
    folder: Path, old: str, new: str, slug: str
) -> None:
    path = first_evidence(folder, "suite")
    edit(folder, path, old, new)
    rehash(folder)
    assert slug_of(folder) == slug


def older_gap() -> tuple[bytes, str]:
    """A record as a version wrote it that did not know `details` yet, and its path."""
    record = GapEvidence(tier=Tier.GPU, recorded_at="2026", what="tier gpu", broke=False, reason="none")
    value = {name: field for name, field in record.model_dump(mode="json").items() if name != "details"}
    data, canonical = render_both_forms(value)
    return data, evidence_path(0, f"gap-{hashlib.sha256(canonical).hexdigest()[:16]}")


def test_a_record_of_an_older_version_keeps_the_name_that_it_was_given() -> None:
    data, path = older_gap()
    assert f"-{parse_evidence(data, path).record.id}.json" in path


def test_a_record_of_an_older_version_can_be_taken_over_into_a_new_bundle(tmp_path: Path) -> None:
    record = parse_evidence(*older_gap()).record.model_copy()
    store = EvidenceStore(tmp_path / "b")
    assert store.add(record) == record.id != parse_evidence(*older_gap()).record.id


def test_a_record_under_the_name_of_another_is_refused(folder: Path) -> None:
    path = first_evidence(folder, "suite")
    (folder / path).write_bytes(render_evidence_json(suite(Arm.CANDIDATE, num_wrong=3)))
    rehash(folder)
    assert slug_of(folder) == "evidence-id-mismatch"


def test_a_record_taken_out_is_noticed_though_the_digests_hold(folder: Path) -> None:
    (folder / first_evidence(folder, "arm")).unlink()
    rehash(folder)
    assert slug_of(folder) == "evidence-order"


def test_a_record_put_in_twice_is_noticed(folder: Path) -> None:
    number = len(evidence_undecided())
    (folder / evidence_path(number, environment().id)).write_bytes(render_evidence_json(environment()))
    rehash(folder)
    assert slug_of(folder) == "bundle-contradiction"


def test_a_finding_that_rests_on_absent_evidence_is_noticed(folder: Path) -> None:
    last = sorted(p for p in list_files(folder) if p.startswith("evidence/"))[-1]
    (folder / last).unlink()
    rehash(folder)
    assert slug_of(folder) == "evidence-not-in-bundle"


def test_a_change_that_differs_from_the_judged_one_is_noticed(folder: Path) -> None:
    edit(folder, "change.json", '"uncommitted_files": 2', '"uncommitted_files": 0')
    rehash(folder)
    assert slug_of(folder) == "bundle-contradiction"


def test_a_summary_that_hides_a_finding_is_noticed(folder: Path) -> None:
    edit(folder, "judgement.json", '"num_findings": 1', '"num_findings": 0')
    rehash(folder)
    assert slug_of(folder) == "bundle-contradiction"


@pytest.mark.parametrize(
    ("path", "data", "slug"),
    [
        ("policy.toml", b"schema_version = ", "evidence-malformed-toml"),
        ("policy.toml", b"\xff", "evidence-not-utf8"),
        ("fasttrack.toml", b"schema_version = 1\nsurprise = 2\n", "evidence-wrong-type"),
        ("fasttrack.toml", b"a = " + b"[" * 100_000, "evidence-malformed-toml"),
        ("judgement.json", b"[]", "evidence-wrong-type"),
        ("judgement.json", b"\xff", "evidence-not-utf8"),
        ("change.json", b"{}", "evidence-wrong-type"),
    ],
)
def test_a_malformed_file_raises_the_typed_error(folder: Path, path: str, data: bytes, slug: str) -> None:
    (folder / path).write_bytes(data)
    rehash(folder)
    assert slug_of(folder) == slug


def test_a_run_that_did_not_finish_says_so_and_keeps_its_evidence(tmp_path: Path) -> None:
    store = EvidenceStore(tmp_path / "b")
    store.add(environment())
    with pytest.raises(BundleError, match=r"did not finish\. 1 evidence records") as caught:
        read_bundle(tmp_path / "b")
    assert caught.value.slug == "bundle-unsealed"
    assert "did not finish" in read_partial(tmp_path / "b").message


def test_a_finished_bundle_is_not_read_as_partial(folder: Path) -> None:
    with pytest.raises(BundleError) as caught:
        read_partial(folder)
    assert caught.value.slug == "bundle-sealed"


def test_a_folder_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(BundleError) as caught:
        read_bundle(tmp_path / "nowhere")
    assert caught.value.slug == "bundle-not-found"


def test_an_empty_folder_is_an_unfinished_run(tmp_path: Path) -> None:
    assert slug_of(tmp_path) == "bundle-unsealed"


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_evidence_never_raises_anything_but_the_typed_error(data: st.DataObject) -> None:
    record = GapEvidence(tier=Tier.GPU, recorded_at="2026", what="tier gpu", broke=False, reason="none")
    content = bytearray(render_evidence_json(record))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    try:
        parse_evidence(bytes(content), evidence_path(0, record.id))
    except BundleError as error:
        assert error.where
