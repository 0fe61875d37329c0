import sys
from pathlib import Path

from harness.app.selftest.resealing import Records, reseal
from harness.model.evidence import LedgerEvidence
from harness.model.ledger import LedgerRow
from harness.model.words import Arm


def later(ledger: LedgerEvidence) -> tuple[LedgerRow, ...]:
    """The same steps a thousand numbers and a second later."""
    return tuple(
        row.model_copy(update={"step": row.step + 1000, "started_ns": row.started_ns + 10**9})
        for row in ledger.rows
    )


def edited(records: Records) -> Records:
    (other,) = [r for r in records if r.kind == "ledger" and r.arm is Arm.BASELINE]
    return [
        r.model_copy(update={"rows": later(other)}) if r.kind == "ledger" and r.arm is Arm.CANDIDATE else r
        for r in records
    ]


reseal(Path(sys.argv[1]), edited)
