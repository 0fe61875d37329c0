"""What the `.nv.info` sections of a disassembled cubin say about its kernels."""

from __future__ import annotations

from dataclasses import dataclass

from harness.audit.sass.listing import Attribute, Listing


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterPlace:
    """One parameter's place in the parameter space, in bytes."""

    ordinal: int
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelInfo:
    """The attributes of one kernel; what the text does not say is None or empty."""

    is_present: bool = False
    """Whether the text has attributes of this kernel at all."""
    parameters: tuple[ParameterPlace, ...] = ()
    parameter_base: int | None = None
    registers: int | None = None
    frame_bytes: int | None = None
    min_stack_bytes: int | None = None
    required_threads: tuple[int, int, int] | None = None
    max_threads: tuple[int, int, int] | None = None
    static_shared_bytes: int | None = None
    spill_lines: frozenset[int] = frozenset()
    """Lines of the text that the disassembler marks as spills or refills."""


def parse_attributes(listing: Listing, kernel: str) -> KernelInfo:
    """The attributes of `kernel`; a record that does not have its form is left out."""
    own = [a for a in listing.attributes if a.section == f".nv.info.{kernel}"]
    places = [p for a in own if a.name == "EIATTR_KPARAM_INFO" and (p := _place(a)) is not None]
    return KernelInfo(
        is_present=bool(own),
        parameters=tuple(sorted(places, key=lambda place: place.ordinal)),
        parameter_base=_parameter_base(own),
        registers=_of_function(listing, "EIATTR_REGCOUNT", kernel),
        frame_bytes=_of_function(listing, "EIATTR_FRAME_SIZE", kernel),
        min_stack_bytes=_of_function(listing, "EIATTR_MIN_STACK_SIZE", kernel),
        required_threads=_triple(own, "EIATTR_REQNTID"),
        max_threads=_triple(own, "EIATTR_MAX_THREADS"),
        static_shared_bytes=listing.shared_bytes.get(kernel, 0) if own else None,
        spill_lines=frozenset(line.number for line in listing.lines if line.is_spill),
    )


def _number(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None


def _words(attribute: Attribute, directive: str) -> list[int]:
    found = [_number(text) for kind, text in attribute.values if kind == directive]
    return [number for number in found if number is not None]


def _place(attribute: Attribute) -> ParameterPlace | None:
    """A record is (index u32, ordinal u16, offset u16, flags u32 whose bits from 18 on are the size)."""
    shorts = _words(attribute, "short")
    flags = [text for kind, text in attribute.values if kind == "byte"]
    raw = [_number(part.strip()) for part in flags[-1].split(",")] if len(flags) > 1 else []
    if len(shorts) != 2 or len(raw) != 4 or any(part is None for part in raw):
        return None
    value = sum(part << 8 * position for position, part in enumerate(raw) if part is not None)
    return ParameterPlace(ordinal=shorts[0], offset=shorts[1], num_bytes=value >> 18)


def _parameter_base(own: list[Attribute]) -> int | None:
    for attribute in own:
        if attribute.name == "EIATTR_PARAM_CBANK":
            shorts = _words(attribute, "short")
            return shorts[0] if shorts else None
    return None


def _of_function(listing: Listing, name: str, kernel: str) -> int | None:
    for attribute in listing.attributes:
        if attribute.name == name and ("word", f"index@({kernel})") in attribute.values:
            words = _words(attribute, "word")
            return words[0] if words else None
    return None


def _triple(own: list[Attribute], name: str) -> tuple[int, int, int] | None:
    for attribute in own:
        words = _words(attribute, "word")
        if attribute.name == name and len(words) == 3:
            return words[0], words[1], words[2]
    return None
