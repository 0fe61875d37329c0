"""Reads what the command line names: PTX and SASS texts, cubins, folders of them, sources, entry points."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from harness.audit.modules import Module, Text
from harness.audit.roles import AuditOptions
from harness.audit.toolchain.dumps import Dump, collect_dumps
from harness.model.errors import ConfigurationError

SUFFIXES = (".ptx", ".sass", ".cubin")
SOURCE_SUFFIXES = (".py", ".cu", ".cuh", ".h", ".hpp", ".cpp", ".mlir")
"""Files in which waits written as inline assembly are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedInputs:
    """What the arguments of the command line stand for."""

    modules: tuple[Module, ...]
    sources: tuple[Path, ...]
    entries: tuple[str, ...]
    """`module:function`."""


def collect_inputs(names: tuple[str, ...], options: AuditOptions, arches: tuple[str, ...]) -> NamedInputs:
    """Everything that `names` stand for; raises ConfigurationError for a name that is nothing."""
    files, entries = [], []
    for name in names:
        path = Path(name)
        if path.exists():
            files.append(path)
        elif re.fullmatch(r"[\w.]+:[\w.]+", name):
            entries.append(name)
        else:
            raise ConfigurationError("no-such-input", f"{name}: no file, no folder, and no module:function")
    sources = tuple(source for path in files for source in _sources(path))
    others = [p for p in files if p.is_file() and p.suffix not in (*SUFFIXES, *SOURCE_SUFFIXES)]
    for path in files:
        if path.is_dir() and not collect_dumps((path,)) and not _sources(path):
            kinds = ", ".join((*SUFFIXES, *SOURCE_SUFFIXES))
            raise ConfigurationError("no-kernels", f"{path}: no file below this folder is one of {kinds}")
    dumps = list(collect_dumps(tuple(p for p in files if p.is_dir() or p.suffix in SUFFIXES)))
    dumps += [Dump(stem=path.name, arch="", ptx=path) for path in others]
    return NamedInputs(
        modules=tuple(_modules(dumps, options, arches)), sources=sources, entries=tuple(entries)
    )


def _sources(path: Path) -> list[Path]:
    candidates = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [p for p in candidates if p.suffix in SOURCE_SUFFIXES and p.is_file()]


def _modules(dumps: list[Dump], options: AuditOptions, arches: tuple[str, ...]) -> list[Module]:
    """A module for each dump; where names leave open which PTX belongs to which machine code, one for all."""
    with_ptx = [d for d in dumps if d.ptx is not None]
    alone = [d for d in dumps if d.ptx is None]
    lone_ptx = [d for d in with_ptx if d.sass is None and d.cubin is None]
    groups = [[d] for d in with_ptx if d not in lone_ptx]
    groups += [lone_ptx + alone] if lone_ptx and alone else [[d] for d in (*lone_ptx, *alone)]
    groups.sort(key=lambda group: dumps.index(group[0]))
    return [_module(group, options, arches) for group in groups]


def _module(group: list[Dump], options: AuditOptions, arches: tuple[str, ...]) -> Module:
    """The texts of a group; a cubin is disassembled where no SASS text lies beside it."""
    cubins = [d.cubin for d in group if d.cubin is not None and d.sass is None]
    ptx = [d.ptx for d in group if d.ptx is not None]
    sass = [d.sass for d in group if d.sass is not None]
    return Module(
        name=(ptx + sass + cubins)[0].as_posix(),
        ptx=_texts(ptx),
        sass=_texts(sass),
        cubins=_texts(cubins),
        options=options,
        arches=arches,
    )


def _texts(paths: list[Path]) -> tuple[Text, ...]:
    return tuple(Text(name=path.as_posix(), content=path) for path in paths)
