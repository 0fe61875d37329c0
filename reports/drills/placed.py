"""Evidence records with the file that each lies in, so that every value taken from one names its place."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from typing import Generic, TypeVar

from bundles.contents import Bundle
from harness.model.evidence import EvidenceRecord
from reports.shown import Length, Shown, Tally, clip, format_number, pointer, visible

E = TypeVar("E", bound=EvidenceRecord)
TEXT_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed(Generic[E]):
    """One record and its file."""

    path: str
    record: E

    def text(self, value: str, *parts: str | int) -> Shown:
        """A text of the record, clipped."""
        return clip(Shown(text=visible(value), ref=pointer(self.path, *parts)), TEXT_CHARACTERS)

    def key(self, name: str, *parts: str | int) -> Shown:
        """The name under which a value stands; it is the last of `parts`."""
        return Shown(text=visible(name), ref=pointer(self.path, *parts), is_key=True)

    def said(self, value: str, *parts: str | int) -> Shown | None:
        """The same; None for an empty text."""
        return self.text(value, *parts) if value else None

    def number(self, value: float, *parts: str | int) -> Shown:
        """A number of the record."""
        return Shown(text=format_number(value), ref=pointer(self.path, *parts))

    def known(self, value: float | None, *parts: str | int) -> Shown | None:
        """The same; None for a number that the record lacks."""
        return None if value is None else self.number(value, *parts)

    def length(self, value: Sized, *parts: str | int) -> Length:
        """How many elements a list or object of the record has."""
        return Length(value=len(value), ref=pointer(self.path, *parts))

    def tally(self, value: float, rule: str, *parts: str | int) -> Tally:
        """A number computed from one list of the record."""
        return Tally(value=value, rule=rule, refs=(pointer(self.path, *parts),))


def placed(bundle: Bundle, kind: type[E]) -> tuple[Placed[E], ...]:
    """All records of one type, in recorded order."""
    return tuple(Placed(path=f.path, record=f.record) for f in bundle.evidence if isinstance(f.record, kind))
