"""Kernel artefacts in a folder: PTX, cubins and SASS text that belong to one compiled module."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

_KINDS = {".ptx": "ptx", ".cubin": "cubin", ".sass": "sass"}
_ARCH = re.compile(r"\.(sm_\d+[af]?)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """The files of one module. `arch` is what the file names say, empty where they do not."""

    stem: str
    arch: str
    ptx: Path | None = None
    cubin: Path | None = None
    sass: Path | None = None


def collect_dumps(paths: tuple[Path, ...]) -> tuple[Dump, ...]:
    """The modules among files and folders (searched to any depth), ordered by path.

    `CUTE_DSL_KEEP` names the PTX and the cubin `stem.arch.suffix` and the SASS `stem.sass`, so a SASS file
    without an architecture in its name joins the only module of its stem and stands alone where several are.
    """
    groups: dict[tuple[Path, str], dict[str, Path]] = defaultdict(dict)
    for file in _files(paths):
        groups[file.parent, file.with_suffix("").name][_KINDS[file.suffix]] = file
    for folder, stem in sorted(groups):
        if not _ARCH.search(stem) and set(groups[folder, stem]) == {"sass"}:
            named = [key for key in groups if key[0] == folder and _ARCH.sub("", key[1]) == stem != key[1]]
            if len(named) == 1 and "sass" not in groups[named[0]]:
                groups[named[0]]["sass"] = groups.pop((folder, stem))["sass"]
    return tuple(_dump(stem, groups[folder, stem]) for folder, stem in sorted(groups))


def _files(paths: tuple[Path, ...]) -> list[Path]:
    found: set[Path] = set()
    for path in paths:
        candidates = path.rglob("*") if path.is_dir() else (path,)
        found.update(p for p in candidates if p.suffix in _KINDS and p.is_file())
    return sorted(found)


def _dump(stem: str, files: dict[str, Path]) -> Dump:
    match = _ARCH.search(stem)
    return Dump(
        stem=_ARCH.sub("", stem),
        arch=match.group(1) if match else "",
        ptx=files.get("ptx"),
        cubin=files.get("cubin"),
        sass=files.get("sass"),
    )
