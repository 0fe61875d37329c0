"""A cheap test of bytes: whether a file may import one of some modules."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

_NEAR = 3
"""Folders from the top that two files share when a relative import may lead from one to the other."""
_IMPORT = rb"^[ \t]*(?:from|import)[ \t][^\n]*(?<!\w)%b(?!\w)|^[ \t]+%b,?[ \t]*$"


@dataclass(slots=True)
class MayImport:
    """Never False for a file that imports one of the modules by a statement."""

    modules: Collection[str]
    """Dotted names."""
    paths: Collection[str]
    """Their files."""
    _packages: tuple[bytes, ...] = field(init=False)
    _folders: frozenset[tuple[str, ...]] = field(init=False)
    _mentions: re.Pattern[bytes] = field(init=False)

    def __post_init__(self) -> None:
        packages = {module.rpartition(".")[0] for module in self.modules}
        self._packages = tuple(sorted({".".join(p.split(".")[-2:]).encode() for p in packages}))
        self._folders = frozenset(tuple(path.split("/")[:-1][:_NEAR]) for path in self.paths)
        words = sorted({module.rpartition(".")[2].encode() for module in self.modules})
        group = b"(?:" + (b"|".join(map(re.escape, words)) or rb"(?!)") + b")"
        self._mentions = re.compile(_IMPORT.replace(b"%b", group), flags=re.MULTILINE)

    def __call__(self, path: str, content: bytes) -> bool:
        """An import needs the package's name, or a place from which dots lead there, and the module's name."""
        parts = tuple(path.split("/")[:-1])
        is_near = any(parts[: len(folder)] == folder for folder in self._folders)
        if not is_near and not any(package in content for package in self._packages):
            return False
        return self._mentions.search(content) is not None
