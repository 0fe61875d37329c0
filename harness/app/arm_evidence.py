"""What one arm's server leaves, as evidence: also after the run that started it was killed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.app.recorder import Recorder, utc_now
from harness.engine.coverage_reader import read_coverage
from harness.engine.ledger_reader import LedgerReading, read_ledger
from harness.model.errors import EvidenceError
from harness.model.evidence import ArmEvidence, CoverageEvidence, LedgerEvidence
from harness.model.probe import DrawnWeights
from harness.model.record import Record
from harness.model.words import Arm, Tier

STARTED_NAME = "started.json"


class ArmServerRecord(Record):
    """How a server was started: what only the run that started it knows."""

    arm: Arm
    tier: Tier = Tier.CPU
    nonce: str
    command: tuple[str, ...]
    additional_config: dict[str, str]
    ready_s: float | None
    """None until it is ready."""
    weights: DrawnWeights | None = None
    """None where a checkpoint holds them."""
    coverage_globs: tuple[str, ...]
    """None where no coverage was asked for."""


def keep_started(server: ArmServerRecord, folder: Path) -> None:
    """Writes how the server was started beside its ledger."""
    (folder / STARTED_NAME).write_text(server.model_dump_json())


def recover_server(folder: Path, import_path: Path, recorder: Recorder) -> None:
    """Records a server whose run was killed, from what it left; nothing where none was ready or it is recorded.

    The server did not fail: it ended with its run.
    """
    started = folder / STARTED_NAME
    if not started.is_file():
        return
    server = ArmServerRecord.model_validate_json(started.read_bytes())
    if any(r.session == server.nonce for r in recorder.evidence.ledgers(server.arm, server.tier)):
        return
    recorder.progress.say(f"{server.arm}: recording what the killed run's server left")
    record_server(server, folder, import_path, recorder)


def record_server(
    server: ArmServerRecord,
    folder: Path,
    import_path: Path,
    recorder: Recorder,
    *,
    failure: str = "",
    log_tail: Sequence[str] = (),
) -> None:
    """Records the arm, its ledger and its coverage, as far as they are there."""
    reading = read_ledger(folder, server.nonce)
    recorder.record(_arm_evidence(server, reading, recorder.hardware, failure, log_tail))
    if reading.rows:
        recorder.record(
            LedgerEvidence(
                tier=server.tier,
                recorded_at=utc_now(),
                hardware=recorder.hardware,
                command=server.command,
                arm=server.arm,
                session=server.nonce,
                rows=reading.rows,
            )
        )
    if server.coverage_globs and server.ready_s is not None:
        _record_coverage(server, folder, import_path, recorder)


def _arm_evidence(
    server: ArmServerRecord, reading: LedgerReading, hardware: str, failure: str, log_tail: Sequence[str]
) -> ArmEvidence:
    return ArmEvidence(
        tier=server.tier,
        recorded_at=utc_now(),
        hardware=hardware,
        command=server.command,
        arm=server.arm,
        additional_config=server.additional_config,
        started=server.ready_s is not None,
        ready_s=None if server.ready_s is None else round(server.ready_s, 1),
        failure=failure,
        log_tail=tuple(log_tail),
        proof=reading.proof,
        ledger_problems=reading.problems,
        ledger_notes=reading.notes,
        imported=reading.imported,
        modules=reading.modules,
        weights=server.weights,
    )


def _record_coverage(server: ArmServerRecord, folder: Path, import_path: Path, recorder: Recorder) -> None:
    try:
        files = read_coverage(folder, import_path, server.coverage_globs)
    except EvidenceError as error:
        recorder.gap(server.tier, f"coverage of {server.arm}", error.message, broke=True)
        return
    recorder.record(
        CoverageEvidence(
            tier=server.tier,
            recorded_at=utc_now(),
            hardware=recorder.hardware,
            command=server.command,
            arm=server.arm,
            files=files,
        )
    )
