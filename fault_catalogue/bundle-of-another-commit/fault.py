import subprocess
import sys
from pathlib import Path

bundle, repo = map(Path, sys.argv[1:])
git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.invalid", "-C", str(repo)]
(repo / "README.md").write_text("other words\n")
subprocess.run([*git, "commit", "-qam", "one more"], check=True)
