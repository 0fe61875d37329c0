"""Operands of machine instructions as values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_REGISTER = re.compile(r"^(-|\+|~|!)?(\|)?(UR|UP|R|P|B)(\d+|Z|T)(?:((?:\.\w+)*))\|?((?:\.\w+)*)$")
_INTEGER = re.compile(r"^-?(0x[0-9a-f]+|\d+)$")
_CONSTANT = re.compile(r"^(-|~|\+|!)?(\|)?c\[(0x[0-9a-f]+)\]\[([^\]]*)\]\|?((?:\.\w+)*)$")
_MEMORY = re.compile(r"^(?:(\w*desc)\[(\w+)\])?(tmem|gdesc|idesc)?\[([^\]]*)\]((?:\.\w+)*)$")
_TERM = re.compile(r"^(UR|R)(\d+|Z)((?:\.\w+)*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRegister:
    """A register operand. `name` is empty for the zero register and the always-true predicate."""

    name: str
    file: str
    """`R`, `UR`, `P`, `UP` or `B`."""
    is_negated: bool = False
    """Arithmetic minus, or a predicate's not."""
    is_inverted: bool = False
    is_absolute: bool = False
    suffix: str = ""

    @property
    def is_predicate(self) -> bool:
        """Whether it is one bit of a predicate file."""
        return self.file in ("P", "UP")

    @property
    def is_plain(self) -> bool:
        """Without any modifier of its value."""
        return not (self.is_negated or self.is_inverted or self.is_absolute)


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """A constant in the instruction; None for a decimal float, whose bits are not printed."""

    value: int | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantBank:
    """A value of a constant bank: `c[bank][index + offset]`."""

    bank: int
    offset: int
    index: MachineRegister | None = None
    is_negated: bool = False
    is_modified: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineAddress:
    """A bracket: the sum of `terms` and `offset`. `descriptor` is the register of `desc[]`, not part of the sum."""

    kind: str
    """Empty for memory; `tmem`, `gdesc` or `idesc` else."""
    descriptor: str
    terms: tuple[MachineRegister, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Word:
    """Anything else: a label, a special register, a scoreboard."""

    text: str

    @property
    def label(self) -> str:
        """The label that the word names, without its quotes; empty when it names none."""
        match = re.match(r"^`\((.*)\)$", self.text)
        return match.group(1) if match else ""


MachineOperand = MachineRegister | Literal | ConstantBank | MachineAddress | Word


@lru_cache(maxsize=65536)
def parse_operand(text: str) -> MachineOperand:
    """The operand that `text` stands for; a Word when it has no other form."""
    register = _register(text)
    if register is not None:
        return register
    if _INTEGER.match(text):
        return Literal(value=int(text, 0), text=text)
    constant = _CONSTANT.match(text)
    if constant is not None:
        return _constant(constant) or Word(text)
    memory = _MEMORY.match(text)
    if memory is not None:
        return _memory(memory) or Word(text)
    if re.match(r"^[-+]?(\d+(\.\d+)?(e[-+]?\d+)?|INF|QNAN|SNAN)( \.\w+)*$", text):
        return Literal(value=None, text=text)
    return Word(text)


def _register(text: str) -> MachineRegister | None:
    match = _REGISTER.match(text)
    if match is None:
        return None
    sign, bar, file, number, inner, outer = match.groups()
    if (number == "T") != (number == "T" and file in ("P", "UP")) or (
        number == "Z" and file not in ("R", "UR")
    ):
        return None
    suffix = (inner + outer).replace(".reuse", "")
    return MachineRegister(
        name="" if number in ("Z", "T") else file + number,
        file=file,
        is_negated=sign in ("-", "!"),
        is_inverted=sign == "~",
        is_absolute=bar is not None,
        suffix=suffix,
    )


def _constant(match: re.Match[str]) -> ConstantBank | None:
    sign, bar, bank, inside, _ = match.groups()
    parts = _sum(inside)
    if parts is None or len(parts[0]) > 1:
        return None
    return ConstantBank(
        bank=int(bank, 16),
        offset=parts[1],
        index=parts[0][0] if parts[0] else None,
        is_negated=sign == "-",
        is_modified=bool(bar) or sign in ("~", "!"),
    )


def _memory(match: re.Match[str]) -> MachineAddress | None:
    _, descriptor, kind, inside, _ = match.groups()
    parts = _sum(inside)
    if parts is None:
        return None
    return MachineAddress(kind=kind or "", descriptor=descriptor or "", terms=parts[0], offset=parts[1])


def _sum(text: str) -> tuple[tuple[MachineRegister, ...], int] | None:
    """Registers and the constant of `R4.64+UR8+-0x8`."""
    terms: list[MachineRegister] = []
    offset = 0
    for part in filter(None, text.split("+")):
        if _INTEGER.match(part):
            offset += int(part, 0)
            continue
        match = _TERM.match(part)
        if match is None:
            return None
        file, number, suffix = match.groups()
        if number != "Z":
            terms.append(MachineRegister(name=file + number, file=file, suffix=suffix.replace(".reuse", "")))
    return tuple(terms), offset
