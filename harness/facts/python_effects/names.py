"""Looks for names in the Python files of others: whether an entry or a variable of that name exists already."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from harness.facts.engine_source import EngineSource
from harness.model.effects import FoundName, NameSearch

_MAX_PLACES = 20
_MAX_ENGINES = 4
"""Of which a process that judges one change after the other keeps what was looked for."""
_BEGINNING = re.compile(rb"[\"']((?:[A-Z][A-Z0-9]*_)+)(?:\{|%|[\"'])")
_KEPT = re.compile(rb"(?<![=!<>])=$")
_CAPITALS = re.compile(r"[A-Z][A-Z0-9]*_")
_COMPARES = re.compile(rb"(==|!=|\bin|\bis|\bcase|\|)$")
_ENTERS = re.compile(
    rb"(register\w*\(|add_argument\(|model_type\s*(:\s*\w+\s*)?=|getenv\(|environ(\.get\(|\[))$"
)


def search_names(names: Iterable[str], files: Mapping[str, bytes]) -> tuple[NameSearch, ...]:
    """Where each name stands in quotes in the files, those written like keys first.

    A name in capitals is found as well where code computes names that begin as it does.

    Args:
        names: what to look for.
        files: Python text by place.
    """
    wanted = sorted(set(names))
    found: dict[str, list[FoundName]] = {name: [] for name in wanted}
    if wanted:
        quoted = b"|".join(re.escape(name.encode()) for name in wanted)
        pattern = re.compile(rb"([\"'])(" + quoted + rb")\1")
        capitals = [name for name in wanted if _CAPITALS.match(name)]
        for path, content in files.items():
            for match in pattern.finditer(content):
                found[match[2].decode()].append(_found(path, content, match, is_key=_is_key(content, match)))
            for match in _BEGINNING.finditer(content) if capitals else ():
                for name in capitals:
                    if name.startswith(match[1].decode()) and _is_completed(content, match):
                        found[name].append(_found(path, content, match, is_key=False))
    return tuple(NameSearch(name=name, found=_first(found[name])) for name in wanted)


@lru_cache(_MAX_ENGINES)
def search_engine(names: frozenset[str], source: EngineSource) -> tuple[NameSearch, ...]:
    """The same in the engine's files."""
    return search_names(names, source.files)


def search_both(
    names: frozenset[str], source: EngineSource, others: Mapping[str, bytes]
) -> tuple[NameSearch, ...]:
    """The same in the engine's files and in others, which stand for the engine's where it has a file of that path."""
    if not others.keys().isdisjoint(source.files):
        return search_names(names, {**source.files, **others})
    pairs = zip(search_engine(names, source), search_names(names, others), strict=True)
    return tuple(NameSearch(name=a.name, found=_first((*a.found, *b.found))) for a, b in pairs)


def _first(found: Iterable[FoundName]) -> tuple[FoundName, ...]:
    return tuple(sorted(found, key=lambda f: (not f.is_key, f.place))[:_MAX_PLACES])


def _found(path: str, content: bytes, match: re.Match[bytes], *, is_key: bool) -> FoundName:
    line = content.count(b"\n", 0, match.start()) + 1
    return FoundName(place=f"{path}:{line}", is_key=is_key)


def _is_completed(content: bytes, match: re.Match[bytes]) -> bool:
    """Whether code completes the beginning of a name, or keeps it to do so: `f"OWN_{name}"`, `PREFIX = "OWN_"`.

    One that names are compared with (`name.startswith("OWN_")`, an element of a list) reads none of them.
    """
    is_whole = match[0][-1:] in (b'"', b"'")
    after = content[match.end() : match.end() + 8].lstrip()
    before = content[max(match.start() - 8, 0) : match.start()].rstrip()
    return not is_whole or after.startswith((b"+", b"%")) or _KEPT.search(before) is not None


def _is_key(content: bytes, match: re.Match[bytes]) -> bool:
    """Whether the quoted name stands where an entry's name does."""
    after = content[match.end() : match.end() + 8].lstrip(b" \t")
    before = content[max(match.start() - 60, 0) : match.start()].rstrip()
    if after.startswith(b":") and not _COMPARES.search(before):
        return True
    return re.match(rb"\]\s*=(?!=)", after) is not None or _ENTERS.search(before) is not None
