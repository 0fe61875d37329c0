import sys
from pathlib import Path

from harness.app.selftest.resealing import Records, reseal
from harness.model.evidence import LedgerEvidence
from harness.model.words import Arm


def halved(ledger: LedgerEvidence) -> LedgerEvidence:
    """Every step half as long and half as far from the first."""
    start = ledger.rows[0].started_ns
    rows = [
        row.model_copy(
            update={
                "started_ns": start + (row.started_ns - start) // 2,
                "duration_ns": row.duration_ns // 2,
            }
        )
        for row in ledger.rows
    ]
    return ledger.model_copy(update={"rows": tuple(rows)})


def edited(records: Records) -> Records:
    return [halved(r) if r.kind == "ledger" and r.arm is Arm.CANDIDATE else r for r in records]


reseal(Path(sys.argv[1]), edited)
