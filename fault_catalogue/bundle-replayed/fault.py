import subprocess
import sys
from pathlib import Path

bundle, repo = map(Path, sys.argv[1:])
git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.invalid", "-C", str(repo)]
path = repo / "specialized_path/runtime/limits.py"
path.write_text(path.read_text().replace("max_num_reqs: int = 8", "max_num_reqs: int = 64"))
subprocess.run([*git, "commit", "-qa", "--amend", "--no-edit"], check=True)
