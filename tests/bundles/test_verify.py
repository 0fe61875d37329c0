"""Laws of verification: one changed byte is found, and a rewritten finding is found whatever the digests say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bundles.error import BundleError
from bundles.files import list_files
from bundles.json_text import render_evidence_json
from bundles.layout import evidence_path
from bundles.verify import VerifyResult, verify_bundle
from bundles.writer import EvidenceStore
from harness.model.change import Change
from harness.model.errors import ConfigurationError
from harness.model.evidence import AnyEvidence
from harness.model.judgement import Judgement
from harness.model.words import Arm, Verdict
from tests.bundles.examples import (
    decide_example,
    evidence_to_reject,
    evidence_undecided,
    plain_report,
    suite,
    write_bundle,
)
from tests.bundles.folders import copy_of, edit, first_evidence, rehash


def verify(folder: Path) -> VerifyResult:
    return verify_bundle(folder, decide_example, plain_report)


def test_an_untouched_bundle_is_intact_and_judged_the_same(folder: Path) -> None:
    result = verify(folder)
    assert result.intact
    assert result.rebuilt is not None
    assert result.rebuilt.verdict is Verdict.REJECT
    assert result.num_evidence == len(evidence_to_reject())


def test_one_changed_byte_is_found_at_the_ends_and_middle_of_every_file(folder: Path) -> None:
    for path, file in list_files(folder).items():
        content = file.read_bytes()
        for at in {0, len(content) // 2, len(content) - 1}:
            changed = bytearray(content)
            changed[at] ^= 1
            file.write_bytes(changed)
            assert not verify(folder).intact, f"{path} at {at}"
        file.write_bytes(content + b"\n")
        assert not verify(folder).intact, f"{path} with a line more"
        file.write_bytes(content)
    assert verify(folder).intact


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_one_changed_byte_in_findings_report_or_evidence_is_found_though_every_digest_was_written_anew(
    original: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    copy = copy_of(original, tmp_path_factory.mktemp("flip"))
    files = list_files(copy)
    rebuilt = [
        p for p in files if p.startswith("evidence/") or p in ("judgement.json", "report.html", "change.json")
    ]
    path = data.draw(st.sampled_from(rebuilt))
    changed = bytearray(files[path].read_bytes())
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    files[path].write_bytes(changed)
    rehash(copy)
    assert not verify(copy).intact


def test_an_edited_finding_is_named_by_its_place(folder: Path) -> None:
    edit(folder, "judgement.json", '"outcome": "fail"', '"outcome": "pass"')
    rehash(folder)
    result = verify(folder)
    found = [d for d in result.differences if d.slug == "judgement-differs"]
    assert [d.where for d in found] == ["judgement.json#/checks/0/outcome"]
    assert found[0].message == 'The bundle says "pass"; its evidence gives "fail".'


def test_a_forged_verdict_is_found_in_judgement_and_report(folder: Path) -> None:
    edit(folder, "judgement.json", '"verdict": "reject"', '"verdict": "admit"')
    edit(folder, "report.html", "reject", "admit")
    rehash(folder)
    wheres = {d.where for d in verify(folder).differences}
    assert "judgement.json#/verdict" in wheres
    assert "report.html#line=1" in wheres


def test_a_report_edited_by_hand_is_shown_where_it_differs(folder: Path) -> None:
    edit(folder, "report.html", "3 of 12", "0 of 12")
    rehash(folder)
    (difference,) = verify(folder).differences
    assert difference.slug == "report-differs"
    assert "0 of 12" in difference.message
    assert "3 of 12" in difference.message


def test_evidence_that_says_the_same_in_other_bytes_is_found(folder: Path) -> None:
    path = first_evidence(folder, "suite")
    edit(folder, path, '"seed": 7', '"seed":  7')
    rehash(folder)
    wheres = {d.where for d in verify(folder).differences if d.slug == "file-not-canonical"}
    assert wheres == {path}


def test_evidence_replaced_under_a_right_name_no_longer_gives_the_judgement(folder: Path) -> None:
    wanted = suite(Arm.CANDIDATE, num_wrong=9)
    path = next(p for p in list_files(folder) if wanted.id in p)
    better = suite(Arm.CANDIDATE)
    (folder / path).unlink()
    (folder / evidence_path(int(path.split("/")[1][:4]), better.id)).write_bytes(render_evidence_json(better))
    for place in ("judgement.json", "report.html"):
        text = (folder / place).read_text("utf-8").replace(wanted.id, better.id)
        (folder / place).write_text(text, "utf-8")
    rehash(folder)
    wheres = {d.where for d in verify(folder).differences}
    assert any(where.startswith("judgement.json#/checks/6/outcome") for where in wheres)


def test_a_bundle_made_anew_from_edited_evidence_is_intact_so_that_only_a_signature_tells(
    tmp_path: Path,
) -> None:
    forged = [r if r.kind != "suite" else suite(r.arm) for r in evidence_to_reject()]
    write_bundle(tmp_path / "b", forged, plain_report)
    assert verify(tmp_path / "b").intact


def test_every_altered_file_is_listed(folder: Path) -> None:
    for path in ("policy.toml", "raw/candidate.log"):
        (folder / path).write_bytes((folder / path).read_bytes() + b"\n")
    altered = [d.where for d in verify(folder).differences if d.slug == "bundle-altered-file"]
    assert altered == ["policy.toml", "raw/candidate.log"]


def test_a_laxer_policy_slipped_in_changes_the_judgement(folder: Path) -> None:
    edit(folder, "policy.toml", 'static = ["ISO001"]', "static = []")
    rehash(folder)
    wheres = {d.where for d in verify(folder).differences}
    assert {"judgement.json#/checks/0/required", "judgement.json#/policy_sha256"} <= wheres


def test_a_judge_of_another_version_is_told_apart(folder: Path) -> None:
    def newer(
        manifest_text: str, policy_text: str, change: Change, evidence: Sequence[AnyEvidence]
    ) -> Judgement:
        judgement = decide_example(manifest_text, policy_text, change, evidence)
        return judgement.model_copy(update={"harness_version": "0.2.0"})

    result = verify_bundle(folder, newer, plain_report)
    assert [d.where for d in result.differences] == ["judgement.json#/harness_version"]


def test_a_judge_that_cannot_judge_is_a_difference_and_no_traceback(folder: Path) -> None:
    def refuses(*_: object) -> Judgement:
        raise ConfigurationError("policy-unknown-check", "The policy names a check that does not exist.")

    result = verify_bundle(folder, refuses, plain_report)
    assert not result.intact
    assert [d.slug for d in result.differences] == ["policy-unknown-check"]


def test_a_bundle_that_was_not_judged_again_is_never_intact() -> None:
    assert not VerifyResult(differences=(), num_files=1, num_evidence=0, rebuilt=None).intact


def test_an_unfinished_run_is_not_intact(tmp_path: Path) -> None:
    store = EvidenceStore(tmp_path / "b")
    for record in evidence_undecided():
        store.add(record)
    result = verify(tmp_path / "b")
    assert not result.intact
    assert [d.slug for d in result.differences] == ["bundle-unsealed"]


def test_a_folder_that_is_not_there_cannot_be_verified(tmp_path: Path) -> None:
    with pytest.raises(BundleError):
        verify(tmp_path / "nowhere")
