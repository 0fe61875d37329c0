"""A kernel's lines as one flat list, with the functions it calls expanded in place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from harness.audit.program import Problem
from harness.audit.sass.listing import STEP, CodeLine, Listing
from harness.audit.sass.operands import Literal, MachineRegister, Word, parse_operand

MAX_DEPTH = 16
MAX_ITEMS = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One expanded call; the kernel itself has number 0."""

    number: int
    start: int
    end: int
    call_lines: tuple[int, ...]
    returns_to: tuple[int, int] | None
    """Frame and position in the listing of the instruction that follows the call."""


class Item(NamedTuple):
    """One instruction in its frame; `callee` is the frame that a call enters."""

    line: CodeLine
    frame: Frame
    position: int
    callee: Frame | None = None


@dataclass(slots=True)
class Expansion:
    """The flat list, where each place of each frame came to stand, and what could not be followed."""

    items: list[Item] = field(default_factory=list)
    places: dict[tuple[int, int], int] = field(default_factory=dict)
    """(frame, position in the listing) → index."""
    frames: int = 1
    problems: list[Problem] = field(default_factory=list)


def expand(listing: Listing, start: int, end: int) -> Expansion:
    """The flat list of the kernel that stands at `start` to `end`."""
    result = Expansion()
    frame = Frame(number=0, start=start, end=end, call_lines=(), returns_to=None)
    _expand(listing, frame, result, 0)
    return result


def _expand(listing: Listing, frame: Frame, result: Expansion, depth: int) -> None:
    for position in range(frame.start, frame.end):
        line = listing.lines[position]
        callee = _callee(listing, frame, position, result, depth) if line.opcode.startswith("CALL") else None
        result.places[frame.number, position] = len(result.items)
        result.items.append(Item(line, frame, position, callee))
        if callee is not None:
            _expand(listing, callee, result, depth + 1)


def _callee(listing: Listing, frame: Frame, position: int, result: Expansion, depth: int) -> Frame | None:
    line = listing.lines[position]
    words = [o for o in map(parse_operand, line.operands) if isinstance(o, Word) and o.label]
    name = words[0].label if words else ""
    extent = listing.extent(name)
    reason = ""
    if extent is None:
        reason = "a call of a function that the text does not hold"
    elif depth >= MAX_DEPTH or len(result.items) + extent[1] - extent[0] > MAX_ITEMS:
        reason = "a call too deep or too large to follow"
    elif line.guard:
        reason = "a call under a predicate"
    elif not _returns_here(listing, frame, position, extent):
        reason = "a call whose return address could not be followed"
    if reason or extent is None:
        result.problems.append(Problem(line.number, line.text[:160], reason))
        return None
    callee = Frame(
        number=result.frames,
        start=extent[0],
        end=extent[1],
        call_lines=(*frame.call_lines, line.number),
        returns_to=(frame.number, position + 1),
    )
    result.frames += 1
    return callee


def _returns_here(listing: Listing, frame: Frame, position: int, extent: tuple[int, int]) -> bool:
    """Whether the function ends without returning, or returns to the address after the call.

    A caller sets the return address in a register pair before the call. The register is the one that the
    function's returns use, and the value is looked for upwards from the call, in the order of the text.
    """
    returns = [line for line in listing.lines[extent[0] : extent[1]] if line.opcode.startswith("RET")]
    if not returns:
        return True
    registers = {line.operands[0] for line in returns if line.operands}
    if len(registers) != 1:
        return False
    name = registers.pop()
    after = listing.lines[position].address + STEP
    held = {name}
    body = listing.lines[extent[0] : extent[1]]
    held |= {
        line.operands[1].replace(".reuse", "")
        for line in body
        if len(line.operands) > 1 and line.operands[0] == name and line.opcode in ("MOV", "IMAD.MOV.U32")
    }
    for line in body:
        if line.opcode == "IMAD.MOV.U32" and line.operands[:1] == (name,):
            held.add(line.operands[-1].replace(".reuse", ""))
    for line in reversed(listing.lines[frame.start : position]):
        target = parse_operand(line.operands[0]) if line.operands else None
        if isinstance(target, MachineRegister) and target.name in held:
            value = parse_operand(line.operands[-1])
            if isinstance(value, Literal) and value.value == after:
                return True
            if line.opcode.startswith(("MOV", "IMAD.MOV")) and isinstance(value, Literal):
                return False
    return False
