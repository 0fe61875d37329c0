"""What a report may show: text and numbers that say where in the bundle they stand."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from urllib.parse import quote

MAX_COMBINING_RUN = 2
"""Combining characters in a row that are shown as they are; more would paint over the lines around them."""
MAX_WORD = 32
"""Characters of a word that is left out rather than cut; a longer one is a path or a digest."""
MAX_DIGITS = 8
"""Significant digits beyond which numbers count as equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A text or number as it is shown, and the value that it renders: a bundle path, `#`, a JSON pointer."""

    text: str
    ref: str
    is_part: bool = False
    """Whether `text` is only a part of the value: a short digest, a clipped message."""
    href: str = ""
    """Place in the report that it leads to; empty for none."""
    is_key: bool = False
    """Whether `text` is the name under which the value stands, the last part of `ref`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How many values there are, each named."""

    refs: tuple[str, ...]
    href: str = ""

    @property
    def text(self) -> str:
        """The number."""
        return format_number(len(self.refs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """How many elements a list or object of the bundle has."""

    value: int
    ref: str

    @property
    def text(self) -> str:
        """The number."""
        return format_number(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """A number that no file states: it is computed from the values at `refs` by a rule of `docs/output.md`."""

    value: float
    rule: str
    """The rule's name, then what it counts as `key=value` words."""
    refs: tuple[str, ...]

    @property
    def text(self) -> str:
        """The number."""
        return format_number(self.value)


Piece = str | Shown | Count | Length | Tally
"""Part of a sentence; a plain string is wording of the report and holds no digit."""
Sentence = tuple[Piece, ...]


def pointer(file: str, *parts: str | int) -> str:
    """The place of a value: `judgement.json#/findings/3/outcome`, a JSON pointer as a URI fragment (RFC 6901)."""
    escaped = [quote(str(part).replace("~", "~0").replace("/", "~1")) for part in parts]
    return f"{file}#" + "".join(f"/{part}" for part in escaped)


def plain(sentence: Sentence) -> str:
    """A sentence as text."""
    return "".join(piece if isinstance(piece, str) else piece.text for piece in sentence)


def visible(text: str, *, multiline: bool = False) -> str:
    """`text` with every character that could hide, move or paint over others written as an escape.

    Control and format characters (terminal escapes, bidirectional overrides, zero-width ones), unassigned
    ones and runs of combining marks. A line feed stays one where `multiline` is set.
    """
    if text.isascii() and text.isprintable():
        return text
    shown, combining = [], 0
    for character in text:
        combining = combining + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        if (character == "\n" and multiline) or (character.isprintable() and combining <= MAX_COMBINING_RUN):
            shown.append(character)
        else:
            shown.append(character.encode("unicode_escape").decode("ascii"))
    return "".join(shown)


def clip(shown: Shown, num_characters: int) -> Shown:
    """`shown` cut to a length, with an ellipsis where something was cut: before a word or a number, not in one."""
    if len(shown.text) <= num_characters:
        return shown
    kept = shown.text[: num_characters - 1]
    before = kept.rpartition(" ")[0]
    word = shown.text[len(before) + 1 :].partition(" ")[0]
    if before and len(before) + 1 + len(word) > len(kept) and len(word) <= MAX_WORD:
        kept = before
    return replace(shown, text=kept.rstrip() + "…", is_part=True)


def format_number(value: float, num_digits: int = 3) -> str:
    """Whole numbers from 1,000 are exact, with thousands separators; others have `num_digits` significant digits."""
    if isinstance(value, int) or (value.is_integer() and 1000 <= abs(value) < 1e15):
        return f"{int(value):,}"
    if value == 0:
        return "0"
    rounded = f"{value:.{num_digits - 1}e}"
    mantissa, _, power = rounded.partition("e")
    exponent = int(power)
    if exponent < -4 or exponent >= 15:
        return f"{mantissa}e{exponent}"
    return f"{Decimal(rounded):,.{max(num_digits - 1 - exponent, 0)}f}"


def format_together(values: Sequence[float | None]) -> tuple[str | None, ...]:
    """Numbers of one comparison: three significant digits, or as many as tell those apart that differ in eight."""
    present = [value for value in values if value is not None]
    num_different = len({format_number(v, MAX_DIGITS) for v in present})
    num_digits = 3
    while len({format_number(v, num_digits) for v in present}) < num_different:
        num_digits += 1
    return tuple(None if value is None else format_number(value, num_digits) for value in values)
