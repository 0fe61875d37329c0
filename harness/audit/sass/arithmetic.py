"""Register in, register out."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from harness.audit.program import Immediate, Op, Operand, Register
from harness.audit.sass import widths
from harness.audit.sass.draft import Draft, NotUnderstood
from harness.audit.sass.operands import Literal, MachineOperand, MachineRegister
from harness.audit.sass.truth import apply_table

_COMPARISONS = {"EQ": Op.EQ, "NE": Op.NE, "LT": Op.LT, "LE": Op.LE, "GT": Op.GT, "GE": Op.GE}
_JOINS = {"AND": Op.AND, "OR": Op.OR, "XOR": Op.XOR}

TWO_PREDICATES = frozenset(
    ["ISETP", "UISETP", "FSETP", "UFSETP", "DSETP", "HSETP2", "PLOP3", "UPLOP3", "PSETP", "UPSETP"]
)
ONE_PREDICATE = frozenset(["FCHK", "QSPC"])

_NAMES = """
BMSK BREV CREDUX CS2R DADD DFMA DMNMX DMUL F2F F2FP F2I F2IP FADD FADD2 FFMA FFMA2 FHADD FHFMA FLO
FMNMX FMNMX3 FMUL FMUL2 FRND FSEL FSET FSWZADD HADD2 HFMA2 HMNMX2 HMUL2 HSET2 I2F I2FP I2I I2IP IABS
IADD IADD3 IDP IMAD IMNMX ISCADD LEA LOP3 MATCH MOV MOVM MUFU POPC PRMT R2UR REDUX S2R S2UR SEL
SGXT SHF SHL SHR UBMSK UBREV UF2F UF2FP UF2I UFADD UFFMA UFLO UFMUL UFMNMX UFSEL UI2F UI2FP UIABS UIADD
UIADD3 UIMAD UIMNMX ULEA ULOP3 UMOV UPOPC UPRMT USEL USGXT USHF USHL USHR UVIMNMX UVIMNMX3
VABSDIFF VABSDIFF4 VHMNMX VIADD VIADDMNMX VIMNMX VIMNMX3
"""
OPCODES = TWO_PREDICATES | ONE_PREDICATE | frozenset(_NAMES.split())
"""Opcodes whose only effect is on registers, and whose results this module can name."""


def translate_arithmetic(draft: Draft) -> None:
    """Fill `draft` for an opcode of `OPCODES`."""
    root = draft.root
    special = _SPECIAL.get(root)
    if special is not None:
        special(draft)
        return
    predicates, targets, sources = _split(draft)
    if root in TWO_PREDICATES or root in ONE_PREDICATE:
        _translate_predicate(draft, predicates, sources)
        return
    for predicate in predicates:
        for name in draft.define(predicate):
            draft.assign(name, Op.OPAQUE, tuple(Register(u) for u in _names(sources)))
    if not targets:
        raise NotUnderstood("no result register")
    names = draft.define(targets[0], widths.arithmetic_width(root, draft.words))
    rule = _RULES.get(root)
    args = tuple(draft.value(operand, 8 if len(names) > 1 else 4) for operand in sources)
    op, values = rule(_Case(draft, sources, args)) if rule is not None else (Op.OPAQUE, args)
    bits = 64 if len(names) > 1 else 32
    draft.assign_wide(names, op, values, bits=bits)


def _names(operands: tuple[MachineOperand, ...]) -> list[str]:
    return [o.name for o in operands if isinstance(o, MachineRegister) and o.name]


def _is_result_predicate(operand: MachineOperand) -> bool:
    return isinstance(operand, MachineRegister) and operand.is_predicate and not operand.is_negated


def _split(
    draft: Draft,
) -> tuple[tuple[MachineOperand, ...], tuple[MachineOperand, ...], tuple[MachineOperand, ...]]:
    """Result predicates, result registers, and the rest."""
    operands = draft.operands
    if draft.root in TWO_PREDICATES or draft.root in ONE_PREDICATE:
        count = 2 if draft.root in TWO_PREDICATES else 1
        return operands[:count], (), operands[count:]
    at = 0
    predicates: list[MachineOperand] = []
    while at < len(operands) and _is_result_predicate(operands[at]):
        predicates.append(operands[at])
        at += 1
    targets = operands[at : at + 1]
    at += 1
    while at < len(operands) - 1 and _is_result_predicate(operands[at]):
        predicates.append(operands[at])
        at += 1
    return tuple(predicates), targets, operands[at:]


def _translate_predicate(
    draft: Draft, predicates: tuple[MachineOperand, ...], sources: tuple[MachineOperand, ...]
) -> None:
    words = draft.words
    names = [draft.define(predicate) for predicate in predicates]
    args = tuple(draft.value(operand) for operand in sources)
    values: list[tuple[Op, tuple[Operand, ...]]] = [(Op.OPAQUE, args), (Op.OPAQUE, args)]
    if draft.root in ("PLOP3", "UPLOP3") and "LUT" in words and len(args) == 5:
        tables = [a.value for a in args[3:] if isinstance(a, Immediate)]
        if len(tables) == 2:
            inputs = (args[0], args[1], args[2])
            values = [(Op.MOVE, (apply_table(draft, inputs, table, 1),)) for table in tables]
    elif (
        draft.root in ("ISETP", "UISETP")
        and words[0] in _COMPARISONS
        and "EX" not in words
        and len(args) == 3
    ):
        signed = "U32" not in words
        compared = draft.compute(_COMPARISONS[words[0]], args[:2], bits=32, signed=signed)
        join = next((_JOINS[word] for word in words if word in _JOINS), None)
        if join is not None:
            opposite = draft.compute(Op.NOT, (compared,), bits=1)
            values = [_joined(join, value, args[2]) for value in (compared, opposite)]
    for targets, (op, inputs_of) in zip(names, values, strict=False):
        for name in targets:
            draft.assign(name, op, inputs_of, bits=1)


def _joined(join: Op, value: Operand, other: Operand) -> tuple[Op, tuple[Operand, ...]]:
    """`value join other`, without the join that changes nothing."""
    neutral = 1 if join is Op.AND else 0
    return (Op.MOVE, (value,)) if other == Immediate(neutral) else (join, (value, other))


Value = tuple[Op, tuple[Operand, ...]]


@dataclass(frozen=True, slots=True)
class _Case:
    """An instruction with its sources, as written and as values."""

    draft: Draft
    sources: tuple[MachineOperand, ...]
    args: tuple[Operand, ...]

    @property
    def words(self) -> list[str]:
        return self.draft.words


Rule = Callable[[_Case], Value]


def _sum(case: _Case) -> Value:
    """`IADD3` and its kin; with a carry coming in the result is the high part of a longer sum."""
    if "X" in case.words or "EX" in case.words:
        return Op.PART, (case.args[0], Immediate(1))
    terms = [
        a for o, a in zip(case.sources, case.args, strict=True) if a != Immediate(0) and not _is_predicate(o)
    ]
    return _add(case.draft, terms)


def _is_predicate(operand: MachineOperand) -> bool:
    return isinstance(operand, MachineRegister) and operand.is_predicate


def _add(draft: Draft, terms: list[Operand]) -> Value:
    if not terms:
        return Op.MOVE, (Immediate(0),)
    total = terms[0]
    if len(terms) == 1:
        return Op.MOVE, (total,)
    for term in terms[1:-1]:
        total = draft.compute(Op.ADD, (total, term), bits=64)
    return Op.ADD, (total, terms[-1])


def _product(case: _Case) -> Value:
    """`IMAD` in its many uses: a move, a sum, a shift, or a product and a sum."""
    words = case.words
    if "HI" in words and "U32" in words and "X" not in words and case.args[2:] == (Immediate(0),):
        return Op.MUL_HIGH, case.args[:2]
    if "X" in words or "HI" in words:
        return Op.PART, (case.args[-1], Immediate(1))
    if len(case.args) < 3:
        raise NotUnderstood("a product of fewer than three operands")
    a, b, c = case.args[0], case.args[1], case.args[2]
    if Immediate(0) in (a, b):
        return Op.MOVE, (c,)
    if a == Immediate(1) or b == Immediate(1):
        return _add(case.draft, [t for t in (b if a == Immediate(1) else a, c) if t != Immediate(0)])
    return (Op.MUL, (a, b)) if c == Immediate(0) else (Op.MAD, (a, b, c))


def _scaled_sum(case: _Case) -> Value:
    """`LEA`: (a << shift) + b."""
    if "HI" in case.words or "X" in case.words:
        return Op.PART, (case.args[1], Immediate(1))
    literals = [o for o in case.sources if isinstance(o, Literal)]
    shift = literals[-1].value if literals and isinstance(case.sources[-1], Literal) else None
    if shift is None or len(case.args) < 3:
        return Op.OPAQUE, case.args
    if case.args[1] == Immediate(0):
        return Op.SHL, (case.args[0], Immediate(shift))
    return Op.MAD, (case.args[0], Immediate(1 << shift), case.args[1])


def _shift(case: _Case) -> Value:
    """`SHF`: the funnel shift, where it only shifts one register."""
    words = case.words
    if "L" in words and "64" not in "".join(words) and case.args[2:3] == (Immediate(0),):
        return Op.SHL, case.args[:2]
    if "R" in words and "HI" in words and "U32" in words and case.args[0] == Immediate(0):
        return Op.SHR, (case.args[2], case.args[1])
    return Op.OPAQUE, case.args


def _logic(case: _Case) -> Value:
    table = case.args[3] if len(case.args) > 3 else None
    if "LUT" not in case.words or not isinstance(table, Immediate):
        return Op.OPAQUE, case.args
    return Op.MOVE, (apply_table(case.draft, (case.args[0], case.args[1], case.args[2]), table.value, 32),)


def _choice(case: _Case) -> Value:
    return (Op.SELECT, case.args[:3]) if len(case.args) == 3 else (Op.OPAQUE, case.args)


def _extreme(case: _Case) -> Value:
    """`VIMNMX a, b, which` and `VIADDMNMX a, x, b, which`: the smaller value where `which` is true."""
    count = 4 if case.draft.root == "VIADDMNMX" else 3
    if len(case.args) != count or not isinstance(case.args[-1], Immediate):
        return Op.OPAQUE, case.args
    if any(word not in ("U32", "S32") for word in case.words):
        return Op.OPAQUE, case.args
    first = case.args[0]
    if count == 4:
        first = case.draft.compute(Op.ADD, case.args[:2], bits=32)
    op = Op.MIN if case.args[-1].value else Op.MAX
    signed = "U32" not in case.words
    return Op.MOVE, (case.draft.compute(op, (first, case.args[-2]), bits=32, signed=signed),)


def _move(case: _Case) -> Value:
    return (Op.MOVE, case.args[:1]) if case.args else (Op.OPAQUE, ())


def _halves(case: _Case) -> Value:
    """`HFMA2 R0, -RZ, RZ, hi, lo`: how a compiler loads a constant on the floating-point pipe."""
    if len(case.sources) != 4 or case.args[:2] != (Immediate(0), Immediate(0)):
        return Op.OPAQUE, case.args
    bits = [_half_bits(source) for source in case.sources[2:]]
    if bits[0] is None or bits[1] is None:
        return Op.OPAQUE, case.args
    return Op.MOVE, (Immediate(bits[0] << 16 | bits[1]),)


def _half_bits(operand: MachineOperand) -> int | None:
    if not isinstance(operand, Literal):
        return None
    try:
        return int.from_bytes(struct.pack("<e", float(operand.text)), "little")
    except (ValueError, OverflowError):
        return None


_RULES: dict[str, Rule] = {
    "HFMA2": _halves,
    "IADD3": _sum,
    "UIADD3": _sum,
    "IADD": _sum,
    "UIADD": _sum,
    "VIADD": _sum,
    "IMAD": _product,
    "UIMAD": _product,
    "LEA": _scaled_sum,
    "ULEA": _scaled_sum,
    **dict.fromkeys(("VIMNMX", "UVIMNMX", "IMNMX", "UIMNMX", "VIADDMNMX"), _extreme),
    "SHF": _shift,
    "USHF": _shift,
    "SEL": _choice,
    "USEL": _choice,
    "FSEL": _choice,
    "MOV": _move,
    "UMOV": _move,
    "R2UR": _move,
    "S2R": _move,
    "S2UR": _move,
    "CS2R": _move,
}


def _translate_logic(draft: Draft) -> None:
    """`LOP3`, whose result predicate says whether the result is not zero."""
    predicates, targets, sources = _split(draft)
    if not targets:
        raise NotUnderstood("no result register")
    flags = [name for predicate in predicates for name in draft.define(predicate)]
    names = draft.define(targets[0])
    args = tuple(draft.value(operand) for operand in sources)
    op, values = _logic(_Case(draft, sources, args))
    for name in flags:
        result = values[0] if op is Op.MOVE else draft.compute(op, values)
        flag = draft.compute(Op.NE, (result, Immediate(0)), bits=32)
        other = args[4] if len(args) > 4 else Immediate(0)
        draft.assign(name, *_joined(Op.OR, flag, other), bits=1)
    draft.assign_wide(names, op, values)


_SPECIAL: dict[str, Callable[[Draft], None]] = {"LOP3": _translate_logic, "ULOP3": _translate_logic}
