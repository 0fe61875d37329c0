"""Instructions that touch memory: plain loads and stores, atomics, multimem, prefetches, textures, surfaces."""

from __future__ import annotations

from harness.audit.program import (
    Access,
    Address,
    AddressOf,
    Effect,
    Immediate,
    Mechanism,
    Op,
    Operand,
    Order,
    ParamValue,
    Register,
    Scope,
    Space,
)
from harness.audit.ptx.declarations import type_bytes
from harness.audit.ptx.draft import Draft, NotUnderstood
from harness.audit.ptx.syntax import Memory, Term, Vector

SPACES = {
    "global": Space.GLOBAL, "shared": Space.SHARED, "shared::cta": Space.SHARED, "shared::cluster": Space.SHARED,
    "local": Space.LOCAL, "param": Space.PARAM, "param::entry": Space.PARAM, "param::func": Space.PARAM,
    "const": Space.CONST,
}  # fmt: skip
_ORDERS = {
    "weak": Order.WEAK, "volatile": Order.VOLATILE, "relaxed": Order.RELAXED, "acquire": Order.ACQUIRE,
    "release": Order.RELEASE, "acq_rel": Order.ACQ_REL,
}  # fmt: skip
_SCOPES = {"cta": Scope.CTA, "cluster": Scope.CLUSTER, "gpu": Scope.GPU, "sys": Scope.SYS}
_CACHES = ("nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt")
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}
_MODIFIERS = frozenset(
    [
        "mmio",
        "unified",
        "async",
        "bulk",
        "noftz",
        "and",
        "or",
        "xor",
        "cas",
        "exch",
        "add",
        "inc",
        "dec",
        "min",
        "max",
        "ld_reduce",
        "st",
        "red",
        "acc::f16",
        "acc::f32",
        "NaN",
        "L1",
        "L2",
        "tensormap",
        "cp",
        "reduce",
        "prefetch",
        "mbarrier::complete_tx::bytes",
        "multicast::cluster",
        "cp_mask",
        "bulk_group",
        "sync",
        "aligned",
    ]
)


def space_of(words: list[str], default: Space = Space.GENERIC) -> Space:
    """The state space that an opcode names first."""
    return next((SPACES[w] for w in words if w in SPACES), default)


def _check_words(words: list[str]) -> None:
    for word in words[1:]:
        known = (
            word in SPACES or word in _ORDERS or word in _SCOPES or word in _CACHES or word in _VECTORS
            or word in _MODIFIERS or type_bytes(word) is not None or word.startswith(("L1::", "L2::"))
        )  # fmt: skip
        if not known:
            raise NotUnderstood(f"an unknown modifier .{word}")


def access_of(
    words: list[str], effect: Effect, address: Address, mechanism: Mechanism = Mechanism.PLAIN
) -> Access:
    """An access with the space, order, scope, width and cache path that the opcode states."""
    sizes = [size for w in words[1:] if (size := type_bytes(w)) is not None]
    count = next((_VECTORS[w] for w in words if w in _VECTORS), 1)
    order = next((_ORDERS[w] for w in words if w in _ORDERS), Order.WEAK)
    scope = next((_SCOPES[w] for w in words if w in _SCOPES), Scope.NONE)
    return Access(
        effect=effect,
        space=space_of(words),
        mechanism=mechanism,
        address=address,
        element_bytes=sizes[-1] if sizes else None,
        num_elements=count,
        order=order,
        scope=Scope.SYS if order is Order.VOLATILE else scope,
        cache=next((w for w in words if w in _CACHES), ""),
    )


def _with_registers(access: Access, registers: tuple[Operand, ...]) -> Access:
    return access._replace(registers=registers, num_elements=max(1, len(registers)))


def translate_load(draft: Draft) -> None:
    """`ld`, `ldu`, `multimem.ld_reduce`."""
    words = draft.words
    _check_words(words)
    mechanism = Mechanism.MULTIMEM if words[0] == "multimem" else Mechanism.PLAIN
    address = draft.address(draft.operand(1))
    draft.sources(draft.statement.operands[2:])
    targets = draft.targets(draft.operand(0))
    access = access_of(words, Effect.READ, address, mechanism)
    base = address.terms[0] if len(address.terms) == 1 else None
    if access.element_bytes is None:
        raise NotUnderstood("a load without a type")
    if (
        isinstance(base, AddressOf)
        and base.space is Space.PARAM
        and access.space in (Space.PARAM, Space.GENERIC)
    ):
        index = draft.names.param_index(base.name)
        if index is not None:
            for number, target in enumerate(targets):
                offset = address.offset + number * access.element_bytes
                value = ParamValue(index, offset, access.element_bytes)
                draft.assign(target, Op.MOVE, (value,), bits=access.element_bytes * 8)
            return
    registers = tuple(Register(t) if t is not None else Immediate(0) for t in targets)
    draft.accesses.append(_with_registers(access, registers))
    for number, target in enumerate(targets):
        draft.assign(target, Op.LOAD, (Immediate(number),), bits=access.element_bytes * 8)


def translate_store(draft: Draft) -> None:
    """`st`, `st.async`, `st.bulk`, `multimem.st`."""
    words = draft.words
    _check_words(words)
    mechanism = Mechanism.MULTIMEM if words[0] == "multimem" else Mechanism.PLAIN
    if "async" in words or "bulk" in words:
        mechanism = Mechanism.BULK
    address = draft.address(draft.operand(0))
    values = _stored(draft, 1)
    draft.sources(draft.statement.operands[2:])
    draft.accesses.append(_with_registers(access_of(words, Effect.WRITE, address, mechanism), values))


def _stored(draft: Draft, position: int) -> tuple[Operand, ...]:
    """The values that go to memory, one an element."""
    term = draft.operand(position)
    if isinstance(term, Memory):
        raise NotUnderstood("a value was expected, not a place in memory")
    return draft.sources((term,))


def translate_atomic(draft: Draft) -> None:
    """`atom`, `red`, `multimem.red`."""
    words = draft.words
    _check_words(words)
    operands = draft.statement.operands
    mechanism = Mechanism.MULTIMEM if words[0] == "multimem" else Mechanism.ATOMIC
    has_result = words[0] == "atom"
    address = draft.address(draft.operand(1 if has_result else 0))
    values = _stored(draft, 2 if has_result else 1)
    draft.sources(operands[3 if has_result else 2 :])
    access = _with_registers(access_of(words, Effect.UPDATE, address, mechanism), values)
    if access.order is Order.WEAK:
        access = access._replace(order=Order.RELAXED, scope=Scope.GPU if not access.scope else access.scope)
    draft.accesses.append(access)
    if has_result:
        for number, target in enumerate(draft.targets(draft.operand(0))):
            draft.assign(target, Op.LOAD, (Immediate(number),), bits=(type_bytes(words[-1]) or 4) * 8)


def translate_multimem(draft: Draft) -> None:
    """All of `multimem`."""
    form = draft.words[1] if len(draft.words) > 1 else ""
    if form == "ld_reduce":
        translate_load(draft)
    elif form == "st":
        translate_store(draft)
    elif form == "red":
        translate_atomic(draft)
    elif form == "cp":
        _check_words(draft.words)
        target, source = draft.address(draft.operand(0)), draft.address(draft.operand(1))
        draft.sources(draft.statement.operands[2:])
        effect = Effect.UPDATE if "reduce" in draft.words else Effect.WRITE
        draft.accesses += [
            Access(effect=Effect.READ, space=Space.SHARED, mechanism=Mechanism.BULK, address=source),
            Access(effect=effect, space=Space.GLOBAL, mechanism=Mechanism.MULTIMEM, address=target),
        ]
    else:
        raise NotUnderstood("an unknown form of multimem")


def translate_prefetch(draft: Draft) -> None:
    """`prefetch`, `prefetchu`, `discard`: the last one destroys what was there."""
    words = draft.words
    _check_words(words)
    address = draft.address(draft.operand(0))
    draft.sources(draft.statement.operands[1:])
    effect = Effect.WRITE if words[0] == "discard" else Effect.PREFETCH
    cache = "tensormap" if "tensormap" in words else ""
    draft.accesses.append(Access(effect=effect, space=space_of(words), address=address, cache=cache))


def translate_texture(draft: Draft) -> None:
    """`tex`, `tld4`, `suld`, `sust`, `sured`: the handle stands for the memory behind it."""
    root = draft.words[0]
    if root in ("tex", "tld4", "suld"):
        handle, rest = draft.operand(1), draft.statement.operands[2:]
        targets = draft.targets(draft.operand(0))
        effect = Effect.READ
    else:
        handle, rest, targets = draft.operand(0), draft.statement.operands[1:], []
        effect = Effect.WRITE if root == "sust" else Effect.UPDATE
    address = _handle_address(draft, handle)
    draft.sources(rest)
    draft.accesses.append(
        Access(
            effect=effect,
            space=Space.GLOBAL,
            mechanism=Mechanism.TEXTURE if root in ("tex", "tld4") else Mechanism.SURFACE,
            address=address,
        )
    )
    for target in targets:
        draft.assign(target, Op.LOAD, (Immediate(0),))


def _handle_address(draft: Draft, term: Term) -> Address:
    address = draft.address(term)
    if isinstance(term, Memory):
        draft.sources(term.others)
    return address


def translate_matrix(draft: Draft) -> None:
    """`ldmatrix`, `stmatrix`, `wmma`."""
    words = draft.words
    loads = words[0] == "ldmatrix" or (words[0] == "wmma" and "load" in words)
    stores = words[0] == "stmatrix" or (words[0] == "wmma" and "store" in words)
    default = Space.GENERIC if words[0] == "wmma" else Space.SHARED
    space = space_of(words, default)
    if loads:
        targets = draft.targets(draft.operand(0))
        address = draft.address(draft.operand(1))
        draft.sources(draft.statement.operands[2:])
        draft.accesses.append(
            Access(effect=Effect.READ, space=space, mechanism=Mechanism.MATRIX, address=address)
        )
        for target in targets:
            draft.assign(target, Op.LOAD, (Immediate(0),))
    elif stores:
        address = draft.address(draft.operand(0))
        draft.sources(draft.statement.operands[1:])
        draft.accesses.append(
            Access(effect=Effect.WRITE, space=space, mechanism=Mechanism.MATRIX, address=address)
        )
    elif words[0] == "wmma" and "mma" in words:
        targets = draft.targets(draft.operand(0))
        args = draft.sources(draft.statement.operands[1:])
        for target in targets:
            draft.assign(target, Op.OPAQUE, args)
    else:
        raise NotUnderstood("an unknown matrix form")


def translate_tensor_core(draft: Draft) -> None:
    """`wgmma` and `tcgen05`, whose operands lie in shared and tensor memory; `tcgen05.commit` is a barrier's."""
    words = draft.words
    form = words[1].split("::")[0] if len(words) > 1 else ""
    operands = draft.statement.operands
    if words[0] == "wgmma":
        if form == "mma_async":
            targets = draft.targets(draft.operand(0))
            args = draft.sources(operands[1:])
            draft.uses += [t for t in targets if t is not None]
            for target in targets:
                draft.assign(target, Op.OPAQUE, args)
        elif form in ("fence", "commit_group", "wait_group"):
            draft.sources(operands)
        else:
            raise NotUnderstood("an unknown form of wgmma")
        return
    if form == "ld":
        targets = [t for o in operands[:1] for t in draft.targets(o)]
        if "red" in words and len(operands) > 2:
            targets += draft.targets(operands[1])
        draft.sources(operands[2 if "red" in words and len(operands) > 2 else 1 :])
        for target in targets:
            draft.assign(target, Op.OPAQUE, ())
    elif form == "alloc":
        address = draft.address(draft.operand(0))
        draft.sources(operands[1:])
        draft.accesses.append(Access(effect=Effect.WRITE, space=Space.SHARED, address=address))
    elif form in ("st", "cp", "mma", "shift", "dealloc", "fence", "wait", "relinquish_alloc_permit"):
        for operand in operands:
            draft.sources((operand,) if not isinstance(operand, Vector) else operand.items)
    else:
        raise NotUnderstood("an unknown form of tcgen05")
