"""Compiled artefacts kept between runs, valid while every source file that was imported is unchanged."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any


def user_cache() -> Path:
    """`$XDG_CACHE_HOME/fasttrack/kernels`, in `~/.cache` where the variable is unset."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "fasttrack" / "kernels"


@dataclass(frozen=True, slots=True)
class _File:
    """A file as it stood: its digest is remembered until its size or time changes."""

    path: str
    size: int
    modified_ns: int


@cache
def _sha256(file: _File) -> str:
    return hashlib.sha256(Path(file.path).read_bytes()).hexdigest()


def _unchanged(path: str, digest: str) -> bool:
    try:
        status = Path(path).stat()
        return _sha256(_File(path, status.st_size, status.st_mtime_ns)) == digest
    except OSError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCache:
    """Folders of artefacts below `root`, one per key.

    A key names the entry point, the architecture, the interpreter, the tool versions and the environment that
    changes a compilation. A folder found under it counts only while the sources it records have the digests
    that it records.
    """

    root: Path

    def find(self, key: str) -> Path | None:
        """The folder of a key whose recorded sources are all unchanged."""
        folder = self.root / key
        try:
            record: dict[str, Any] = json.loads((folder / "record.json").read_text(encoding="utf-8"))
            sources = dict(record["sources"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return folder if all(_unchanged(path, digest) for path, digest in sources.items()) else None

    def add(self, key: str, folder: Path) -> None:
        """Keep a copy of a finished folder in place of what the key held."""
        self.root.mkdir(parents=True, exist_ok=True)
        staged = Path(tempfile.mkdtemp(dir=self.root, prefix=".new-"))
        shutil.copytree(folder, staged, dirs_exist_ok=True)
        target = self.root / key
        if target.exists():
            shutil.rmtree(target, ignore_errors=True)
        try:
            staged.rename(target)
        except OSError:
            shutil.rmtree(staged, ignore_errors=True)
