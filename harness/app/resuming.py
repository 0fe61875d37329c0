"""Takes up a run that was killed: what its servers left is recorded, and what is recorded is not collected again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from bundles.layout import CHANGE, SHA256SUMS
from bundles.partial import reopen
from harness.app.arm_evidence import recover_server
from harness.app.gpu_timing import FOLDER as TIMING
from harness.app.recorder import Recorder
from harness.model.change import Change
from harness.model.errors import ConfigurationError
from harness.model.evidence import (
    AnyEvidence,
    EnvironmentEvidence,
    EvidenceSet,
    SuiteEvidence,
    TimingEvidence,
    session_mark,
)
from harness.model.words import Arm, Tier

RUN_FOLDER = "fasttrack-run-"
OUT_NAME = "out"
"""File in a run's working folder that says where its bundle is."""


def reopened(
    folder: Path,
    environment: EnvironmentEvidence,
    *,
    manifest_text: str,
    policy_text: str,
    change: Change,
) -> tuple[AnyEvidence, ...]:
    """The evidence of a begun bundle of the same change, manifest, policy, harness, engine and profile.

    Raises:
        ConfigurationError: there is none, or it is of another.
    """
    records = reopen(folder, manifest_text=manifest_text, policy_text=policy_text, change=change)
    begun = [record for record in records if isinstance(record, EnvironmentEvidence)]
    if not begun or _identity(begun[0]) != _identity(environment):
        raise ConfigurationError(
            "resume-other",
            f"{folder} was begun by another harness, profile or set of packages, or on another machine.",
            "Leave --resume out to judge anew.",
        )
    return records


def _identity(environment: EnvironmentEvidence) -> EnvironmentEvidence:
    """All but the time."""
    return environment.model_copy(update={"recorded_at": ""})


def mark_run(folder: Path, out: Path) -> None:
    """Writes into a run's working folder where its bundle is."""
    (folder / OUT_NAME).write_text(str(out.resolve()))


def is_awaited(run: Path, out: Path) -> bool:
    """Whether a working folder is the proof of another bundle than `out`, which was begun and can be taken up."""
    # Somebody else's folder cannot be read, and one can vanish meanwhile.
    with suppress(OSError):
        other = Path((run / OUT_NAME).read_text())
        return other != out.resolve() and (other / CHANGE).is_file() and not (other / SHA256SUMS).exists()
    return False


def recover(out: Path, recorder: Recorder) -> None:
    """Records the servers of the killed run whose bundle this is, from its working folder.

    Raises:
        ConfigurationError: answers are in the bundle whose server's ledger is gone; they prove nothing.
    """
    for run in sorted(Path(tempfile.gettempdir()).glob(f"{RUN_FOLDER}*")):
        mark = run / OUT_NAME
        is_own = run.stat().st_uid == os.getuid()
        if is_own and mark.is_file() and mark.read_text() == str(out.resolve()):
            for arm in Arm:
                for folder in (run / "arms", run / "arms" / TIMING):
                    recover_server(folder / arm.value, run / "head", recorder)
    lost = unproven(recorder.evidence)
    if lost:
        raise ConfigurationError(
            "resume-lost",
            f"What the killed run's servers wrote is gone, and with it the proof of {', '.join(lost)}.",
            "Leave --resume out to judge anew.",
        )


def unproven(evidence: EvidenceSet) -> Sequence[str]:
    """Suites and cells with answers of a server of which no ledger is recorded."""
    tiers = (Tier.CPU, Tier.GPU)
    proven = {
        (t, arm, ledger.session[:8]) for t in tiers for arm in Arm for ledger in evidence.ledgers(arm, t)
    }
    asked = [(r.suite, r.tier, r.arm, r.items) for r in evidence.of(SuiteEvidence)]
    asked += [
        (cell.cell, cell.tier, arm, items)
        for cell in evidence.of(TimingEvidence)
        for _, arm, items in cell.visits
    ]
    names = [
        f"{name} on {arm}"
        for name, tier, arm, items in asked
        if any((tier, arm, session_mark(item)) not in proven for item in items)
    ]
    return list(dict.fromkeys(names))
