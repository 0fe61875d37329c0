import sys
from pathlib import Path

from harness.app.selftest.resealing import Records, reseal
from harness.model.evidence import TimingBlock, TimingEvidence


def chosen(cell: TimingEvidence) -> tuple[TimingBlock, ...]:
    """The blocks of the five pairs that look best."""

    def ratio(pair: int) -> float:
        took = {b.arm: sum(i.token_times_ms[-1] for i in b.items) for b in cell.blocks if b.pair == pair}
        return took[cell.compares[1]] / took[cell.compares[0]]

    best = sorted({b.pair for b in cell.blocks}, key=ratio)[:5]
    return tuple(b for b in cell.blocks if b.pair in best)


def edited(records: Records) -> Records:
    return [r.model_copy(update={"blocks": chosen(r)}) if r.kind == "timing" else r for r in records]


reseal(Path(sys.argv[1]), edited)
