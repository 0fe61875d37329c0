import subprocess
import sys
from pathlib import Path

from harness.app.selftest.resealing import reseal
from harness.cli import main

bundle, repo = map(Path, sys.argv[1:])
with (repo / "specialized_path/runtime/limits.py").open("a") as file:
    file.write('\nimport os\n\nos.environ["OMP_NUM_THREADS"] = "1"\n')
git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.invalid", "-C", str(repo)]
subprocess.run([*git, "commit", "-qam", "one more"], check=True)
main(["validate", "--repo", str(repo), "--base", "origin/main", "--tier", "static", "--out", str(bundle)])
reseal(bundle, lambda records: [r for r in records if r.kind != "python_effects"])
