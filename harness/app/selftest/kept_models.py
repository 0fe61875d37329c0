"""The miniature model, built once for all changes that leave alone what it is built from."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import source_from_cache
from pathlib import Path

from harness.app.cpu_tier import CHECKPOINT, CpuRun, build_checkpoint

_COMPILED = "__pycache__"
_WATCHER = """\
import os, sys

_log = os.open({log!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
if os.getppid() == {starter}:
    os.mkdir({log!r} + "-by-the-builder")


def _watch(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], (str, bytes)):
        os.write(_log, os.fsencode(os.path.abspath(os.fsdecode(arguments[0]))) + b"\\0")


sys.addaudithook(_watch)
"""
"""Notes what a Python process opens and lists, and what those that it starts do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptModel:
    """A built model, and what it was built from."""

    folder: Path
    command: tuple[str, ...]
    read: Mapping[str, str]
    """By path below the import roots' folder: what the builder found there."""


class KeptModels:
    """The models that one process of a selftest has built."""

    def __init__(self, folder: Path) -> None:
        """They are kept below `folder`."""
        self._folder = folder
        self._kept: list[KeptModel] = []

    def build(self, run: CpuRun) -> Path:
        """As `build_checkpoint`: writes the model into the run's folder, a copy where it would be the same."""
        out, command = run.workdir / CHECKPOINT, run.manifest.nano_model.build
        for kept in self._kept:
            if kept.command == command and found_at(run.import_path, kept.read) == kept.read:
                shutil.copytree(kept.folder, out, dirs_exist_ok=True)
                return out
        self._folder.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        log = folder / "read"
        watcher = _WATCHER.format(log=str(log), starter=os.getpid())
        (folder / "sitecustomize.py").write_text(watcher, encoding="utf-8")
        build_checkpoint(run, before=folder)
        # A builder whose reading was not seen is asked each time.
        if out.is_dir() and log.with_name("read-by-the-builder").exists():
            shutil.copytree(out, folder / CHECKPOINT)
            # Python has looked for modules of its own in the topmost folder before anything watched.
            state = found_at(
                run.import_path, {".", *_paths_read(log, run.import_path), *_data_below(run.import_path)}
            )
            self._kept.append(KeptModel(folder=folder / CHECKPOINT, command=command, read=state))
        return out


def found_at(root: Path, paths: Iterable[str]) -> dict[str, str]:
    """What is at each path below `root`: a file's digest, a folder's names; empty where nothing is."""
    return {path: _found(root / path) for path in paths}


def _found(path: Path) -> str:
    if path.is_dir():
        return "/".join(sorted(inner.name for inner in path.iterdir() if inner.name != _COMPILED))
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _paths_read(log: Path, root: Path) -> set[str]:
    """What was opened or listed below `root`; of compiled files their sources."""
    text = os.fsdecode(log.read_bytes()) if log.is_file() else ""
    seen = [Path(source_from_cache(p) if _is_compiled(p) else p) for p in text.split("\0")]
    return {p.relative_to(root).as_posix() for p in seen if p.is_relative_to(root) and p.name != _COMPILED}


def _is_compiled(path: str) -> bool:
    return Path(path).parent.name == _COMPILED and path.endswith(".pyc")


def _data_below(root: Path) -> set[str]:
    """Files that are not Python: a library may read them past Python's own `open`."""
    return {
        p.relative_to(root).as_posix()
        for p in root.rglob("*")
        if p.is_file() and p.suffix not in (".py", ".pyc")
    }
