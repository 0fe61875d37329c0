"""Asynchronous copies (`cp.*`), tensor maps, and cluster launch control."""

from __future__ import annotations

from harness.audit.program import (
    Access,
    Address,
    BarrierAction,
    Effect,
    Immediate,
    Kind,
    Mbarrier,
    Mechanism,
    Op,
    Space,
)
from harness.audit.ptx.draft import Draft, NotUnderstood
from harness.audit.ptx.memory import SPACES, space_of
from harness.audit.ptx.syntax import Memory

_WORDS = frozenset(
    [
        "cp",
        "async",
        "bulk",
        "tensor",
        "prefetch",
        "reduce",
        "commit_group",
        "wait_group",
        "wait_all",
        "mbarrier",
        "arrive",
        "noinc",
        "1d",
        "2d",
        "3d",
        "4d",
        "5d",
        "tile",
        "tile::gather4",
        "tile::scatter4",
        "im2col",
        "im2col::w",
        "im2col::w::128",
        "im2col_no_offs",
        "mbarrier::complete_tx::bytes",
        "multicast::cluster",
        "bulk_group",
        "read",
        "cta_group::1",
        "cta_group::2",
        "cp_mask",
        "ignore_oob",
        "L2",
        "ca",
        "cg",
        "add",
        "min",
        "max",
        "inc",
        "dec",
        "and",
        "or",
        "xor",
        "noftz",
        "b64",
        "u32",
        "s32",
        "u64",
        "s64",
        "f16",
        "bf16",
        "f32",
        "f64",
        "b32",
        "weak",
        "relaxed",
        "release",
        "gpu",
        "sys",
        "cta",
        "cluster",
        "b16",
    ]
)


def translate_copy(draft: Draft) -> None:
    """Every `cp` instruction."""
    words = draft.words
    for word in words:
        if word not in _WORDS and word not in SPACES and not word.startswith("L2::"):
            raise NotUnderstood(f"an unknown modifier .{word}")
    if "commit_group" in words or "wait_group" in words or "wait_all" in words:
        draft.sources(draft.statement.operands)
    elif "mbarrier" in words and "arrive" in words:
        draft.kind = Kind.MBARRIER
        address = draft.address(draft.operand(0))
        draft.mbarrier = Mbarrier(
            action=BarrierAction.ARRIVE,
            address=address,
            count=None if "noinc" in words else Immediate(0),
            is_asynchronous=True,
        )
    elif "prefetch" in words:
        _translate_bulk_prefetch(draft)
    elif "tensor" in words:
        _translate_tensor(draft)
    elif "async" in words:
        _translate_plain_copy(draft)
    else:
        raise NotUnderstood("an unknown form of cp")


def _map_address(draft: Draft, position: int) -> Address:
    """The address of a tensor map operand; its coordinates count as used."""
    term = draft.operand(position)
    address = draft.address(term)
    if isinstance(term, Memory):
        draft.sources(term.others)
    return address


def _translate_bulk_prefetch(draft: Draft) -> None:
    is_tensor = "tensor" in draft.words
    address = _map_address(draft, 0)
    draft.sources(draft.statement.operands[1:])
    draft.accesses.append(
        Access(
            effect=Effect.PREFETCH,
            space=Space.GLOBAL,
            mechanism=Mechanism.TENSOR_MAP if is_tensor else Mechanism.BULK,
            address=address,
        )
    )


def _two_spaces(draft: Draft) -> tuple[Space, Space]:
    spaces = [SPACES[w] for w in draft.words if w in SPACES]
    if len(spaces) != 2:
        raise NotUnderstood("a copy without its two state spaces")
    return spaces[0], spaces[1]


def _translate_tensor(draft: Draft) -> None:
    target_space, _ = _two_spaces(draft)
    if target_space is Space.GLOBAL:
        address, inner = _map_address(draft, 0), draft.address(draft.operand(1))
        draft.sources(draft.statement.operands[2:])
        effect = Effect.UPDATE if "reduce" in draft.words else Effect.WRITE
        draft.accesses += [
            Access(effect=Effect.READ, space=Space.SHARED, mechanism=Mechanism.BULK, address=inner),
            Access(effect=effect, space=Space.GLOBAL, mechanism=Mechanism.TENSOR_MAP, address=address),
        ]
        return
    inner, address = draft.address(draft.operand(0)), _map_address(draft, 1)
    draft.sources(draft.statement.operands[2:])
    draft.accesses += [
        Access(effect=Effect.READ, space=Space.GLOBAL, mechanism=Mechanism.TENSOR_MAP, address=address),
        Access(effect=Effect.WRITE, space=Space.SHARED, mechanism=Mechanism.BULK, address=inner),
    ]


def _translate_plain_copy(draft: Draft) -> None:
    words = draft.words
    target_space, source_space = _two_spaces(draft)
    target, source = draft.address(draft.operand(0)), draft.address(draft.operand(1))
    args = draft.sources(draft.statement.operands[2:])
    is_bulk = "bulk" in words
    mechanism = Mechanism.BULK if is_bulk else Mechanism.ASYNC_COPY
    size = args[0].value if args and isinstance(args[0], Immediate) else None
    effect = Effect.UPDATE if "reduce" in words else Effect.WRITE
    draft.accesses += [
        Access(
            effect=Effect.READ, space=source_space, mechanism=mechanism, address=source, element_bytes=size
        ),
        Access(effect=effect, space=target_space, mechanism=mechanism, address=target, element_bytes=size),
    ]


def translate_tensor_map(draft: Draft) -> None:
    """`tensormap.replace` and `tensormap.cp_fenceproxy`: writes of a descriptor."""
    words = draft.words
    form = words[1] if len(words) > 1 else ""
    operands = draft.statement.operands
    if form == "replace":
        address = draft.address(draft.operand(0))
        draft.sources(operands[1:])
        draft.accesses.append(Access(effect=Effect.WRITE, space=space_of(words), address=address))
    elif form == "cp_fenceproxy":
        target, source = draft.address(draft.operand(0)), draft.address(draft.operand(1))
        draft.sources(operands[2:])
        draft.accesses += [
            Access(effect=Effect.READ, space=Space.SHARED, address=source),
            Access(effect=Effect.WRITE, space=Space.GLOBAL, address=target),
        ]
    else:
        raise NotUnderstood("an unknown form of tensormap")


def translate_launch_control(draft: Draft) -> None:
    """`clusterlaunchcontrol`: a request that answers into shared memory, and its decoding."""
    words = draft.words
    operands = draft.statement.operands
    if "try_cancel" in words:
        address = draft.address(draft.operand(0))
        draft.sources(operands[1:])
        draft.accesses.append(Access(effect=Effect.WRITE, space=Space.SHARED, address=address))
    elif "query_cancel" in words:
        targets = draft.targets(draft.operand(0))
        args = draft.sources(operands[1:])
        for target in targets:
            draft.assign(target, Op.OPAQUE, args)
    else:
        raise NotUnderstood("an unknown form of clusterlaunchcontrol")
