"""Loads, stores, atomics, constant banks and cache control."""

from __future__ import annotations

from collections.abc import Callable

from harness.audit.program import (
    Access,
    Address,
    AddressOf,
    Effect,
    Immediate,
    Kind,
    Mechanism,
    Op,
    Operand,
    Order,
    Register,
    Scope,
    Space,
)
from harness.audit.sass import widths
from harness.audit.sass.draft import Draft, NotUnderstood
from harness.audit.sass.operands import ConstantBank, MachineAddress, MachineOperand, MachineRegister

_SPACES = {
    "LDG": Space.GLOBAL,
    "LDGMC": Space.GLOBAL,
    "STG": Space.GLOBAL,
    "USTGR": Space.GLOBAL,
    "ATOMG": Space.GLOBAL,
    "REDG": Space.GLOBAL,
    "LD": Space.GENERIC,
    "ST": Space.GENERIC,
    "ATOM": Space.GENERIC,
    "RED": Space.GENERIC,
    "LDS": Space.SHARED,
    "STS": Space.SHARED,
    "ATOMS": Space.SHARED,
    "LDSM": Space.SHARED,
    "STSM": Space.SHARED,
    "STAS": Space.SHARED,
    "LDL": Space.LOCAL,
    "STL": Space.LOCAL,
}
_SCOPES = {
    "SM": Scope.CTA,
    "CTA": Scope.CTA,
    "GPU": Scope.GPU,
    "SYS": Scope.SYS,
}
_WIDTH_WORDS = frozenset(["U8", "S8", "U16", "S16", "64", "128", "256"])


def _order(draft: Draft) -> tuple[Order, Scope]:
    """`STRONG` is what relaxed, volatile and L2-only accesses all become; their difference is lost in SASS."""
    words = draft.words
    scope = next((_SCOPES[w] for w in words if w in _SCOPES), Scope.NONE)
    if "STRONG" in words or "MMIO" in words:
        return Order.RELAXED, scope
    return Order.WEAK, Scope.NONE


def _cache(draft: Draft) -> str:
    return "nc" if "CONSTANT" in draft.words else ""


def _shape(num_bytes: int) -> tuple[int, int]:
    """Bytes and number of the elements: registers of four bytes, or one narrow value."""
    return (num_bytes, 1) if num_bytes < 4 else (4, num_bytes // 4)


def _find_address(draft: Draft) -> int:
    for position, operand in enumerate(draft.operands):
        if isinstance(operand, MachineAddress) and operand.kind == "":
            return position
    raise NotUnderstood("no memory operand")


def translate_load(draft: Draft) -> None:
    """`LDG`, `LD`, `LDS`, `LDL`, `LDGMC`, `LDSM`."""
    position = _find_address(draft)
    address = draft.address(position)
    num_bytes = _load_bytes(draft)
    targets = [o for o in draft.operands[:position] if is_data(o)]
    for flag in (o for o in draft.operands[:position] if _is_flag(o)):
        for name in draft.define(flag):
            draft.assign(name, Op.OPAQUE, ())
    if not targets:
        raise NotUnderstood("a load without result")
    per_target = widths.registers_of(num_bytes) // len(targets)
    names = [draft.define(target, per_target) for target in targets]
    for operand in draft.operands[position + 1 :]:
        draft.value(operand)
    order, scope = _order(draft)
    element_bytes, count = _shape(num_bytes)
    mechanism = {"LDGMC": Mechanism.MULTIMEM, "LDSM": Mechanism.MATRIX}.get(draft.root, Mechanism.PLAIN)
    draft.accesses.append(
        Access(
            effect=Effect.READ,
            space=_SPACES[draft.root],
            mechanism=mechanism,
            address=address,
            registers=tuple(Register(name) for group in names for name in group),
            element_bytes=element_bytes,
            num_elements=count,
            order=order,
            scope=scope,
            cache=_cache(draft),
        )
    )
    number = 0
    for group in names:
        for name in group:
            draft.assign(name, Op.LOAD, (Immediate(number),))
            number += 1
        number += per_target - len(group)


def _load_bytes(draft: Draft) -> int:
    if draft.root == "LDSM":
        repeat = next((int(w) for w in draft.words if w in ("2", "4")), 1)
        return 4 * repeat
    if draft.root == "LDGMC":
        return _multimem_bytes(draft)
    return widths.access_bytes(draft.words)


def _multimem_bytes(draft: Draft) -> int:
    """`F32x4`, `BF16x8`, `64`, ...: bits of the element times its repetition."""
    for word in draft.words:
        kind, _, times = word.partition("x")
        bits = {"F32": 32, "BF16": 16, "F16": 16, "E4M3": 8, "E5M2": 8, "F64": 64}.get(kind)
        if bits is not None and (times.isdigit() or not times):
            return max(4, bits * int(times or 1) // 8)
    return widths.access_bytes(draft.words)


def is_data(operand: MachineOperand) -> bool:
    return isinstance(operand, MachineRegister) and not operand.is_predicate


def _is_flag(operand: MachineOperand) -> bool:
    return isinstance(operand, MachineRegister) and operand.is_predicate


def translate_store(draft: Draft) -> None:
    """`STG`, `ST`, `STS`, `STL`, `STAS`, `STSM`, `USTGR`."""
    position = _find_address(draft)
    address = draft.address(position)
    data = [o for o in draft.operands[position + 1 :] if is_data(o)]
    num_bytes = widths.access_bytes(draft.words)
    if draft.root == "STSM":
        num_bytes = 4 * next((int(w) for w in draft.words if w in ("2", "4")), 1)
    values = stored_values(draft, data, widths.registers_of(num_bytes))
    for operand in draft.operands[position + 1 :]:
        if not is_data(operand):
            draft.value(operand)
    order, scope = _order(draft)
    element_bytes, count = _shape(num_bytes)
    draft.accesses.append(
        Access(
            effect=Effect.WRITE,
            space=_SPACES[draft.root],
            mechanism=Mechanism.MATRIX if draft.root == "STSM" else Mechanism.PLAIN,
            address=address,
            registers=values,
            element_bytes=element_bytes,
            num_elements=count,
            order=order,
            scope=scope,
        )
    )


def stored_values(draft: Draft, data: list[MachineOperand], registers: int) -> tuple[Operand, ...]:
    """The stored registers, lowest address first; a wide store names the first of each group."""
    found: list[Operand] = []
    each = max(1, registers // max(1, len(data)))
    for operand in data:
        first = draft.value(operand)
        found.append(first)
        for step in range(1, each):
            if isinstance(first, Register):
                name = _next(first.name, step)
                draft.uses.append(name)
                found.append(Register(name))
            else:
                found.append(Immediate(0))
    return tuple(found)


def _next(name: str, step: int) -> str:
    stem = name.rstrip("0123456789")
    return f"{stem}{int(name[len(stem) :]) + step}"


def translate_atomic(draft: Draft) -> None:
    """`ATOMG`, `ATOM`, `ATOMS`, `REDG`, `RED`."""
    position = _find_address(draft)
    address = draft.address(position)
    num_bytes = _atomic_bytes(draft)
    for operand in draft.operands[:position]:
        count = widths.registers_of(num_bytes) if is_data(operand) else 1
        for number, name in enumerate(draft.define(operand, count)):
            op, args = (Op.LOAD, (Immediate(number),)) if is_data(operand) else (Op.OPAQUE, ())
            draft.assign(name, op, args)
    values = tuple(draft.value(operand) for operand in draft.operands[position + 1 :])
    order, scope = _order(draft)
    element_bytes, count = _shape(num_bytes)
    draft.accesses.append(
        Access(
            effect=Effect.UPDATE,
            space=_SPACES[draft.root],
            mechanism=Mechanism.ATOMIC,
            address=address,
            registers=values[:1],
            element_bytes=element_bytes,
            num_elements=count,
            order=Order.RELAXED if order is Order.WEAK else order,
            scope=scope,
        )
    )


def _atomic_bytes(draft: Draft) -> int:
    repeated = any("x" in word and word[0] in "FB" for word in draft.words)
    return _multimem_bytes(draft) if repeated else widths.access_bytes(draft.words)


def translate_constant(draft: Draft) -> None:
    """`LDC`, `LDCU`, `ULDC`: constant banks, the kernel's parameters among them."""
    num_bytes = widths.access_bytes(draft.words)
    names = draft.define(draft.operand(0), widths.registers_of(num_bytes))
    source = draft.operand(1)
    if not isinstance(source, ConstantBank):
        raise NotUnderstood("a constant bank was expected")
    if source.bank == 0 and source.index is None:
        for position, name in enumerate(names):
            rest = num_bytes - 4 * position
            draft.assign(name, Op.MOVE, (draft.bank.value_at(source.offset + 4 * position, min(8, rest)),))
        return
    if source.bank == 4 and source.index is None:
        place = AddressOf(f"constant bank 4 + {source.offset:#x}", Space.GLOBAL)
        draft.assign_wide(names, Op.MOVE, (place,))
        return
    terms: list[Operand] = []
    if source.index is not None and source.index.name:
        draft.uses.append(source.index.name)
        terms.append(Register(source.index.name))
    owner, offset = _constant_owner(draft, source)
    element_bytes, count = _shape(num_bytes)
    draft.accesses.append(
        Access(
            effect=Effect.READ,
            space=owner.space,
            address=Address(terms=(owner, *terms), offset=offset),
            registers=tuple(Register(name) for name in names),
            element_bytes=element_bytes,
            num_elements=count,
        )
    )
    for number, name in enumerate(names):
        draft.assign(name, Op.LOAD, (Immediate(number),))


def _constant_owner(draft: Draft, source: ConstantBank) -> tuple[AddressOf, int]:
    """What an indexed constant lies in: a parameter, or a whole bank."""
    if source.bank == 0:
        index = draft.bank.parameter_at(source.offset - draft.bank.base)
        if index is not None:
            name = draft.bank.params[index].name
            return AddressOf(name, Space.PARAM), source.offset - draft.bank.base - draft.bank.offsets[index]
    return AddressOf(f"constant bank {source.bank}", Space.CONST), source.offset


def translate_cache_control(draft: Draft) -> None:
    """`CCTL`: a prefetch of a line, a line given up, or the invalidation that an acquire ends with."""
    words = draft.words
    if "IVALL" in words or "IV" in words:
        draft.kind = Kind.FENCE
        for operand in draft.operands:
            draft.value(operand)
        return
    address = draft.address(_find_address(draft))
    if any(word in ("PF1", "PF2", "PML2", "PF1_5") for word in words):
        effect = Effect.PREFETCH
    elif "RML2" in words:
        effect = Effect.WRITE
    elif "DML2" in words:
        return
    else:
        raise NotUnderstood("an unknown cache control")
    draft.accesses.append(Access(effect=effect, space=Space.GLOBAL, address=address))


TRANSLATORS: dict[str, Callable[[Draft], None]] = {
    **dict.fromkeys(("LDG", "LD", "LDS", "LDL", "LDGMC", "LDSM"), translate_load),
    **dict.fromkeys(("STG", "ST", "STS", "STL", "STAS", "STSM", "USTGR"), translate_store),
    **dict.fromkeys(("ATOMG", "ATOM", "ATOMS", "REDG", "RED"), translate_atomic),
    **dict.fromkeys(("LDC", "LDCU", "ULDC"), translate_constant),
    "CCTL": translate_cache_control,
}
