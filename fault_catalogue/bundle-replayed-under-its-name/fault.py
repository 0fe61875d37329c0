import subprocess
import sys
from pathlib import Path

from bundles.reader import read_bundle
from harness.app.selftest.resealing import Records, reseal

bundle, repo = map(Path, sys.argv[1:])
git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.invalid", "-C", str(repo)]
(repo / "README.md").write_text("other words\n")
subprocess.run([*git, "commit", "-qam", "one more"], check=True)
head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
before = read_bundle(bundle).change.head


def renamed(records: Records) -> Records:
    """Every record says that it is of the other commit."""
    return [
        r.model_copy(update={"commit": head}) if getattr(r, "commit", "") == before else r for r in records
    ]


reseal(bundle, renamed, change=lambda c: c.model_copy(update={"head": head, "head_subject": "one more"}))
