import sys
from pathlib import Path

from harness.app.selftest.resealing import Records, reseal
from harness.model.evidence import TimingBlock
from harness.model.words import Arm


def less(block: TimingBlock) -> TimingBlock:
    """A block of the candidate at batch 8 without its last request."""
    lost = block.arm is Arm.CANDIDATE and len(block.items) > 1 and block.pair == 0
    return block.model_copy(update={"items": block.items[:-1]}) if lost else block


def edited(records: Records) -> Records:
    return [
        r.model_copy(update={"blocks": tuple(map(less, r.blocks))}) if r.kind == "timing" else r
        for r in records
    ]


reseal(Path(sys.argv[1]), edited)
