"""Tensor cores: their operands in registers, in shared memory by descriptor, and in tensor memory."""

from __future__ import annotations

from collections.abc import Callable

from harness.audit.program import (
    Access,
    Address,
    Effect,
    Immediate,
    Mechanism,
    Op,
    Register,
    Space,
    Unknown,
)
from harness.audit.sass import widths
from harness.audit.sass.draft import Draft, NotUnderstood
from harness.audit.sass.memory import is_data, stored_values
from harness.audit.sass.operands import MachineAddress


def translate_tensor_memory(draft: Draft) -> None:
    """`LDTM`, `STTM`: between registers and tensor memory."""
    count = widths.tensor_memory_width(draft.words)
    place = next((o for o in draft.operands if isinstance(o, MachineAddress)), None)
    if place is None:
        raise NotUnderstood("no tensor memory operand")
    address = draft.sum_of(place)
    if draft.root == "LDTM":
        names = draft.define(draft.operand(0), count)
        effect, registers = Effect.READ, tuple(Register(name) for name in names)
        for number, name in enumerate(names):
            draft.assign(name, Op.LOAD, (Immediate(number),))
    else:
        data = [o for o in draft.operands if is_data(o)]
        effect, registers = (
            Effect.WRITE,
            tuple(v for v in stored_values(draft, data, count) if isinstance(v, Register)),
        )
    draft.accesses.append(
        Access(
            effect=effect,
            space=Space.TENSOR,
            mechanism=Mechanism.MATRIX,
            address=address,
            registers=registers,
            element_bytes=4,
            num_elements=count,
        )
    )


def translate_tensor_core(draft: Draft) -> None:
    """`UTCHMMA` and its kin, `UTCCP`, `HGMMA`: operands in shared and tensor memory by descriptor."""
    if draft.root == "HGMMA":
        _define_warpgroup_result(draft)
    for operand in draft.operands:
        if not isinstance(operand, MachineAddress):
            if draft.root != "HGMMA" or operand is not draft.operands[0]:
                draft.value(operand)
            continue
        address = draft.sum_of(operand)
        if operand.kind == "idesc":
            continue
        space = Space.TENSOR if operand.kind == "tmem" else Space.SHARED
        is_first_tensor = space is Space.TENSOR
        draft.accesses.append(
            Access(
                effect=Effect.UPDATE if is_first_tensor else Effect.READ,
                space=space,
                mechanism=Mechanism.MATRIX,
                address=address
                if space is Space.TENSOR
                else Address(terms=(Unknown("a matrix descriptor"),)),
            )
        )


def _define_warpgroup_result(draft: Draft) -> None:
    count = widths.warpgroup_width(draft.words)
    if count is None:
        raise NotUnderstood("a warpgroup product of unknown shape")
    for name in draft.define(draft.operand(0), count):
        draft.assign(name, Op.OPAQUE, ())


def translate_matrix(draft: Draft) -> None:
    """`HMMA` and its kin: one warp's product in registers."""
    names = draft.define(draft.operand(0), widths.matrix_width(draft.words))
    for operand in draft.operands[1:]:
        draft.value(operand)
    for name in names:
        draft.assign(name, Op.OPAQUE, ())


TRANSLATORS: dict[str, Callable[[Draft], None]] = {
    **dict.fromkeys(("LDTM", "STTM"), translate_tensor_memory),
    **dict.fromkeys(
        ("UTCHMMA", "UTCQMMA", "UTCOMMA", "UTCIMMA", "UTCCP", "UTCSHIFT", "HGMMA"), translate_tensor_core
    ),
    **dict.fromkeys(("HMMA", "QMMA", "OMMA", "IMMA", "BMMA", "DMMA"), translate_matrix),
}
