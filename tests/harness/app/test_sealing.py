"""Laws of sealing: what a run recorded is judged as it stands, and what it did not record stays missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bundles.partial import begin
from bundles.reader import read_bundle
from bundles.verify import verify_bundle
from bundles.writer import EvidenceStore
from harness.app.judging import decide, render_report
from harness.app.sealing import seal_begun
from harness.model.errors import ConfigurationError
from harness.model.evidence import AnyEvidence, GapEvidence, SuiteEvidence
from harness.model.words import Arm, ExitCode, Outcome, Tier, Verdict
from harness.options import OutputOptions, VerifyOptions
from tests.harness.app.resumable import ABOUT, CHANGE
from tests.harness.app.test_resume import ENVIRONMENT
from tests.harness.checks.evidence_builder import small_evidence

REQUIRED = '[required]\nstatic = ["ISO001"]\ncpu = ["COR006"]\ngpu = ["COR012"]\n'


def begun(folder: Path, *records: AnyEvidence) -> VerifyOptions:
    """A folder as a killed run leaves it."""
    about = ABOUT | {"policy_text": ABOUT["policy_text"] + REQUIRED}
    store = EvidenceStore(folder)
    for record in (ENVIRONMENT, *records):
        store.add(record)
    begin(folder, change=CHANGE, **about)
    return VerifyOptions(bundle=folder, output=OutputOptions(quiet=True))


def test_a_sealed_run_is_an_intact_bundle_that_admits_nothing(tmp_path: Path) -> None:
    options = begun(tmp_path / "out")
    result = seal_begun(options)
    verified = verify_bundle(options.bundle, decide, render_report)
    assert verified.intact and verified.rebuilt is not None
    assert (verified.rebuilt.verdict, result.exit_code) == (Verdict.UNDECIDED, ExitCode.UNDECIDED)


def test_a_required_tier_of_which_nothing_was_recorded_is_not_run(tmp_path: Path) -> None:
    gap = GapEvidence(tier=Tier.GPU, recorded_at="now", what="tier gpu", broke=False, reason="no GPU")
    options = begun(tmp_path / "out", gap)
    seal_begun(options)
    bundle = read_bundle(options.bundle)
    gaps = {r.tier: r.reason for r in bundle.records if isinstance(r, GapEvidence)}
    assert gaps == {
        Tier.GPU: "no GPU",
        Tier.CPU: "the run ended before it, and its evidence was sealed as it stood",
    }
    outcomes = {c.check: c.outcome for c in bundle.judgement.checks}
    assert outcomes["COR006"] is outcomes["COR012"] is Outcome.NOT_RUN


def test_answers_of_a_server_without_a_ledger_are_not_sealed(tmp_path: Path) -> None:
    suites = [r for r in small_evidence() if isinstance(r, SuiteEvidence) and r.arm is Arm.CANDIDATE]
    options = begun(tmp_path / "out", suites[0])
    with pytest.raises(ConfigurationError, match="No ledger was recorded"):
        seal_begun(options)
    assert not (options.bundle / "sha256sums.txt").exists()


def test_a_sealed_folder_and_one_without_a_run_are_refused(tmp_path: Path) -> None:
    options = begun(tmp_path / "out")
    seal_begun(options)
    with pytest.raises(ConfigurationError, match="finished bundle"):
        seal_begun(options)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigurationError, match="no begun bundle"):
        seal_begun(VerifyOptions(bundle=tmp_path / "empty", output=options.output))
