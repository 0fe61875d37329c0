"""The Python files of one commit: found by module name, by a word in them, and parsed once."""

from __future__ import annotations

import ast
import re
import sys
import unicodedata
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from harness.facts.python_source.deep_stack import PARSER_LIMIT
from harness.facts.python_source.names import module_name, package_of

_SOURCE_FOLDERS = ("src", "python", "lib")
"""Folders above a package that are no part of a module's name."""
_COOKIE = re.compile(rb"(?:[^\r\n]*\r?\n)?[^\r\n]*coding[:=]")
"""In the first two lines: the file may be in an encoding in which letters are other bytes."""


@dataclass(slots=True)
class SourceTree:
    """Python files by repository path, as committed; parsed when first asked for."""

    files: Mapping[str, bytes]
    _parsed: dict[str, ast.Module | str] = field(default_factory=dict)
    _plain: dict[str, bytes] = field(default_factory=dict)
    _modules: dict[str, str] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        folders = {path.rpartition("/")[0] for path in self.files if path.endswith("/__init__.py")}
        skipped = tuple(f"{folder}/" for folder in _SOURCE_FOLDERS if folder not in folders)
        for path in sorted(self.files):
            inner = next((path.removeprefix(s) for s in skipped if path.startswith(s)), path)
            self._names[path] = module_name(inner)
            if path.endswith("/__init__.py") and self.rival(path) == self._modules.get(self._names[path]):
                self._modules[self._names[path]] = path
            self._modules.setdefault(self._names[path], path)

    def module_of(self, path: str) -> str:
        """The dotted name under which a file of this tree is imported."""
        return self._names[path]

    def package_of(self, path: str) -> str:
        """The package that relative imports of a file start from."""
        return package_of(self._names[path], is_package=path.endswith("__init__.py"))

    def path_of(self, module: str) -> str | None:
        """The file of a module, of a package and a module the package's; None when the tree has none of that name."""
        return self._modules.get(module)

    def rival(self, path: str) -> str:
        """The other file of the same module, a package beside a module, of which Python takes the package; or empty."""
        if path.endswith("/__init__.py"):
            other = f"{path.removesuffix('/__init__.py')}.py"
        else:
            other = f"{path.removesuffix('.py')}/__init__.py"
        return other if other in self.files else ""

    def parse(self, path: str) -> ast.Module | None:
        """The syntax tree of a file; None when there is no such file or it does not parse."""
        parsed = self._parse(path)
        return parsed if isinstance(parsed, ast.Module) else None

    def problem(self, path: str) -> str:
        """Why a file cannot be parsed; empty when it can."""
        parsed = self._parse(path)
        return parsed if isinstance(parsed, str) else ""

    def lines(self, path: str) -> list[str]:
        """The lines of a file as text; bytes that are no UTF-8 are escaped, carriage returns dropped."""
        text = self.files.get(path, b"").decode("utf-8", errors="backslashreplace")
        return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []

    def mentioning(self, words: Iterable[str]) -> tuple[str, ...]:
        """The files that hold at least one of the words, anywhere, as a whole word."""
        wanted = [word.encode() for word in dict.fromkeys(words)]
        if not wanted:
            return ()
        whole = re.compile(rb"(?<![\w])(?:" + b"|".join(map(re.escape, wanted)) + rb")(?![\w])")
        return tuple(
            path
            for path, content in sorted(self.files.items())
            if any(word in (text := self._as_read(path, content)) for word in wanted) and whole.search(text)
        )

    def may_name(self, path: str, name: str) -> bool:
        """Whether a name may stand in a file: not where its letters do not, unless they may be written otherwise."""
        content = self.files.get(path, b"")
        return name.encode() in content or not content.isascii() or _COOKIE.match(content) is not None

    def _as_read(self, path: str, content: bytes) -> bytes:
        """A file with its letters as Python reads them in names: full-width ones, for instance, as plain ones."""
        if content.isascii():
            return content
        if path not in self._plain:
            text = content.decode("utf-8", errors="surrogateescape")
            plain = unicodedata.normalize("NFKC", text)
            self._plain[path] = content if plain == text else plain.encode("utf-8", errors="surrogateescape")
        return self._plain[path]

    def _parse(self, path: str) -> ast.Module | str:
        if path not in self._parsed:
            self._parsed[path] = _parsed(self.files.get(path))
        return self._parsed[path]


def _parsed(content: bytes | None) -> ast.Module | str:
    if content is None:
        return "there is no such file"
    limit = sys.getrecursionlimit()
    try:
        # However deep the reader may go, a file is read if Python can read it.
        sys.setrecursionlimit(PARSER_LIMIT)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(content)
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        return f"it is not Python {sys.version_info.major}.{sys.version_info.minor}: {where}{error.msg}"
    except (RecursionError, MemoryError):
        return "it is nested more deeply than Python parses"
    except ValueError as error:
        return f"it cannot be parsed: {error}"
    finally:
        sys.setrecursionlimit(limit)
