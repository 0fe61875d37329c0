"""Branches, exits, traps, and the reconvergence marks between them."""

from __future__ import annotations

from harness.audit.program import Barrier, BarrierAction, BarrierScope, Immediate, Kind, Op
from harness.audit.sass.draft import Draft, NotUnderstood
from harness.audit.sass.joined import MARK
from harness.audit.sass.operands import Literal, MachineRegister, Word, parse_operand

OPCODES = frozenset(
    [
        "BRA",
        "BRX",
        "BRXU",
        "JMP",
        "JMX",
        "JMXU",
        "EXIT",
        "KILL",
        "BPT",
        "BSSY",
        "BSYNC",
        "BREAK",
        "CALL",
        "RET",
    ]
)
_INDIRECT = ("BRX", "BRXU", "JMX", "JMXU")


def translate_control(draft: Draft) -> None:
    """Fill `draft` for an opcode of `OPCODES`. Calls and returns that are followed never come here.

    A BSYNC right before a NOP is what ptxas leaves of `bar.warp.sync` with a full mask where the warp has just
    come together; any other BSYNC orders no thread after another here, though the machine lets them meet.
    """
    root = draft.root
    if root in ("BRA", "JMP"):
        _translate_branch(draft)
    elif root in _INDIRECT:
        for operand in draft.operands:
            if isinstance(operand, MachineRegister):
                draft.value(operand)
        draft.labels = draft.line.branch_targets
        draft.kind = Kind.BRANCH if draft.labels else Kind.OPAQUE_BRANCH
    elif root in ("EXIT", "KILL"):
        _translate_exit(draft)
    elif root == "BPT":
        draft.kind = Kind.TRAP if "TRAP" in draft.words else Kind.PLAIN
    elif root == "CALL":
        draft.kind = Kind.CALL
    elif root == "RET":
        draft.kind = Kind.EXIT
    elif root == "BSYNC" and draft.precedes_nop:
        draft.kind = Kind.BARRIER
        mask = Immediate(0xFFFFFFFF)
        draft.barrier = Barrier(scope=BarrierScope.WARP, action=BarrierAction.SYNC, count=mask)
    elif root not in ("BSSY", "BSYNC", "BREAK"):
        raise NotUnderstood(f"an unknown opcode {draft.line.opcode}")


def label_of(draft: Draft) -> str:
    """The label, or the address as `0x590`, that a direct branch names."""
    for operand in reversed(draft.operands):
        if isinstance(operand, Word) and operand.label:
            return operand.label
        if isinstance(operand, Literal) and operand.value is not None:
            return f"{operand.value:#x}"
    raise NotUnderstood("a branch without its target")


def _translate_branch(draft: Draft) -> None:
    """A predicate operand joins the guard; forms that ask about other threads may go either way.

    `BRA.U` asks a uniform predicate, which is the thread's own. `BRA.DIV` asks whether the warp has diverged and
    `.ANY`, `.ALL` ask all lanes; `BRA.CONV` is the opposite of `.DIV`.
    """
    draft.kind = Kind.BRANCH
    draft.labels = (label_of(draft),)
    predicates = [o for o in draft.operands if isinstance(o, MachineRegister) and o.is_predicate]
    registers = [o for o in draft.operands if isinstance(o, MachineRegister) and not o.is_predicate]
    for operand in (*predicates, *registers):
        draft.value(operand)
    asks_others = bool({"DIV", "ANY", "ALL", "CONV"} & set(draft.words)) or bool(registers)
    open_predicates = [p for p in predicates if p.name]
    if any(not p.name and p.is_negated for p in predicates):
        draft.kind, draft.labels = Kind.PLAIN, ()
    elif asks_others:
        draft.falls_through = True
    else:
        _decide_by(draft, open_predicates)


def _translate_exit(draft: Draft) -> None:
    draft.kind = Kind.EXIT
    predicates = [o for o in draft.operands if isinstance(o, MachineRegister) and o.is_predicate]
    for operand in predicates:
        draft.value(operand)
    named = [p for p in predicates if p.name]
    if any(not p.name and p.is_negated for p in predicates):
        draft.kind = Kind.PLAIN
    else:
        _decide_by(draft, named)


def _decide_by(draft: Draft, predicates: list[MachineRegister]) -> None:
    """All of `predicates`, and the guard, must hold; several make a register of their own."""
    guard = parse_operand(draft.line.guard) if draft.line.guard else None
    deciding = [*([guard] if isinstance(guard, MachineRegister) and guard.name else []), *predicates]
    if len(deciding) > 1:
        total = draft.value(deciding[0])
        for predicate in deciding[1:]:
            total = draft.compute(Op.AND, (total, draft.value(predicate)), bits=1)
        name = f"{MARK}{draft.line.number}"
        draft.assign(name, Op.MOVE, (total,), bits=1)
        draft.replaces_guard = MachineRegister(name=name, file="P")
    elif predicates:
        draft.replaces_guard = predicates[0]
