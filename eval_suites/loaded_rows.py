"""Rows of a suite before they are measured: read from a data set, or generated."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_suites.row_files import RawRow, RowError, bad_rows, read_source
from harness.model.evals import EvalSource
from harness.model.evaluation import EvalRow
from harness.model.record import render_canonical_json

ParseRow = Callable[[Mapping[str, Any], str], EvalRow]
"""A row's values and its name to the row; raises `RowError`."""
_CHARS_PER_TOKEN = 16
"""No tokenizer's average over a long text; what has more characters need not be measured to be too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRows:
    """The rows of one source."""

    rows: tuple[EvalRow, ...]
    source: str
    sha256: str
    """Over all rows of the source."""
    num_left_out: int = 0
    """Rows that no context of `max_context` can hold, which are not kept in memory."""


def load_rows(source: EvalSource, root: Path, parse: ParseRow, max_context: int) -> LoadedRows:
    """All rows of a data set that a context of `max_context` tokens may hold.

    Raises:
        ConfigurationError: the data set cannot be read, or rows are not what the format says; each is named.
    """
    return collect_rows(read_source(source, root), source.name, parse, max_context)


def collect_rows(raw_rows: Iterable[RawRow], source: str, parse: ParseRow, max_context: int) -> LoadedRows:
    """Parses rows one by one and digests them; raises `ConfigurationError` with the place of every bad row."""
    digest = hashlib.sha256()
    rows: list[EvalRow] = []
    problems: list[str] = []
    num_left_out = 0
    names: dict[str, str] = {}
    answers: dict[bytes, tuple[str, str]] = {}
    for raw in raw_rows:
        try:
            row = parse(raw.values, row_name(raw))
            _require_of_its_own(row, raw.place, names, answers)
            digest.update(render_canonical_json(dict(raw.values)) + b"\n")
        except (RowError, ValueError, TypeError) as error:
            problems.append(f"{raw.place}: {error}")
            continue
        if sum(len(message.content) for message in row.messages) > _CHARS_PER_TOKEN * max_context:
            num_left_out += 1
        else:
            rows.append(row)
    if problems:
        raise bad_rows(problems)
    return LoadedRows(rows=tuple(rows), source=source, sha256=digest.hexdigest(), num_left_out=num_left_out)


def _require_of_its_own(
    row: EvalRow, place: str, names: dict[str, str], answers: dict[bytes, tuple[str, str]]
) -> None:
    """A row has a name of its own, and no other row answers its question otherwise; raises `RowError`."""
    if (other := names.setdefault(row.row, place)) != place:
        raise RowError(f"its name would be {row.row}, as that of {other}: rename one of the files")
    question = hashlib.sha256()
    for message in row.messages:
        question.update(render_canonical_json(message))
    answer, other = answers.setdefault(question.digest(), (row.answer, place))
    if answer != row.answer:
        raise RowError(
            f"answer: got {row.answer[:40]!r} to the question of {other}, which has {answer[:40]!r}"
        )


def row_name(raw: RawRow) -> str:
    """The row's name inside its suite: its file and number, without what item names use as marks."""
    stem = raw.file.rpartition(".")[0] or raw.file
    return f"{re.sub(r'[^A-Za-z0-9_.]+', '-', stem)}-{raw.number}"


def numbered(rows: Iterable[Mapping[str, Any]], name: str) -> Iterator[RawRow]:
    """Generated rows as if a file of that name held them."""
    for number, values in enumerate(rows, 1):
        yield RawRow(file=f"{name}.jsonl", number=number, values=values)


def choose_rows(rows: Iterable[EvalRow], count: int) -> tuple[EvalRow, ...]:
    """`count` rows that take every cell of bin and needles in turn; which ones of a cell does not hang on their order.

    They come out by bin, in the order in which bins first occur, and inside a bin by needles in turn.
    """
    cells: dict[tuple[str, int], list[EvalRow]] = {}
    for row in rows:
        cells.setdefault((row.bin, row.num_needles), []).append(row)
    for found in cells.values():
        found.sort(key=lambda row: hashlib.sha256(json.dumps(row.model_dump()).encode()).digest())
    bins = list(dict.fromkeys(name for name, _ in cells))
    turns = [
        (turn, bins.index(name), row) for (name, _), found in cells.items() for turn, row in enumerate(found)
    ]
    chosen = sorted(sorted(turns, key=lambda place: place[0])[:count], key=lambda place: place[1])
    return tuple(row for _, _, row in chosen)
