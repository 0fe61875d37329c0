"""Compiles one entry point in a process of its own; imports nothing of the harness, so any interpreter runs it.

An entry point is a function without arguments. What it compiles is kept by the DSL (`CUTE_DSL_KEEP`) or carried
by what it returns: a CuTe object with `__ptx__` and `__cubin__`, a Triton object with `asm`. A generator compiles
one variant per item; an item is the variant's name, or what was compiled, or both as a pair. Variants are kept
apart, since the DSL names files after argument types and overwrites them.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.metadata
import json
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VERSIONED = ("nvidia-cutlass-dsl", "triton", "torch")
"""Distributions whose versions go into the record."""
COMPILERS = ("nvcc", "nvc", "clang", "gcc", "g++", "cc", "c++", "hipcc", "ninja", "cmake", "make")
"""Programs that read sources of their own choice."""


def main() -> None:
    """Compile `--entry` for `--arch` and write the artefacts and `record.json` into `--out`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--entry", required=True)
    parser.add_argument("--arch", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--root", type=Path, action="append", default=[])
    arguments = parser.parse_args()
    dump = arguments.out / "dump"
    dump.mkdir()
    for prefix in ("CUTE_DSL", "CUTE_EXPERIMENTAL_DSL"):
        os.environ[f"{prefix}_ARCH"] = arguments.arch
        os.environ[f"{prefix}_KEEP"] = "ptx,cubin"
        os.environ[f"{prefix}_DUMP_DIR"] = str(dump)
    # The folder of this file, which Python puts in front, must not lend its modules' names to entry points.
    sys.path[:1] = [str(root) for root in arguments.root]
    seen = _Seen()
    sys.addaudithook(seen.note)
    module, _, function = arguments.entry.partition(":")
    value: Any = importlib.import_module(module)
    for name in function.split("."):
        value = getattr(value, name)
    variants = []
    try:
        for number, item in enumerate(_items(value())):
            name, compiled = _named(item)
            files = _keep(arguments.out, dump, number, compiled)
            variants.append({"variant": name, "files": files})
    finally:
        sources = _sources() | seen.sources(arguments.root, arguments.out)
        record = {
            "variants": variants,
            "versions": _versions(),
            "sources": sources,
            "compiles_elsewhere": seen.compiles_elsewhere,
        }
        (arguments.out / "record.json").write_text(json.dumps(record), encoding="utf-8")


class _Seen:
    """Files that the process opened or handed to a program, and whether a compiler of source text was among these.

    What such a compiler reads by itself (headers) is not seen here, so what it made must not be kept.
    """

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.compiles_elsewhere = False

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        """An audit hook: it must never raise."""
        if event == "open" and isinstance(arguments[0], str):
            self.paths.add(arguments[0])
        elif event == "subprocess.Popen":
            command = arguments[1] if isinstance(arguments[1], (list, tuple)) else [arguments[1]]
            texts = [str(part) for part in command]
            self.paths.update(texts)
            self.compiles_elsewhere |= any(Path(text).name.startswith(COMPILERS) for text in texts)

    def sources(self, roots: list[Path], out: Path) -> dict[str, str]:
        """The sha256 of every such file below the import roots."""
        found = {}
        for text in sorted(self.paths):
            path = Path(text).absolute()
            mine = any(path.is_relative_to(root.absolute()) for root in roots) and path.suffix != ".pyc"
            if mine and not path.is_relative_to(out.absolute()) and path.is_file():
                found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
        return found


def _items(value: Any) -> Iterator[Any]:
    """The variants that an entry point yields, or its one result."""
    if isinstance(value, Iterator):
        yield from value
    else:
        yield value


def _named(item: Any) -> tuple[str, Any]:
    """The variant's name and what was compiled, from any form of item."""
    if isinstance(item, str):
        return item, None
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str):
        return item
    return "", item


def _keep(out: Path, dump: Path, number: int, compiled: Any) -> list[str]:
    """Move what the DSL kept since the last variant, or write what `compiled` carries; returns file names."""
    names = []
    for file in sorted(dump.iterdir()):
        stem = hashlib.sha256(file.name.removesuffix(file.suffix).encode()).hexdigest()[:12]
        names.append(f"{number:04d}-{stem}{file.suffix}")
        file.rename(out / names[-1])
    if names:
        return names
    carried = getattr(compiled, "asm", None)
    texts = carried if isinstance(carried, dict) else {}
    for kind in ("ptx", "cubin"):
        value = texts.get(kind, getattr(compiled, f"__{kind}__", None))
        if isinstance(value, (str, bytes)) and value:
            names.append(f"{number:04d}.{kind}")
            (out / names[-1]).write_bytes(value.encode() if isinstance(value, str) else value)
    return names


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for name in VERSIONED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _sources() -> dict[str, str]:
    """The sha256 of every imported source file outside the standard library."""
    standard = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    found = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py") or not Path(file).is_file():
            continue
        in_packages = "site-packages" in file or "dist-packages" in file
        if any(file.startswith(folder) for folder in standard if folder) and not in_packages:
            continue
        found[file] = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return found


if __name__ == "__main__":
    main()
