import sys
from pathlib import Path

from harness.app.selftest.resealing import Records, reseal


def edited(records: Records) -> Records:
    return [r.model_copy(update={"blocks": r.blocks[::-1]}) if r.kind == "timing" else r for r in records]


reseal(Path(sys.argv[1]), edited)
