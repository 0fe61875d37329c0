"""Laws of writing: nothing added is lost, nothing of others is touched, the same evidence gives the same bytes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bundles.archive import pack
from bundles.error import BundleError
from bundles.files import list_files
from bundles.reader import read_bundle, read_partial
from bundles.scrub import Scrubber
from bundles.writer import EvidenceStore, seal
from harness.model.errors import ConfigurationError, FasttrackError
from harness.model.evidence import GapEvidence
from harness.model.words import Arm, Tier
from tests.bundles.examples import (
    CHANGE,
    MANIFEST_TEXT,
    POLICY_TEXT,
    arm,
    changed_files,
    decide_example,
    environment,
    evidence_to_reject,
    evidence_undecided,
    plain_report,
    suite,
    write_bundle,
)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path: file.read_bytes() for path, file in list_files(folder).items()}


def _names_nobody(text: str) -> bool:
    return Scrubber().text(text) == text


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_two_runs_of_the_writer_give_the_same_bytes_whatever_the_evidence(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    words = st.text(st.characters(exclude_categories=("Cs",)), max_size=20).filter(_names_nobody)
    gaps = [
        GapEvidence(tier=tier, recorded_at="2026", what=what, broke=False, reason=reason)
        for tier, what, reason in data.draw(
            st.lists(st.tuples(st.sampled_from(Tier), words, words), max_size=3)
        )
    ]
    records = [*evidence_undecided(), *gaps]
    folders = [tmp_path_factory.mktemp("run") / name for name in ("a", "b")]
    for folder in folders:
        write_bundle(folder, records, plain_report)
        pack(folder, folder.with_suffix(".tar.gz"))
    assert bytes_of(folders[0]) == bytes_of(folders[1])
    assert folders[0].with_suffix(".tar.gz").read_bytes() == folders[1].with_suffix(".tar.gz").read_bytes()


def test_coreutils_accepts_the_digests(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", evidence_undecided(), plain_report)
    run = subprocess.run(
        ["sha256sum", "--strict", "-c", "sha256sums.txt"], cwd=tmp_path / "b", capture_output=True, text=True
    )
    listed = [line.split(": ")[0] for line in run.stdout.splitlines()]
    assert run.returncode == 0
    assert listed == sorted(set(list_files(tmp_path / "b")) - {"sha256sums.txt"})


def test_a_record_is_on_disk_as_soon_as_add_returns(tmp_path: Path) -> None:
    store = EvidenceStore(tmp_path / "b")
    for count, record in enumerate(evidence_undecided(), 1):
        store.add(record)
        assert [f.record for f in read_partial(tmp_path / "b").evidence] == list(evidence_undecided()[:count])


def test_the_order_of_evidence_is_kept(tmp_path: Path) -> None:
    evidence = evidence_to_reject()[::-1]
    write_bundle(tmp_path / "b", evidence, plain_report)
    assert read_bundle(tmp_path / "b").records == evidence


def test_a_record_added_twice_keeps_its_one_place(tmp_path: Path) -> None:
    store = EvidenceStore(tmp_path / "b")
    ids = [store.add(record) for record in (environment(), changed_files(), environment())]
    assert ids[0] == ids[2]
    assert store.records == (environment(), changed_files())
    assert [f.record for f in read_partial(tmp_path / "b").evidence] == [environment(), changed_files()]


def test_an_interrupt_while_writing_loses_only_the_record_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EvidenceStore(tmp_path / "b")
    store.add(environment())

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bundles.files.os.fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.add(changed_files())
    monkeypatch.undo()
    assert not [path for path in list_files(tmp_path / "b") if path.endswith(".part")]
    assert [f.record for f in read_partial(tmp_path / "b").evidence] == [environment()]
    store.add(suite(Arm.BASELINE))
    assert [f.record for f in read_partial(tmp_path / "b").evidence] == [environment(), suite(Arm.BASELINE)]


def seal_undecided(folder: Path) -> None:
    seal(
        folder,
        manifest_text=MANIFEST_TEXT,
        policy_text=POLICY_TEXT,
        judgement=decide_example(MANIFEST_TEXT, POLICY_TEXT, CHANGE, evidence_undecided()),
        render_report=plain_report,
    )


def test_what_a_killed_writer_left_is_not_part_of_the_bundle(tmp_path: Path) -> None:
    store = EvidenceStore(tmp_path / "b")
    for record in evidence_undecided():
        store.add(record)
    (tmp_path / "b" / "evidence" / "0009-suite-0123456789abcdef.json.part").write_bytes(b'{"arm": "cand')
    assert len(read_partial(tmp_path / "b").evidence) == len(evidence_undecided())
    seal_undecided(tmp_path / "b")
    assert read_bundle(tmp_path / "b").records == evidence_undecided()


def test_a_judgement_that_rests_on_evidence_of_elsewhere_is_not_sealed(tmp_path: Path) -> None:
    store = EvidenceStore(tmp_path / "b")
    store.add(environment())
    with pytest.raises(BundleError) as caught:
        seal_undecided(tmp_path / "b")
    assert caught.value.slug == "evidence-not-in-bundle"
    assert not (tmp_path / "b" / "sha256sums.txt").exists()


def test_a_bundle_is_sealed_once(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", evidence_undecided(), plain_report)
    with pytest.raises(ConfigurationError) as caught:
        seal_undecided(tmp_path / "b")
    assert caught.value.slug == "bundle-sealed"


def test_a_report_that_fails_leaves_the_folder_unsealed_and_the_evidence_kept(tmp_path: Path) -> None:
    def broken(_: object) -> str:
        raise FasttrackError("render", "no report")

    with pytest.raises(FasttrackError):
        write_bundle(tmp_path / "b", evidence_undecided(), broken)
    assert len(read_partial(tmp_path / "b").evidence) == len(evidence_undecided())
    seal_undecided(tmp_path / "b")
    assert read_bundle(tmp_path / "b").records == evidence_undecided()


def test_a_folder_with_files_of_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for replace in (False, True):
        with pytest.raises(ConfigurationError):
            EvidenceStore(tmp_path, replace=replace)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_replacing_a_bundle_deletes_nothing_when_a_foreign_file_lies_in_it(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", evidence_undecided(), plain_report)
    (tmp_path / "b" / "evidence" / "notes.txt").write_text("mine")
    before = bytes_of(tmp_path / "b")
    with pytest.raises(ConfigurationError) as caught:
        EvidenceStore(tmp_path / "b", replace=True)
    assert caught.value.slug == "out-not-a-bundle"
    assert bytes_of(tmp_path / "b") == before


def test_an_earlier_bundle_is_replaced_when_asked(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", evidence_undecided(), plain_report)
    with pytest.raises(ConfigurationError) as caught:
        EvidenceStore(tmp_path / "b")
    assert caught.value.slug == "out-not-empty"
    EvidenceStore(tmp_path / "b", replace=True)
    assert list_files(tmp_path / "b") == {}


def test_an_output_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("x")
    with pytest.raises(ConfigurationError) as caught:
        EvidenceStore(tmp_path / "out")
    assert caught.value.slug == "out-not-a-folder"


@pytest.mark.parametrize(
    "name",
    [
        "../x.log",
        "/etc/passwd",
        "a//b",
        ".hidden",
        "a\\b",
        "a b",
        "x\n",
        "é.log",
        "",
        "x.part",
        "a/../b",
        "a" * 300,
    ],
)
def test_a_raw_file_stays_inside_the_bundle(tmp_path: Path, name: str) -> None:
    store = EvidenceStore(tmp_path / "b")
    with pytest.raises(BundleError) as caught:
        store.add_raw(name, b"x")
    assert caught.value.slug == "bundle-bad-path"
    assert list_files(tmp_path) == {}


def test_a_log_that_a_process_wrote_itself_is_sealed(tmp_path: Path) -> None:
    store = EvidenceStore(tmp_path / "b")
    for record in evidence_undecided():
        store.add(record)
    store.raw_path("arms/candidate.log").write_bytes(b"\x00\xff")
    seal_undecided(tmp_path / "b")
    assert read_bundle(tmp_path / "b").contents["raw/arms/candidate.log"].size == 2


def test_a_server_that_failed_is_kept_like_any_other_record(tmp_path: Path) -> None:
    store = EvidenceStore(tmp_path / "b")
    record = arm(Arm.CANDIDATE, failure="died")
    assert store.add(record) == record.id
