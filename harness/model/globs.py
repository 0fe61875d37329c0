"""Globs over repository paths: `*` and `?` stay inside one folder, `**` crosses folders.

A glob is always anchored at the repository root and case-sensitive, and names files: `docs/**` is everything
below `docs`, `docs/` is the same, `docs` is a file of that name. Brackets, braces, negation and backslashes are
not part of the language, so that what a glob reaches can be read off it and two globs can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache

_CROSS = "**"
_FOREIGN = "[]{}!\\"


def glob_problem(glob: str) -> str | None:
    """What is wrong with a glob, as "got X, expected Y"; None when it can be used."""
    bare = glob.removesuffix("/")
    if not bare:
        return f'got "{glob}", expected a glob'
    found = [c for c in _FOREIGN if c in glob]
    if found:
        return f'got "{glob}" with "{found[0]}", expected only the wildcards *, ? and **'
    if any(part in ("", ".", "..") for part in bare.split("/")):
        return f'got "{glob}", expected a path from the repository root without "/" in front, "." and ".."'
    return None


def literal_parts(glob: str) -> tuple[str, ...]:
    """The leading folder or file names of a glob that hold no wildcard."""
    parts = []
    for part in _segments(glob):
        if "*" in part or "?" in part:
            break
        parts.append(part)
    return tuple(parts)


def matching_glob(path: str, globs: Iterable[str]) -> str | None:
    """The first of `globs` that matches `path`; None when none does."""
    return next((glob for glob in globs if _compiled(glob).fullmatch(path)), None)


def matches_any(path: str, globs: tuple[str, ...]) -> bool:
    """Whether one of `globs` matches `path`; quicker than asking which."""
    return _compiled_union(globs).fullmatch(path) is not None


def globs_overlap(left: str, right: str) -> bool:
    """Whether some path matches both globs."""
    return _segments_overlap(_segments(left), _segments(right))


@lru_cache(maxsize=4096)
def _segments(glob: str) -> tuple[str, ...]:
    """Folder by folder; a final `**` becomes `**`, `*` since it stands for at least one name."""
    parts: list[str] = []
    for part in (glob + "**" if glob.endswith("/") else glob).split("/"):
        if part != _CROSS or not parts or parts[-1] != _CROSS:
            parts.append(part)
    if parts[-1] == _CROSS:
        parts.append("*")
    return tuple(parts)


@lru_cache(maxsize=4096)
def _compiled(glob: str) -> re.Pattern[str]:
    segments = _segments(glob)
    text = ""
    for index, part in enumerate(segments):
        if part == _CROSS:
            text += "(?:[^/]+/)*"
            continue
        text += _segment_expression(part) + ("/" if index < len(segments) - 1 else "")
    return re.compile(text)


@lru_cache(maxsize=256)
def _compiled_union(globs: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{_compiled(glob).pattern})" for glob in globs) or "(?!)")


def _segment_expression(part: str) -> str:
    if part.strip("*") == "":
        return "[^/]+"
    pieces = re.split(r"(\*+|\?)", part)
    return "".join("[^/]*" if p.startswith("*") else "[^/]" if p == "?" else re.escape(p) for p in pieces)


@cache
def _segments_overlap(left: tuple[str, ...], right: tuple[str, ...]) -> bool:
    if not left or not right:
        return all(part == _CROSS for part in left + right)
    if left[0] == _CROSS:
        return _segments_overlap(left[1:], right) or _segments_overlap(left, right[1:])
    if right[0] == _CROSS:
        return _segments_overlap(right, left)
    return _names_overlap(left[0], right[0]) and _segments_overlap(left[1:], right[1:])


@cache
def _names_overlap(left: str, right: str) -> bool:
    """Whether one non-empty name matches both patterns of one folder level."""
    if not left or not right:
        return (left + right).strip("*") == ""
    if left[0] == "*":
        return _names_overlap(left[1:], right) or _names_overlap(left, right[1:])
    if right[0] == "*":
        return _names_overlap(right, left)
    return (left[0] == right[0] or "?" in (left[0], right[0])) and _names_overlap(left[1:], right[1:])
