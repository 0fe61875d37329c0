"""Facts of a cubin that its ELF sections carry, read without any external tool.

Layout: ELF64 as in the System V ABI; the attribute records of `.nv.info` sections are (format u8, attribute
u8, then a value of 0, 1, 2 bytes or a length-prefixed block), as `nvdisasm` prints them. Attributes that are
not known here are skipped by their length, so a newer compiler's file still reads.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from harness.model.errors import FasttrackError

_HEADER = struct.Struct("<HHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")

_FRAME_SIZE, _MIN_STACK, _MAX_STACK, _REGCOUNT = 0x11, 0x12, 0x23, 0x2F
_PARAM_CBANK, _KPARAM_INFO, _REQNTID, _MAX_THREADS = 0x0A, 0x17, 0x10, 0x05


class CubinError(FasttrackError):
    """A cubin that is truncated or is not a CUDA ELF file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelParameter:
    """One kernel parameter; `offset` and `size` are bytes within the parameter space."""

    ordinal: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CubinKernel:
    """What a cubin says about one kernel; a number the file does not state is None."""

    name: str
    parameters: tuple[KernelParameter, ...]
    parameter_base: int | None
    """Byte offset of the first parameter in constant bank 0."""
    registers: int | None
    frame_bytes: int | None
    """Local-memory frame of a thread: spills and local arrays together."""
    min_stack_bytes: int | None
    static_shared_bytes: int
    required_threads: tuple[int, int, int] | None
    """Threads of a CTA as the kernel requires them."""
    max_threads: tuple[int, int, int] | None
    code_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cubin:
    """A parsed cubin; `compute_capability` is 90, 100, 103, ..."""

    compute_capability: int
    kernels: tuple[CubinKernel, ...]


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    offset: int
    size: int
    kind: int


@dataclass(frozen=True, slots=True)
class _Attribute:
    code: int
    payload: bytes


def parse_cubin(data: bytes) -> Cubin:
    """The kernels of a cubin in file order; raises CubinError for anything that is not a whole CUDA ELF."""
    try:
        return _parse(data)
    except (struct.error, IndexError, ValueError, UnicodeDecodeError) as error:
        raise CubinError("cubin", f"not a whole cubin: {error}", "Compile the kernel again.") from error


def _parse(data: bytes) -> Cubin:
    if data[:5] != b"\x7fELF\x02":
        raise ValueError("no ELF64 header")
    header = _HEADER.unpack_from(data, 16)
    machine, flags = header[1], header[6]
    if machine != 190:
        raise ValueError(f"ELF machine {machine}, expected 190 (CUDA)")
    if header[4] + header[8] * header[9] > len(data):
        raise ValueError("the program headers reach past the end of the file")
    sections = _sections(data, header[5], header[10], header[11], header[12])
    named = {section.name: section for section in sections}
    symbols = _symbols(data, named)
    totals = list(_attributes(data, named[".nv.info"])) if ".nv.info" in named else []
    kernels = []
    for section in sections:
        name = section.name.removeprefix(".nv.info.")
        if name != section.name and f".text.{name}" in named:
            kernels.append(_kernel(data, name, named, symbols, totals))
    return Cubin(compute_capability=(flags >> 8) & 0xFF, kernels=tuple(kernels))


def _sections(data: bytes, start: int, step: int, count: int, names: int) -> list[_Section]:
    if step != _SECTION.size:
        raise ValueError(f"section headers of {step} bytes, expected {_SECTION.size}")
    raw = [_SECTION.unpack_from(data, start + index * step) for index in range(count)]
    strings = data[raw[names][4] : raw[names][4] + raw[names][5]]
    found = []
    for entry in raw:
        no_bits = entry[1] == 8
        if not no_bits and entry[4] + entry[5] > len(data):
            raise ValueError("a section reaches past the end of the file")
        found.append(_Section(_text(strings, entry[0]), entry[4], entry[5], entry[1]))
    return found


def _text(strings: bytes, offset: int) -> str:
    return strings[offset : strings.index(b"\0", offset)].decode("utf-8")


def _symbols(data: bytes, named: dict[str, _Section]) -> list[str]:
    table, strings = named.get(".symtab"), named.get(".strtab")
    if table is None or strings is None:
        return []
    text = data[strings.offset : strings.offset + strings.size]
    offsets = range(table.offset, table.offset + table.size, _SYMBOL.size)
    return [_text(text, _SYMBOL.unpack_from(data, offset)[0]) for offset in offsets]


def _attributes(data: bytes, section: _Section) -> Iterator[_Attribute]:
    position, end = section.offset, section.offset + section.size
    while position + 4 <= end:
        form, code, value = struct.unpack_from("<BBH", data, position)
        position += 4
        if form == 4:
            if position + value > end:
                raise ValueError("an attribute reaches past its section")
            yield _Attribute(code, data[position : position + value])
            position += value
        else:
            yield _Attribute(code, struct.pack("<H", value))


def _kernel(
    data: bytes, name: str, named: dict[str, _Section], symbols: list[str], totals: list[_Attribute]
) -> CubinKernel:
    own = list(_attributes(data, named[f".nv.info.{name}"]))
    shared = named.get(f".nv.shared.{name}")
    cbank = next((a.payload for a in own if a.code == _PARAM_CBANK), None)
    return CubinKernel(
        name=name,
        parameters=tuple(sorted((_parameter(a) for a in own if a.code == _KPARAM_INFO), key=_by_ordinal)),
        parameter_base=struct.unpack_from("<H", cbank, 4)[0] if cbank else None,
        registers=_of_symbol(totals, _REGCOUNT, symbols, name),
        frame_bytes=_of_symbol(totals, _FRAME_SIZE, symbols, name),
        min_stack_bytes=_of_symbol(totals, _MIN_STACK, symbols, name),
        static_shared_bytes=shared.size if shared else 0,
        required_threads=_triple(own, _REQNTID),
        max_threads=_triple(own, _MAX_THREADS),
        code_bytes=named[f".text.{name}"].size,
    )


def _by_ordinal(parameter: KernelParameter) -> int:
    return parameter.ordinal


def _parameter(attribute: _Attribute) -> KernelParameter:
    _, ordinal, offset, flags = struct.unpack("<IHHI", attribute.payload)
    return KernelParameter(ordinal=ordinal, offset=offset, size=flags >> 18)


def _of_symbol(attributes: list[_Attribute], code: int, symbols: list[str], name: str) -> int | None:
    for attribute in attributes:
        if attribute.code == code:
            index, value = struct.unpack("<II", attribute.payload)
            if index < len(symbols) and symbols[index] == name:
                return int(value)
    return None


def _triple(attributes: list[_Attribute], code: int) -> tuple[int, int, int] | None:
    for attribute in attributes:
        if attribute.code == code:
            x, y, z = struct.unpack("<III", attribute.payload)
            return x, y, z
    return None
