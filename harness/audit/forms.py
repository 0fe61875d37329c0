"""Addresses as sums: which parameters, variables and loaded pointers an address is made of.

A value is a set of alternatives (ways meet, a select chooses); an alternative is a sum of sources with small integer
coefficients plus a constant. Sums keep `p + (q - p) = q`, which compilers make of loops over two pointers.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from harness.audit.program import Space

MAX_FORMS = 24
MAX_OFFSETS = 6
SMALLEST_ADDRESS = 1 << 18
"""Smaller numbers are offsets: shared memory ends before, and no global memory begins as low."""
LARGEST_ADDRESS = 1 << 57


class SourceKind(StrEnum):
    """What an address starts from."""

    PARAM = "param"
    """The value of a kernel parameter (or of a field of it)."""
    PARAM_ADDRESS = "param address"
    """The place of a kernel parameter itself, as tensor maps are passed."""
    VARIABLE = "variable"
    LOADED = "loaded"
    """A pointer read from memory that `parent` points to."""
    CONSTANT = "constant"
    """An address that is a number in the text, as of memory that was mapped before the kernel was compiled."""
    OTHER = "other"
    """A base that the text does not explain, such as the stack pointer."""


class Source(NamedTuple):
    """One thing that an address can start from."""

    kind: SourceKind
    name: str
    """Of the parameter or variable."""
    param: int = -1
    offset: int | None = 0
    """PARAM: bytes into the parameter; None when it cannot be followed."""
    space: Space = Space.GLOBAL
    parent: Source | None = None

    @property
    def depth(self) -> int:
        """How many pointers were followed."""
        return 0 if self.parent is None else 1 + self.parent.depth

    def __str__(self) -> str:
        if self.parent is not None:
            return f"*({self.parent})"
        if self.kind is SourceKind.CONSTANT:
            return f"constant address {self.name}"
        if self.kind is SourceKind.PARAM and self.offset:
            return f"{self.name}+{self.offset}"
        return self.name if self.offset is not None else f"{self.name}+?"


class Form(NamedTuple):
    """A sum: sources with their coefficients, and a constant (None when it is not known)."""

    terms: frozenset[tuple[Source, int]]
    offset: int | None

    def plus(self, other: Form, sign: int = 1) -> Form:
        """The sum or difference of two forms; a source counted twice can be no base and is dropped."""
        terms: frozenset[tuple[Source, int]] = self.terms
        if other.terms and not terms and sign == 1:
            terms = other.terms
        elif other.terms:
            total = dict(self.terms)
            for source, count in other.terms:
                total[source] = total.get(source, 0) + sign * count
            terms = frozenset((s, c) for s, c in total.items() if c in (1, -1))
        known = self.offset is not None and other.offset is not None
        offset = (self.offset or 0) + sign * (other.offset or 0) if known else None
        return Form(terms, offset)

    @property
    def bases(self) -> tuple[Source, ...]:
        """Sources that the address can be relative to; a number is one only where there is no other."""
        found = tuple(s for s, count in self.terms if count == 1)
        named = tuple(s for s in found if s.kind is not SourceKind.CONSTANT)
        return named or found


Forms = frozenset[Form]

NOTHING: Forms = frozenset()
SOME_INTEGER: Forms = frozenset((Form(frozenset(), None),))


def constant(value: int) -> Forms:
    """A known integer."""
    return frozenset((Form(frozenset(), value),))


def constant_source(value: int) -> Source | None:
    """A number as the address that it may be; machine code has the lower half only, perhaps as a negative number."""
    value += 1 << 32 if -(1 << 31) <= value < 0 else 0
    is_negative = (1 << 32) - SMALLEST_ADDRESS <= value < 1 << 32
    is_address = SMALLEST_ADDRESS <= value < LARGEST_ADDRESS and not is_negative
    return Source(SourceKind.CONSTANT, f"{value:#x}") if is_address else None


def base(source: Source) -> Forms:
    """Exactly this source."""
    return frozenset((Form(frozenset(((source, 1),)), 0),))


def join(alternatives: Iterable[Forms]) -> Forms:
    """Any of the alternatives."""
    return limit(frozenset().union(*alternatives))


def add(first: Forms, second: Forms, sign: int = 1) -> Forms:
    """Sums of every alternative of both."""
    if len(first) == 1 and len(second) == 1:
        (a,), (b,) = first, second
        return frozenset((a.plus(b, sign),))
    return limit(frozenset(a.plus(b, sign) for a in first for b in second))


def blur(forms: Forms) -> Forms:
    """The same sources with an unknown constant."""
    return frozenset(Form(f.terms, None) for f in forms)


def limit(forms: Forms) -> Forms:
    """At most `MAX_FORMS` alternatives: constants are given up first, then differences."""
    if len(forms) <= 1:
        return forms
    offsets: dict[frozenset[tuple[Source, int]], set[int | None]] = {}
    for form in forms:
        offsets.setdefault(form.terms, set()).add(form.offset)
    kept = [
        Form(terms, offset)
        for terms, known in offsets.items()
        for offset in ({None} if None in known or len(known) > MAX_OFFSETS else known)
    ]
    if len(kept) <= MAX_FORMS:
        return frozenset(kept)
    singles = {source for form in kept for source in form.bases}
    return frozenset(Form(frozenset(((source, 1),)), None) for source in singles) | SOME_INTEGER


def strip_addresses(forms: Forms, keep: Iterable[Space]) -> Forms:
    """What is left of an address in a narrow integer: only sources of the small address spaces in `keep`."""
    spaces = tuple(keep)
    return frozenset(
        form
        if all(
            s.kind is SourceKind.OTHER or (s.kind is SourceKind.VARIABLE and s.space in spaces)
            for s, _ in form.terms
        )
        else Form(frozenset(), None)
        for form in forms
    )
