"""A run that was killed is finished: what it recorded is not asked again, and each answer keeps its own proof."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from bundles.partial import begin, reopen
from bundles.writer import EvidenceStore
from harness.app.resuming import RUN_FOLDER, reopened, unproven
from harness.checks.joins.arm_proof import find_problems, shared_between_arms
from harness.checks.joins.token_steps import client_items, index_token_steps
from harness.model.check import CheckContext
from harness.model.errors import ConfigurationError
from harness.model.evidence import (
    AnyEvidence,
    ArmEvidence,
    EnvironmentEvidence,
    EvidenceSet,
    LedgerEvidence,
    SuiteEvidence,
    evidence_set,
)
from harness.model.words import Arm, Tier
from tests.harness.app.conftest import ROOT
from tests.harness.app.resumable import ABOUT, CHANGE, collect, manifest
from tests.harness.checks.evidence_builder import POLICY

KILL_AFTER = 4


def killed_run(out: Path, work: Path) -> None:
    program = [sys.executable, "-m", "tests.harness.app.resumable", str(out), str(work), str(KILL_AFTER)]
    done = subprocess.run(program, cwd=ROOT, check=False, timeout=120)
    assert done.returncode == -9


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> tuple[EvidenceSet, list[str]]:
    """The evidence of a run that was killed between two suites and then finished, and every suite that was asked."""
    folder = tmp_path_factory.mktemp("resumed")
    work = folder / "work"
    work.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(work))
        killed_run(folder / "out", work)
        records = collect(folder / "out", resume=True)
    return evidence_set(records), (folder / "out.asked").read_text().splitlines()


def problems(evidence: EvidenceSet, arm: Arm = Arm.CANDIDATE) -> list[str]:
    context = CheckContext(change=CHANGE, manifest=manifest(), policy=POLICY, evidence=evidence)
    found = [p.text for p in find_problems(context, arm, Tier.CPU)]
    # The pretended servers import nothing.
    return [t for t in found if "imported from" not in t and "subject's files" not in t]


def replaced(evidence: EvidenceSet, old: AnyEvidence, *new: AnyEvidence) -> EvidenceSet:
    return evidence_set(r for record in evidence for r in (new if record is old else (record,)))


def test_a_suite_that_is_in_evidence_is_not_asked_again(resumed: tuple[EvidenceSet, list[str]]) -> None:
    evidence, asked = resumed
    recorded = Counter(f"{r.suite} on {r.arm}" for r in evidence.of(SuiteEvidence))
    assert set(recorded.values()) == {1}
    assert set(asked) == set(recorded)
    # What was under way on the other arms when the run was killed was never recorded; it alone is asked twice.
    twice = [name for name, count in Counter(asked).items() if count > 1]
    assert len(twice) <= 2 and not any(name.endswith("candidate") for name in twice)


def test_each_server_that_answered_has_a_record_and_a_ledger(
    resumed: tuple[EvidenceSet, list[str]],
) -> None:
    evidence, _ = resumed
    nonces = {arm: {r.proof.nonce for r in evidence.sessions(arm, Tier.CPU) if r.proof} for arm in Arm}
    assert nonces == {arm: {r.session for r in evidence.ledgers(arm, Tier.CPU)} for arm in Arm}
    assert len(nonces[Arm.CANDIDATE]) == 2


def test_every_token_of_both_servers_is_accounted_for(resumed: tuple[EvidenceSet, list[str]]) -> None:
    evidence, _ = resumed
    assert [problems(evidence, arm) for arm in Arm] == [[], [], []]
    assert shared_between_arms(evidence, tuple(Arm), Tier.CPU) == {}
    items = [item for _, item in client_items(evidence, Arm.CANDIDATE, Tier.CPU)]
    ledger = evidence.ledger(Arm.CANDIDATE, Tier.CPU)
    assert ledger is not None and ledger.id in {r.id for r in evidence}
    steps = index_token_steps(ledger, manifest(), [i.request_id for i in items])
    assert all(len(steps[i.request_id]) == i.num_completion_tokens for i in items)


def test_without_the_killed_servers_ledger_its_answers_prove_nothing(
    resumed: tuple[EvidenceSet, list[str]],
) -> None:
    evidence, _ = resumed
    first = evidence.ledgers(Arm.CANDIDATE, Tier.CPU)[0]
    without = replaced(evidence, first)
    assert any("does not account for" in text for text in problems(without))
    assert "greedy on candidate" in unproven(without) and not unproven(evidence)


def test_one_servers_ledger_does_not_stand_for_anothers(resumed: tuple[EvidenceSet, list[str]]) -> None:
    evidence, _ = resumed
    first, second = evidence.ledgers(Arm.CANDIDATE, Tier.CPU)
    forged = second.model_copy(
        update={
            "rows": (
                *second.rows,
                *(
                    r.model_copy(update={"step": r.step + 10_000, "started_ns": 10**18 + r.step})
                    for r in first.rows
                ),
            )
        }
    )
    swapped = replaced(replaced(evidence, first), second, forged)
    assert any("server that was not asked them" in text for text in problems(swapped))


def test_a_ledger_of_a_server_without_a_record_counts_for_nothing(
    resumed: tuple[EvidenceSet, list[str]],
) -> None:
    evidence, _ = resumed
    first = evidence.sessions(Arm.CANDIDATE, Tier.CPU)[0]
    assert any("no record" in text for text in problems(replaced(evidence, first)))


def test_one_servers_fault_voids_the_arm_though_the_other_was_sound(
    resumed: tuple[EvidenceSet, list[str]],
) -> None:
    evidence, _ = resumed
    for record in evidence.sessions(Arm.CANDIDATE, Tier.CPU):
        broken = record.model_copy(update={"ledger_problems": ("a row was lost",)})
        assert problems(replaced(evidence, record, broken)) == ["its ledger's reader found 1 faults"]


def test_a_server_that_answered_nothing_is_no_matter_where_others_did(
    resumed: tuple[EvidenceSet, list[str]],
) -> None:
    evidence, _ = resumed
    last = evidence.sessions(Arm.CANDIDATE, Tier.CPU)[-1]
    failed = last.model_copy(update={"started": False, "failure": "no memory", "proof": None})
    assert problems(evidence_set([*evidence, failed])) == []


def test_an_arm_whose_only_server_failed_is_not_hidden(resumed: tuple[EvidenceSet, list[str]]) -> None:
    evidence, _ = resumed
    last = evidence.sessions(Arm.CANDIDATE, Tier.CPU)[-1]
    failed = last.model_copy(update={"started": False, "failure": "no memory", "proof": None})
    others = [r for r in evidence if not isinstance(r, (ArmEvidence, LedgerEvidence, SuiteEvidence))]
    assert any("did not start" in text for text in problems(evidence_set([*others, failed])))


def test_a_run_whose_servers_files_are_gone_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    killed_run(tmp_path / "out", work)
    monkeypatch.setattr(tempfile, "tempdir", str(work))
    for folder in work.glob(f"{RUN_FOLDER}*"):
        folder.rename(tmp_path / "moved away")
    with pytest.raises(ConfigurationError, match="the proof of greedy on"):
        collect(tmp_path / "out", resume=True)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("policy.toml", b"other", "another policy.toml"),
        ("fasttrack.toml", b"other", "another fasttrack.toml"),
        ("sha256sums.txt", b"", "finished bundle"),
        ("change.json", None, "no begun bundle"),
    ],
)
def test_a_bundle_about_something_else_is_not_taken_up(
    name: str, data: bytes | None, said: str, tmp_path: Path
) -> None:
    begin(tmp_path, change=CHANGE, **ABOUT)
    (tmp_path / name).unlink(missing_ok=True)
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(ConfigurationError, match=said):
        reopen(tmp_path, change=CHANGE, **ABOUT)


ENVIRONMENT = EnvironmentEvidence(
    tier=Tier.STATIC,
    recorded_at="2026-11-29T20:00:00Z",
    command=("fasttrack", "validate", "--profile", "full"),
    cpu="made",
    num_cores=2,
    memory_gib=8,
    gpus=(),
    os="made",
    python="3.11",
    packages={"torch": "2.13"},
    harness_sha256="0" * 64,
)


@pytest.mark.parametrize(
    "other",
    [
        {"harness_sha256": "1" * 64},
        {"packages": {"torch": "2.14"}},
        {"cpu": "another"},
        {"command": ("fasttrack", "validate", "--profile", "quick")},
    ],
    ids=["harness", "packages", "machine", "profile"],
)
def test_what_began_elsewhere_or_otherwise_is_not_taken_up(other: dict[str, object], tmp_path: Path) -> None:
    EvidenceStore(tmp_path).add(ENVIRONMENT)
    begin(tmp_path, change=CHANGE, **ABOUT)
    later = ENVIRONMENT.model_copy(update={"recorded_at": "2026-11-29T21:00:00Z"})
    assert reopened(tmp_path, later, change=CHANGE, **ABOUT) == (ENVIRONMENT,)
    with pytest.raises(ConfigurationError, match="another harness, profile"):
        reopened(tmp_path, later.model_copy(update=other), change=CHANGE, **ABOUT)
