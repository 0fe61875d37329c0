import sys
from pathlib import Path

from harness.app.selftest.resealing import Records, reseal
from harness.model.evidence import TimingBlock, TimingEvidence


def first_comes_first(cell: TimingEvidence) -> tuple[TimingBlock, ...]:
    """The same blocks, each pair's in the order of the arms that the cell compares."""
    blocks = sorted(cell.blocks, key=lambda b: (b.pair, cell.compares.index(b.arm)))
    return tuple(b.model_copy(update={"position": i}) for i, b in enumerate(blocks))


def edited(records: Records) -> Records:
    return [
        r.model_copy(update={"blocks": first_comes_first(r)}) if r.kind == "timing" else r for r in records
    ]


reseal(Path(sys.argv[1]), edited)
