"""Scratch git repositories, made with the real git."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

_IDENTITY = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


class ScratchRepository:
    """A repository on `main` with a first commit that holds one file, `README.md`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.git("init", "--quiet", "--initial-branch=main", ".")
        self.first = self.commit({"README.md": "read me\n"})

    def git(self, *args: str, stdin: bytes = b"") -> str:
        """One git command's output."""
        done = subprocess.run(
            ["git", *args],
            cwd=self.folder,
            env={k: v for k, v in os.environ.items() if not k.startswith("GIT_")} | _IDENTITY,
            input=stdin,
            capture_output=True,
            check=True,
        )
        return done.stdout.decode(errors="backslashreplace").strip()

    def write(self, files: dict[str, str | bytes]) -> None:
        """Writes files into the working tree."""
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    def commit(self, files: dict[str, str | bytes] | None = None, message: str = "change") -> str:
        """Writes files, commits everything in the working tree and returns the commit."""
        self.write(files or {})
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        return self.git("rev-parse", "HEAD")

    def branch(self, name: str = "feature") -> None:
        """Starts a branch and switches to it."""
        self.git("switch", "--quiet", "--create", name)


@pytest.fixture
def scratch(tmp_path: Path) -> ScratchRepository:
    """A fresh repository."""
    return ScratchRepository(tmp_path / "repository")
