"""Where two JSON values differ, by JSON pointer (RFC 6901)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueDifference:
    """One place; `stored` or `rebuilt` is None as text where only the other has a value."""

    pointer: str
    stored: Any
    rebuilt: Any


class _Absent:
    def __repr__(self) -> str:
        return "(absent)"


ABSENT = _Absent()
"""Stands for a value that one side does not have."""


def join_pointer(*parts: str | int) -> str:
    """The JSON pointer of a path of keys and indices."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def diff_json(stored: Any, rebuilt: Any, pointer: str = "") -> Iterator[ValueDifference]:
    """Every leaf in which the two differ, in the order of their keys."""
    if isinstance(stored, dict) and isinstance(rebuilt, dict):
        for key in sorted({*stored, *rebuilt}):
            pair = stored.get(key, ABSENT), rebuilt.get(key, ABSENT)
            yield from diff_json(*pair, pointer + join_pointer(key))
    elif isinstance(stored, list) and isinstance(rebuilt, list):
        for index in range(max(len(stored), len(rebuilt))):
            left = stored[index] if index < len(stored) else ABSENT
            right = rebuilt[index] if index < len(rebuilt) else ABSENT
            yield from diff_json(left, right, pointer + join_pointer(index))
    elif stored != rebuilt or type(stored) is not type(rebuilt):
        yield ValueDifference(pointer=pointer, stored=stored, rebuilt=rebuilt)
