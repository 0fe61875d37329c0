"""Votes, elections, shuffles, and predicates packed into registers."""

from __future__ import annotations

from collections.abc import Callable

from harness.audit.program import Immediate, Op, Operand, Register
from harness.audit.sass.draft import Draft, NotUnderstood
from harness.audit.sass.operands import Literal, MachineOperand, MachineRegister, Word


def _is_predicate(operand: MachineOperand) -> bool:
    return isinstance(operand, MachineRegister) and operand.is_predicate


def _translate_vote(draft: Draft) -> None:
    """`VOTE` and `VOTEU`: a mask, a predicate, or both, of one predicate of all lanes."""
    operands = list(draft.operands)
    results: list[MachineOperand] = []
    while len(operands) > 1 and len(results) < 2:
        operand = operands[0]
        if not isinstance(operand, MachineRegister) or operand.is_negated:
            break
        if operand.is_predicate and results and _is_predicate(results[-1]):
            break
        results.append(operands.pop(0))
    args = tuple(draft.value(operand) for operand in operands)
    if not results or not args:
        raise NotUnderstood("a vote without result or input")
    for result in results:
        for name in draft.define(result):
            if not _is_predicate(result):
                draft.assign(name, Op.OPAQUE, args)
            elif "EQ" in draft.words:
                draft.assign(name, Op.OPAQUE, (), bits=1)
            else:  # of the lane's own it says as much as a conjunction or disjunction with others'
                others = draft.compute(Op.OPAQUE, (), bits=1)
                draft.assign(name, Op.AND if "ALL" in draft.words else Op.OR, (*args, others), bits=1)


def _translate_elect(draft: Draft) -> None:
    """`ELECT P0, UR4, mask`: one thread of the warp."""
    for name in draft.define(draft.operand(0)):
        draft.assign(name, Op.ELECT, (), bits=1)
    for name in draft.define(draft.operand(1)):
        draft.assign(name, Op.OPAQUE, ())
    for operand in draft.operands[2:]:
        draft.value(operand)


def _translate_shuffle(draft: Draft) -> None:
    """`SHFL`: from lane 0 it is a warp-wide copy."""
    for name in draft.define(draft.operand(0)):
        draft.assign(name, Op.OPAQUE, (), bits=1)
    names = draft.define(draft.operand(1))
    args = tuple(draft.value(operand) for operand in draft.operands[2:])
    if "IDX" in draft.words and len(args) > 1 and args[2:3] == (Immediate(0x1F),):
        draft.assign_wide(names, Op.UNIFORM, args[:2])
    else:
        draft.assign_wide(names, Op.OPAQUE, args)


def _translate_to_predicates(draft: Draft) -> None:
    """`R2P PR, R4, 0x7f` writes the predicates that its mask names."""
    is_uniform = draft.root == "UR2UP"
    mask = draft.operand(2) if len(draft.operands) > 2 else None
    bits = mask.value if isinstance(mask, Literal) and mask.value is not None else 0x7F
    args = (draft.value(draft.operand(1)),)
    for number in range(7):
        if bits >> number & 1:
            name = f"{'UP' if is_uniform else 'P'}{number}"
            draft.defs.append(name)
            draft.assign(name, Op.OPAQUE, args, bits=1)


def _translate_from_predicates(draft: Draft) -> None:
    """`P2R R0, PR, R1, 0x7f` packs the predicates that its mask names into a register, and keeps its other bits."""
    names = draft.define(draft.operand(0))
    args = tuple(draft.value(o) for o in draft.operands[2:] if not isinstance(o, Word))
    mask = args[-1] if args else None
    if draft.words or len(args) != 2 or not isinstance(mask, Immediate):
        draft.assign_wide(names, Op.OPAQUE, args)
        return
    packed: Operand = args[0]
    if packed != Immediate(0):
        packed = draft.compute(Op.AND, (packed, Immediate(~mask.value)))
    for number in (n for n in range(7) if mask.value >> n & 1):
        predicate = Register(f"{'UP' if draft.root == 'UP2UR' else 'P'}{number}")
        draft.uses.append(predicate.name)
        bit = draft.compute(Op.SELECT, (Immediate(1 << number), Immediate(0), predicate))
        packed = bit if packed == Immediate(0) else draft.compute(Op.OR, (packed, bit))
    draft.assign_wide(names, Op.MOVE, (packed,))


def _translate_barrier_result(draft: Draft) -> None:
    """`B2R.RESULT R0, P0`: the outcome of a reduction at a barrier."""
    for operand in draft.operands:
        for name in draft.define(operand):
            draft.assign(name, Op.OPAQUE, ())


TRANSLATORS: dict[str, Callable[[Draft], None]] = {
    "VOTE": _translate_vote,
    "VOTEU": _translate_vote,
    "ELECT": _translate_elect,
    "SHFL": _translate_shuffle,
    "R2P": _translate_to_predicates,
    "UR2UP": _translate_to_predicates,
    "P2R": _translate_from_predicates,
    "UP2UR": _translate_from_predicates,
    "B2R": _translate_barrier_result,
}
