"""Tables of a drill-down: rows of cells, each number with its place in the bundle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from harness.model.words import Arm, Outcome
from reports.shown import Length, Piece, Sentence, Shown, Tally

MAX_ROWS = 120
"""Of one table; the file that it is made from holds all."""
Form = Literal["text", "number", "code"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell; empty is shown as a dash."""

    pieces: Sentence = ()
    outcome: Outcome | None = None
    """Shown as its mark before the pieces."""
    heat: int | None = None
    """0 (far inside the limit) to 4 (beyond it)."""
    form: Form = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under one caption that says what they are."""

    caption: str
    head: tuple[Piece, ...]
    rows: tuple[tuple[Cell, ...], ...]
    is_cut: bool = False
    """Whether rows were left out."""
    whole: Length | Tally | None = None
    """Of how many the rows are the first, where one number says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One arm's marks in a figure whose axes run from 0 to 100, y upwards from 100 to 0."""

    arm: Arm
    path: str
    """SVG path data; empty where the arm has single points only."""
    points: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A drawing, what it shows in words, and its numbers as a table."""

    title: str
    caption: Sentence
    """Says the ends of both axes."""
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    data: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What this part would show, and why it does not."""

    what: str
    outcome: Outcome
    reason: Sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """One drill-down; it holds at least one part."""

    anchor: str
    title: str
    question: str
    checks: tuple[str, ...]
    """Ids of the checks that it draws on or explains."""
    parts: tuple[Table | Figure | Missing, ...]


def text_cell(*pieces: Piece | None) -> Cell:
    """A cell of words."""
    return Cell(pieces=_present(pieces))


def number_cell(*pieces: Piece | None) -> Cell:
    """A cell whose figures stand below each other."""
    return Cell(pieces=_present(pieces), form="number")


def code_cell(*pieces: Piece | None) -> Cell:
    """A cell of paths or names of code."""
    return Cell(pieces=_present(pieces), form="code")


def _present(pieces: Iterable[Piece | None]) -> tuple[Piece, ...]:
    return tuple(piece for piece in pieces if piece is not None)


def table_of(
    caption: str, head: Sequence[Piece], rows: Iterable[tuple[Cell, ...]], whole: Length | Tally | None = None
) -> Table:
    """The first `MAX_ROWS` rows; `whole` says of how many, where rows may have been left out."""
    found = tuple(islice(rows, MAX_ROWS + 1))
    return Table(
        caption=caption,
        head=tuple(head),
        rows=found[:MAX_ROWS],
        is_cut=len(found) > MAX_ROWS or (whole is not None and whole.value > len(found)),
        whole=whole,
    )


def joined(pieces: Iterable[Shown], separator: str = ", ") -> tuple[Piece, ...]:
    """The pieces with the separator between them."""
    found: list[Piece] = []
    for piece in pieces:
        found += [separator, piece] if found else [piece]
    return tuple(found)
