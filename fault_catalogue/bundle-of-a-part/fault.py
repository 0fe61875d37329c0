import sys
from pathlib import Path

from harness.cli import main

bundle, repo = map(Path, sys.argv[1:])
main(
    [
        "validate",
        "--repo",
        str(repo),
        "--base",
        "HEAD~1",
        "--tier",
        "static",
        "--paths",
        "specialized_path/runtime/**",
        "--out",
        str(bundle),
    ]
)
