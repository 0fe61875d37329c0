"""Which names only a change's own files use."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.facts.python_source.tree import SourceTree
from harness.facts.python_source.walk import walk

_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
_SPACES = bytes(c if c in _LETTERS or c >= 0x80 else 0x20 for c in range(256))


def words_of(content: bytes) -> set[bytes]:
    """The identifiers, keywords, numbers and words of strings in a file."""
    return set(content.translate(_SPACES).split())


def words_in(contents: Iterable[bytes]) -> frozenset[str]:
    """All words of several files as text."""
    found: set[bytes] = set()
    for content in contents:
        found |= words_of(content)
    return frozenset(word.decode("utf-8", errors="replace") for word in found)


@dataclass(slots=True)
class Outside:
    """The names that files of a tree use, all but some files."""

    tree: SourceTree
    is_inside: Callable[[str], bool]
    indexed: frozenset[str]
    """Names whose files are known beforehand."""
    files: Mapping[bytes, Sequence[str]]
    """By such a name the files outside that hold it as a word, in the tree's order."""
    _used: dict[str, str] = field(default_factory=dict)

    def user(self, name: str) -> str:
        """`path:line` of a file outside that uses a name; empty when none does.

        A folder or module of that name which is only imported from is no use of the name.
        """
        if name not in self._used:
            self._used[name] = self._find(name)
        return self._used[name]

    def holding(self, name: str) -> Iterable[str]:
        """The files outside that hold a name as a word, in strings and comments too, in the tree's order."""
        if name in self.indexed:
            return self.files.get(name.encode(), ())
        wanted = name.encode()
        files = self.tree.files.items()
        spelling = (path for path, content in files if wanted in content and wanted in words_of(content))
        return (path for path in spelling if not self.is_inside(path))

    def _find(self, name: str) -> str:
        wanted = name.encode()
        doubtful = []
        for path in self.holding(name):
            content = self.tree.files[path]
            position = content.find(wanted)
            while position >= 0:
                if _is_plain_use(content, position, len(wanted)):
                    line = content.count(b"\n", 0, position) + 1
                    return f"{path}:{line}"
                position = content.find(wanted, position + 1)
            doubtful.append(path)
        return next((use for path in doubtful if (use := self._parsed_use(path, name))), "")

    def _parsed_use(self, path: str, name: str) -> str:
        if not re.search(rb"(?<!\w)" + re.escape(name.encode()) + rb"(?!\w)", self.tree.files[path]):
            return ""
        parsed = self.tree.parse(path)
        if parsed is None:
            return f"{path}:1"
        used = (node for node in walk(parsed) if name in names_in(node))
        return next((f"{path}:{getattr(node, 'lineno', 1)}" for node in used), "")


def _is_plain_use(content: bytes, start: int, length: int) -> bool:
    """Whether a name stands where it is an attribute, called or assigned, outside imports, strings and comments."""
    end = start + length
    before, after = content[start - 1 : start], content[end : end + 2].lstrip()[:1]
    if _is_letter(before) or _is_letter(content[end : end + 1]):
        return False
    if before != b"." and after not in (b"(", b"=", b":"):
        return False
    line = content[content.rfind(b"\n", 0, start) + 1 : start]
    if any(mark in line for mark in (b"#", b'"', b"'")):
        return False
    return not line.lstrip().startswith((b"from ", b"import "))


def _is_letter(byte: bytes) -> bool:
    return byte.isalnum() or byte == b"_" or byte >= b"\x80"


def outside_of(
    base: SourceTree,
    head: SourceTree,
    inside_base: Callable[[str], bool],
    inside_head: Callable[[str], bool],
    names: frozenset[str],
) -> tuple[Outside, Outside]:
    """Where both trees use names outside some files; files that they have in common are read once."""
    wanted = {name.encode() for name in names}
    read: dict[bytes, set[bytes]] = {}
    sides = []
    for tree, is_inside in ((base, inside_base), (head, inside_head)):
        files: dict[bytes, list[str]] = {}
        for path, content in tree.files.items():
            if is_inside(path):
                continue
            if content not in read:
                read[content] = wanted.intersection(content.translate(_SPACES).split())
            for word in read[content]:
                files.setdefault(word, []).append(path)
        sides.append(Outside(tree, is_inside, names, files))
    return sides[0], sides[1]


def names_in(node: ast.AST) -> tuple[str, ...]:
    """The names that a node itself uses or gives: not those of modules that it imports from."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        return (node.attr,)
    if isinstance(node, ast.arg | ast.keyword):
        return (node.arg or "",)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return (node.value,)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return (node.name,)
    if isinstance(node, ast.ImportFrom):
        return tuple(alias.name for alias in node.names)
    return ()
