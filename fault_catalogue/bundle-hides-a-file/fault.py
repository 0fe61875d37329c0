import sys
from pathlib import Path

from harness.app.selftest.resealing import reseal

bundle = Path(sys.argv[1])


reseal(
    bundle,
    lambda records: [
        r.model_copy(update={"files": r.files[1:]}) if r.kind == "changed_files" else r for r in records
    ],
)
