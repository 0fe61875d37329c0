"""What a bundle says is shown and signed only when its evidence gives it, and no command breaks a bundle."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bundles.files import list_files
from bundles.keys import make_private_key, write_key_pair
from bundles.reader import read_bundle
from bundles.writer import EvidenceStore, seal
from harness.app.judging import decide, render_report
from harness.app.selftest.resealing import reseal
from harness.cli import main
from harness.facts.packages import digest_of_judge
from harness.model.change import Change
from harness.model.evidence import ChangedFilesEvidence, EnvironmentEvidence, SourceEvidence
from harness.model.judgement import Judgement
from harness.model.words import ExitCode, Outcome, Tier, Verdict
from tests.bundles.examples import CHANGE, MANIFEST_TEXT, POLICY_TEXT, evidence_to_reject
from tests.harness.app.conftest import ROOT


def bundle_of(folder: Path, harness_sha256: str) -> Path:
    """A bundle whose evidence makes a required check fail, and says which fasttrack judged it."""
    store = EvidenceStore(folder)
    source = SourceEvidence(
        tier=Tier.STATIC,
        recorded_at="2026",
        content_sha256="a" * 64,
        signers=("SHA256:anybody",),
        evidence=(),
    )
    for record in (*evidence_to_reject(), source):
        is_machine = isinstance(record, EnvironmentEvidence)
        store.add(record.model_copy(update={"harness_sha256": harness_sha256}) if is_machine else record)
    judged(store)
    return folder


def judged(store: EvidenceStore, change: Change = CHANGE) -> None:
    """Seals the evidence with the judgement that it gives."""
    seal(
        store.folder,
        manifest_text=MANIFEST_TEXT,
        policy_text=POLICY_TEXT,
        judgement=decide(MANIFEST_TEXT, POLICY_TEXT, change, store.records),
        render_report=render_report,
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundle_of(tmp_path_factory.mktemp("intact") / "b", digest_of_judge())


@pytest.fixture(scope="module")
def judged_by_others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What another fasttrack made of the evidence, or a forger who names one: these cannot be told apart here."""
    folder = bundle_of(tmp_path_factory.mktemp("others") / "b", "5b" * 32)
    reseal(folder, judgement=admitted)
    return folder


def admitted(judgement: Judgement) -> Judgement:
    checks = tuple(c.model_copy(update={"outcome": Outcome.PASS}) for c in judgement.checks)
    return judgement.model_copy(update={"verdict": Verdict.ADMIT, "reason": "All is well.", "checks": checks})


@pytest.fixture(scope="module")
def forged(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its judgement edited to admit, and everything that follows from that made anew."""
    folder = Path(shutil.copytree(made, tmp_path_factory.mktemp("forged") / "f"))
    reseal(folder, judgement=admitted)
    return folder


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "key"
    write_key_pair(path, make_private_key(), "")
    return path


@pytest.mark.parametrize(
    "command",
    [
        ["report", "BUNDLE"],
        ["report", "BUNDLE", "--format", "json"],
        ["bundle", "diff", "HONEST", "BUNDLE"],
        ["bundle", "sign", "BUNDLE", "--key", "KEY"],
        ["bundle", "attest", "BUNDLE"],
        ["bundle", "pack", "BUNDLE"],
        ["submit", "BUNDLE"],
    ],
    ids=" ".join,
)
def test_no_command_acts_on_a_verdict_that_the_evidence_does_not_give(
    made: Path, forged: Path, key: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"BUNDLE": str(forged), "HONEST": str(made), "KEY": str(key)}
    before = list_files(forged)
    code = main([names.get(word, word) for word in command])
    shown = capsys.readouterr()
    assert (code, "NOT intact" in shown.err, "All is well" in shown.out) == (ExitCode.HARNESS, True, False)
    assert list_files(forged) == before and not forged.with_name("f.tar.gz").exists()


def test_a_bundle_that_another_fasttrack_judged_is_not_called_damaged_and_what_to_do_is_said(
    judged_by_others: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("verify", "show"):
        assert main(["bundle", command, str(judged_by_others)]) == ExitCode.UNDECIDED
        first, verdict, following, *_ = capsys.readouterr().out.splitlines()
        assert first.startswith("judged by another fasttrack") and ": reject: " in verdict
        assert "bundle merge" in following
    assert main(["bundle", "verify", str(judged_by_others), "--format", "json"]) == ExitCode.UNDECIDED
    document = json.loads(capsys.readouterr().out)
    assert (document["intact"], document["judged_by_others"], document["verdict"]) == (False, True, None)


def test_what_another_fasttrack_judged_is_neither_packed_nor_signed(
    judged_by_others: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["pack"], ["sign", "--key", str(key)]):
        assert main(["bundle", *command, str(judged_by_others)]) == ExitCode.HARNESS
        assert "judged-by-other-sources" in capsys.readouterr().err
    assert not judged_by_others.with_name("b.tar.gz").exists()


def test_a_damaged_bundle_is_called_damaged_whoever_judged_it(
    judged_by_others: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = Path(shutil.copytree(judged_by_others, tmp_path / "d"))
    (damaged / "raw").mkdir()
    (damaged / "raw" / "x.log").write_text("x")
    assert main(["bundle", "verify", str(damaged)]) == ExitCode.HARNESS
    assert capsys.readouterr().out.startswith("NOT intact")


def test_show_says_first_that_a_bundle_is_not_intact_and_what_its_evidence_gives(
    forged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bundle", "show", str(forged)]) == ExitCode.HARNESS
    lines = capsys.readouterr().out
    assert lines.startswith("NOT intact") and ": reject: " in lines


def test_what_a_bundle_says_of_the_signers_of_its_parts_is_shown_as_its_own_word(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bundle", "show", str(made), "--format", "json"]) == ExitCode.ADMIT
    document = json.loads(capsys.readouterr().out)
    assert document["intact"] and document["signers"] == []
    assert document["parts"][0]["claimed_signers"] == ["SHA256:anybody"]


def test_the_comparison_of_bundles_steers_no_terminal(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "hostile"
    store = EvidenceStore(other)
    for record in evidence_to_reject():
        if isinstance(record, ChangedFilesEvidence):
            files = tuple(f.model_copy(update={"path": "vllm/\x1b[2J\u202e\n.py"}) for f in record.files[:1])
            record = record.model_copy(update={"files": files})
        store.add(record)
    judged(store)
    main(["bundle", "diff", str(made), str(other)])
    text = capsys.readouterr().out
    assert not text.startswith("They do not")
    assert "vllm/\\x1b[2J\\u202e\\n.py" in text and text.replace("\n", "").isprintable()


def test_bundles_of_two_commits_are_not_said_to_be_the_same(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = read_bundle(made)
    store = EvidenceStore(tmp_path / "other")
    for record in bundle.records:
        store.add(record)
    judged(store, bundle.change.model_copy(update={"head": "b" * 40}))
    assert main(["bundle", "diff", str(made), str(store.folder)]) == ExitCode.ADMIT
    assert capsys.readouterr().out.startswith("They do not answer one question: other head.\n0 cells differ")


@pytest.mark.parametrize(
    "command",
    [
        ["validate", "--repo", str(ROOT), "--base", "empty", "--tier", "static", "--out", "BUNDLE/x"],
        ["bundle", "merge", "BUNDLE", "--out", "BUNDLE/x"],
        ["bundle", "merge", "BUNDLE", "--out", "BUNDLE"],
        ["bundle", "pack", "BUNDLE", "--out", "BUNDLE/b.tar.gz"],
        ["keygen", "--out", "BUNDLE/raw/key"],
        ["report", "BUNDLE", "--out", "BUNDLE/r.html"],
    ],
    ids=" ".join,
)
def test_no_command_writes_into_a_bundle_or_over_one_that_it_reads(
    made: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = list_files(made)
    assert main([word.replace("BUNDLE", str(made)) for word in command]) == ExitCode.USAGE
    assert "out-in-bundle" in capsys.readouterr().err and list_files(made) == before
