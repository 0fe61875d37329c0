"""What the translation of one machine instruction collects."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.audit.program import (
    Access,
    Address,
    AddressOf,
    Assign,
    Barrier,
    Immediate,
    Kind,
    Mbarrier,
    Op,
    Operand,
    Param,
    ParamValue,
    Register,
    Space,
    Special,
    Unknown,
)
from harness.audit.sass.listing import CodeLine
from harness.audit.sass.machine import Machine, special_of
from harness.audit.sass.operands import (
    ConstantBank,
    Literal,
    MachineAddress,
    MachineOperand,
    MachineRegister,
    Word,
    parse_operand,
)

PARAMETER_WINDOW = AddressOf("the parameter space", Space.PARAM)
"""The generic address of the parameters, before it is known which of them is meant."""


class NotUnderstood(Exception):
    """The instruction does not have the form that its opcode asks for; the reader makes it opaque."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bank:
    """How values of constant bank 0 are told apart in one kernel."""

    machine: Machine
    base: int
    params: tuple[Param, ...]
    offsets: tuple[int, ...]
    """Of each parameter, in the parameter space."""

    def parameter_at(self, offset: int) -> int | None:
        """The parameter that holds byte `offset` of the parameter space."""
        for param, start in zip(self.params, self.offsets, strict=True):
            if start <= offset < start + param.num_bytes:
                return param.index
        return None

    def value_at(self, offset: int, num_bytes: int) -> Operand:
        """What `num_bytes` bytes at `offset` of the bank are."""
        index = self.parameter_at(offset - self.base)
        if index is not None:
            return ParamValue(index, offset - self.base - self.offsets[index], num_bytes)
        if offset == self.machine.parameter_window:
            return PARAMETER_WINDOW
        special = self.machine.specials.get(offset)
        if special is not None and num_bytes == 4:
            return Special(special)
        return Special(f"constant bank 0 + {offset:#x}")


@dataclass(slots=True)
class Draft:
    """The facts of one instruction, as they are found."""

    line: CodeLine
    bank: Bank
    operands: tuple[MachineOperand, ...] = ()
    kind: Kind = Kind.PLAIN
    defs: list[str] = field(default_factory=list)
    uses: list[str] = field(default_factory=list)
    assigns: list[Assign] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
    barrier: Barrier | None = None
    mbarrier: Mbarrier | None = None
    labels: tuple[str, ...] = ()
    falls_through: bool = False
    """Besides `labels`, the next instruction may follow although no guard says so."""
    replaces_guard: MachineRegister | None = None
    """The predicate operand that decides instead of a guard."""
    precedes_nop: bool = False
    """The next instruction of the text is a NOP."""
    num_temporaries: int = 0

    root: str = field(init=False)
    """The opcode without its suffixes."""
    words: list[str] = field(init=False)
    """The opcode's suffixes."""

    def __post_init__(self) -> None:
        self.operands = tuple(map(parse_operand, self.line.operands))
        self.root, *self.words = self.line.opcode.split(".")

    def operand(self, position: int) -> MachineOperand:
        """The operand at a position; raises NotUnderstood when there are fewer."""
        if position >= len(self.operands):
            raise NotUnderstood("too few operands")
        return self.operands[position]

    def address(self, position: int) -> Address:
        """The sum that a bracket operand stands for; its registers count as used."""
        operand = self.operand(position)
        if not isinstance(operand, MachineAddress):
            raise NotUnderstood("a memory operand was expected")
        return self.sum_of(operand)

    def sum_of(self, operand: MachineAddress) -> Address:
        """Terms and offset; a scaled register goes through a temporary."""
        terms: list[Operand] = []
        for term in operand.terms:
            self.uses.append(term.name)
            if ".64" in term.suffix:
                self.uses.append(neighbour(term.name, 1))
            scale = next((int(s[1:]) for s in term.suffix.split(".") if s in ("X2", "X4", "X8", "X16")), 1)
            value: Operand = Register(term.name)
            terms.append(self.compute(Op.MUL, (value, Immediate(scale))) if scale > 1 else value)
        if operand.descriptor.startswith("UR") and operand.descriptor != "URZ":
            self.uses.append(operand.descriptor)
        return Address(terms=tuple(terms), offset=operand.offset)

    def value(self, operand: MachineOperand, num_bytes: int = 4) -> Operand:
        """An operand as a value that the instruction uses."""
        if isinstance(operand, MachineRegister):
            return self._register_value(operand)
        if isinstance(operand, Literal):
            return Immediate(operand.value) if operand.value is not None else Unknown(operand.text)
        if isinstance(operand, ConstantBank):
            return self._constant_value(operand, num_bytes)
        if isinstance(operand, MachineAddress):
            address = self.sum_of(operand)
            return (
                address.terms[0] if len(address.terms) == 1 and not address.offset else Unknown("an address")
            )
        if isinstance(operand, Word) and operand.text.startswith("SR"):
            return Immediate(0) if operand.text == "SRZ" else Special(special_of(operand.text))
        return Unknown(operand.text)

    def _register_value(self, operand: MachineRegister) -> Operand:
        if not operand.name:
            value: Operand = Immediate(1 if operand.is_predicate else 0)
        else:
            self.uses.append(operand.name)
            value = Register(operand.name)
        if operand.is_predicate and operand.is_negated:
            if isinstance(value, Immediate):
                return Immediate(0)
            return self.compute(Op.NOT, (value,), bits=1)
        if operand.is_plain:
            return value
        if isinstance(value, Immediate):
            return Immediate(-1 if operand.is_inverted else 0)
        if operand.is_absolute:
            return self.compute(Op.OPAQUE, (value,))
        return self.compute(
            Op.NOT if operand.is_inverted else Op.SUB,
            (value,) if operand.is_inverted else (Immediate(0), value),
        )

    def _constant_value(self, operand: ConstantBank, num_bytes: int) -> Operand:
        if operand.index is not None:
            self.uses.append(operand.index.name)
            return Unknown("an indexed constant")
        if operand.bank == 0:
            value = self.bank.value_at(operand.offset, num_bytes)
        elif operand.bank == 4:
            value = AddressOf(f"constant bank 4 + {operand.offset:#x}", Space.GLOBAL)
        else:
            value = Unknown(f"constant bank {operand.bank}")
        if operand.is_modified:
            return self.compute(Op.OPAQUE, (value,))
        return self.compute(Op.SUB, (Immediate(0), value)) if operand.is_negated else value

    def compute(self, op: Op, args: tuple[Operand, ...], *, bits: int = 32, signed: bool = False) -> Register:
        """An intermediate value of this instruction."""
        self.num_temporaries += 1
        name = f"~{self.num_temporaries}"
        self.assigns.append(Assign(target=name, op=op, args=args, bits=bits, signed=signed))
        return Register(name)

    def define(self, operand: MachineOperand, count: int = 1) -> list[str]:
        """Names of the `count` registers that the operand and those after it stand for; none for the sinks."""
        if not isinstance(operand, MachineRegister) or not (operand.is_plain or operand.is_predicate):
            raise NotUnderstood("a register was expected as result")
        if not operand.name:
            return []
        names = [neighbour(operand.name, step) for step in range(count)]
        self.defs += names
        return names

    def assign(
        self, target: str, op: Op, args: tuple[Operand, ...], *, bits: int = 32, signed: bool = False
    ) -> None:
        """`target` gets a value."""
        self.assigns.append(Assign(target=target, op=op, args=args, bits=bits, signed=signed))

    def assign_wide(self, targets: list[str], op: Op, args: tuple[Operand, ...], *, bits: int = 32) -> None:
        """The lowest register gets the value, as an address would need it; the others get parts of no use."""
        for position, target in enumerate(targets):
            if position == 0:
                self.assign(target, op, args, bits=bits)
            else:
                self.assign(target, Op.PART, (args[0] if args else Immediate(0), Immediate(position)))


def neighbour(name: str, step: int) -> str:
    """The register `step` after `name` in its file."""
    stem = name.rstrip("0123456789")
    return f"{stem}{int(name[len(stem) :]) + step}"
