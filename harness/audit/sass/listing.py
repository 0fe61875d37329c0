"""A disassembler's text as lines of code, labels, functions, and the attributes of `.nv.info` sections."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from harness.audit.program import Problem, SourceLine

STEP = 16
"""Bytes of one instruction on every architecture from sm_70 on."""

_CODE = re.compile(r"^\s*/\*([0-9a-f]{4,6})\*/\s+(.*)$")
_DATA = re.compile(r"^\.(byte|short|word|dword|zero|string|ascii|align)\b")
_SECTION = re.compile(r'^\s*\.section\s+([^\s,"]+)')
_LABEL = re.compile(r"^([.$\w][^\s:]*):\s*$")
_SIZE = re.compile(r"^\s*\.size\s+([^\s,]+),\((\S+) - (\S+)\)")
_TYPE = re.compile(r"^\s*\.type\s+([^\s,]+),@function")
_ENTRY = re.compile(r'^\s*\.other\s+([^\s,]+),@"[^"]*STO_CUDA_ENTRY')
_TARGET = re.compile(r"^\s*\.target\s+(sm_\w+)")
_CUOBJDUMP_ARCH = re.compile(r"^\s*code for (sm_\w+)")
_CUOBJDUMP_FUNCTION = re.compile(r"^\s*Function : (\S+)")
_ENCODING = re.compile(r"\s*/\* 0x[0-9a-f]{16} \*/\s*$")
_NOTE = re.compile(r'\(\*"([^"]*)"\*\)')
_GUARD = re.compile(r"^@(!?U?P[0-9T]+)\s+")
_SOURCE = re.compile(r'^\s*//## File "([^"]+)", line (\d+)(?: inlined at "([^"]+)", line (\d+))?')
_ATTRIBUTE = re.compile(r"nvinfo : (EIATTR_\w+)")
_VALUE = re.compile(r"\.(byte|short|word|dword)\s+(.*)$")
_TABLES = ".nv.constant2."
_OLD_FLAGS = re.compile(r'^\s*\.headerflags\s+@"([^"]*)"')
_SPACED = re.compile(r"\s+(?=`\(|-?0x)")
_BRACKET = re.compile(r"[\[({\])}]")
_SHARED = re.compile(r"^\s*\.zero\s+(\d+)")


class CodeLine(NamedTuple):
    """One instruction as written."""

    number: int
    """Line of the text, from 1."""
    address: int
    section: str
    guard: str
    """`P0`, `!UP1`; empty without a guard."""
    opcode: str
    operands: tuple[str, ...]
    text: str
    branch_targets: tuple[str, ...] = ()
    """Labels of an indirect branch's table, where the disassembler found it."""
    is_spill: bool = False
    source: SourceLine | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """One record of a `.nv.info` section: its words as printed, sizes by their directive."""

    section: str
    name: str
    values: tuple[tuple[str, str], ...]
    """Pairs of directive and text."""


@dataclass(slots=True)
class Listing:
    """All of one text. `labels` and `functions` give positions in `lines`."""

    arch: str = ""
    lines: list[CodeLine] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    """Name to the label that ends it; empty where no size is printed."""
    entries: list[str] = field(default_factory=list)
    attributes: list[Attribute] = field(default_factory=list)
    shared_bytes: dict[str, int] = field(default_factory=dict)
    tables: dict[str, bytes] = field(default_factory=dict)
    """Constant bank 2 of each kernel: the tables of its indirect branches."""
    problems: list[Problem] = field(default_factory=list)

    def extent(self, name: str) -> tuple[int, int] | None:
        """The positions of a function's first instruction and of the one after its last."""
        start = self.labels.get(name)
        if start is None:
            return None
        end = self.labels.get(self.functions.get(name, ""))
        if end is None or end < start:
            return None
        return start, end


def parse_listing(text: str) -> Listing:
    """Split a text. What is not understood inside code becomes a problem; nothing is raised."""
    listing = Listing()
    state = _State()
    for number, line in enumerate(text.splitlines(), 1):
        _take(listing, state, number, line)
    _finish(listing, state)
    return listing


@dataclass(slots=True)
class _State:
    section: str = ""
    source: SourceLine | None = None
    attribute: str = ""
    values: list[tuple[str, str]] = field(default_factory=list)
    is_cuobjdump: bool = False
    current: str = ""

    @property
    def in_code(self) -> bool:
        return self.section.startswith(".text")


def _take(listing: Listing, state: _State, number: int, line: str) -> None:
    if state.in_code and (code := _CODE.match(_ENCODING.sub("", line) if state.is_cuobjdump else line)):
        _take_code(listing, state, number, int(code.group(1), 16), code.group(2).rstrip())
        return
    if not line.strip() or _take_frame(listing, state, line):
        return
    if not state.in_code:
        _take_data(listing, state, line)
        return
    source = _SOURCE.match(line)
    if source is not None:
        path, at, outer, outer_line = source.groups()
        state.source = SourceLine(path, int(at), f"{outer}:{outer_line}" if outer else "")
        return
    label = _LABEL.match(line)
    if label is not None:
        listing.labels[label.group(1)] = len(listing.lines)
    elif not line.lstrip().startswith((".", "//")) and line.strip() and not _is_filler(line):
        listing.problems.append(Problem(number, line.strip()[:160], "no instruction, label or directive"))


def _is_filler(line: str) -> bool:
    return bool(re.fullmatch(r"\s*(\.{3,}|/\*.*\*/)?\s*", line))


def _take_frame(listing: Listing, state: _State, line: str) -> bool:
    """Directives that say where the text is: sections, functions, architecture."""
    section = _SECTION.match(line)
    if section is not None:
        _close_attribute(listing, state)
        state.section, state.source = section.group(1), None
        return True
    for pattern in (_TARGET, _CUOBJDUMP_ARCH):
        target = pattern.match(line)
        if target is not None:
            listing.arch = listing.arch or target.group(1)
            return True
    flags = _OLD_FLAGS.match(line)
    if flags is not None:
        listing.arch = listing.arch or _arch_of_flags(flags.group(1))
        return True
    function = _CUOBJDUMP_FUNCTION.match(line)
    if function is not None:
        _end_cuobjdump(listing, state)
        state.section, state.is_cuobjdump = f".text.{function.group(1)}", True
        state.current = function.group(1)
        listing.labels[state.current] = len(listing.lines)
        listing.entries.append(state.current)
        return True
    size, kind, entry = _SIZE.match(line), _TYPE.match(line), _ENTRY.match(line)
    if size is not None:
        listing.functions[size.group(1)] = size.group(2)
    elif kind is not None:
        listing.functions.setdefault(kind.group(1), "")
    elif entry is not None:
        listing.entries.append(entry.group(1))
    return bool(size or kind or entry)


def _arch_of_flags(flags: str) -> str:
    """The architecture that the header flags of older cubins name."""
    match = re.search(r"\bEF_CUDA_SM(\d+)", flags)
    accelerated = "a" if "EF_CUDA_ACCELERATORS" in flags else ""
    return f"sm_{match.group(1)}{accelerated}" if match else ""


def _end_cuobjdump(listing: Listing, state: _State) -> None:
    if state.current:
        end = f"end of {state.current}"
        listing.labels[end] = len(listing.lines)
        listing.functions[state.current] = end


def _take_data(listing: Listing, state: _State, line: str) -> None:
    attribute = _ATTRIBUTE.search(line)
    if attribute is not None:
        _close_attribute(listing, state)
        state.attribute = attribute.group(1)
        return
    value = _VALUE.search(line)
    if value is not None and state.attribute:
        state.values.append((value.group(1), value.group(2).strip()))
        return
    if value is not None and state.section.startswith(_TABLES):
        name = state.section.removeprefix(_TABLES)
        listing.tables[name] = listing.tables.get(name, b"") + _data_bytes(value.group(1), value.group(2))
        return
    zeros = _SHARED.match(line)
    if zeros is not None and state.section.startswith(".nv.shared."):
        name = state.section.removeprefix(".nv.shared.")
        listing.shared_bytes[name] = listing.shared_bytes.get(name, 0) + int(zeros.group(1))


def _data_bytes(directive: str, text: str) -> bytes:
    """The bytes of a data directive; zeros for a value that is no number."""
    size = {"byte": 1, "short": 2, "word": 4, "dword": 8}[directive]
    found = b""
    for part in text.split(","):
        try:
            found += int(part.strip(), 16).to_bytes(size, "little")
        except (ValueError, OverflowError):
            found += bytes(size)
    return found


def _close_attribute(listing: Listing, state: _State) -> None:
    if state.attribute:
        listing.attributes.append(
            Attribute(section=state.section, name=state.attribute, values=tuple(state.values))
        )
    state.attribute, state.values = "", []


def _take_code(listing: Listing, state: _State, number: int, address: int, body: str) -> None:
    if _DATA.match(body):
        return
    notes = _NOTE.findall(body)
    bare = _NOTE.sub("", body).rstrip()
    if not bare.endswith(";"):
        listing.problems.append(Problem(number, body[:160], "an instruction without its end", True))
    bare = bare.rstrip("; ").strip("{} ")
    guard = _GUARD.match(bare)
    rest = bare[guard.end() :] if guard is not None else bare
    opcode, _, tail = rest.partition(" ")
    expected = listing.lines[-1].address + STEP if listing.lines else address
    same_section = bool(listing.lines) and listing.lines[-1].section == state.section
    if same_section and address != expected:
        listing.problems.append(
            Problem(number, body[:160], f"address {address:#x} after {expected - STEP:#x}", True)
        )
    listing.lines.append(
        CodeLine(
            number=number,
            address=address,
            section=state.section,
            guard=guard.group(1) if guard is not None else "",
            opcode=opcode,
            operands=split_operands(tail),
            text=bare,
            branch_targets=_table(notes),
            is_spill=any("Spill" in note for note in notes),
            source=state.source,
        )
    )


def _table(notes: list[str]) -> tuple[str, ...]:
    for note in notes:
        if note.startswith("BRANCH_TARGETS "):
            return tuple(part.strip() for part in note.removeprefix("BRANCH_TARGETS ").split(","))
    return ()


def split_operands(text: str) -> tuple[str, ...]:
    """Operands between commas that stand in no bracket; a label or offset after a space is one of its own."""
    parts = text.split(",") if _BRACKET.search(text) is None else _split_outside_brackets(text)
    return tuple(piece for part in parts if (bare := part.strip()) for piece in _SPACED.split(bare))


def _split_outside_brackets(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for position, sign in enumerate(text):
        if sign in "[({":
            depth += 1
        elif sign in "])}":
            depth -= 1
        elif sign == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]


def _finish(listing: Listing, state: _State) -> None:
    _close_attribute(listing, state)
    _end_cuobjdump(listing, state)
    last = listing.lines[-1].number if listing.lines else 1
    for name, end in listing.functions.items():
        if name in listing.labels and end not in listing.labels:
            listing.problems.append(Problem(last, name[:160], "the text ends before the function does", True))
    if not listing.arch:
        listing.problems.append(Problem(1, "", "the text names no architecture", True))
