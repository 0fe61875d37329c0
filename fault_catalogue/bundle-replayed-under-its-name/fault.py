import subprocess
import sys
from pathlib import Path

from harness.app.selftest.resealing import reseal

bundle, repo = map(Path, sys.argv[1:])
git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.invalid", "-C", str(repo)]
(repo / "README.md").write_text("other words\n")
subprocess.run([*git, "commit", "-qam", "one more"], check=True)
head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
reseal(bundle, change=lambda c: c.model_copy(update={"head": head, "head_subject": "one more"}))
