import sys
from pathlib import Path

from harness.app.selftest.resealing import Records, reseal
from harness.model.evidence import TimingBlock


def turned(block: TimingBlock) -> TimingBlock:
    return block.model_copy(update={"items": block.items[::-1]})


def edited(records: Records) -> Records:
    return [
        r.model_copy(update={"blocks": tuple(map(turned, r.blocks))}) if r.kind == "timing" else r
        for r in records
    ]


reseal(Path(sys.argv[1]), edited)
