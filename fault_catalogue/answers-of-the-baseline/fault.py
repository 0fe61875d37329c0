import sys
from pathlib import Path

from harness.app.selftest.resealing import Records, reseal
from harness.model.words import Arm


def edited(records: Records) -> Records:
    told = {r.suite: r.items for r in records if r.kind == "suite" and r.arm is Arm.BASELINE}
    return [
        r.model_copy(update={"items": told[r.suite]})
        if r.kind == "suite" and r.suite == "greedy" and r.arm is Arm.CANDIDATE
        else r
        for r in records
    ]


reseal(Path(sys.argv[1]), edited)
