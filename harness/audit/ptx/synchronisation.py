"""Barriers, mbarriers, fences, and the two halves of programmatic dependent launch."""

from __future__ import annotations

from harness.audit.program import (
    Barrier,
    BarrierAction,
    BarrierScope,
    Immediate,
    Kind,
    Mbarrier,
    Op,
    Operand,
)
from harness.audit.ptx.arithmetic import together
from harness.audit.ptx.draft import Draft, NotUnderstood
from harness.audit.ptx.syntax import Memory, Name

_MBARRIER_WORDS = frozenset(
    [
        "mbarrier",
        "init",
        "inval",
        "expect_tx",
        "complete_tx",
        "arrive",
        "arrive_drop",
        "noComplete",
        "test_wait",
        "try_wait",
        "parity",
        "pending_count",
        "shared",
        "shared::cta",
        "shared::cluster",
        "b64",
        "cta",
        "cluster",
        "gpu",
        "sys",
        "acquire",
        "release",
        "relaxed",
        "phase_type",
        "primary",
        "conditional",
        "suspend",
    ]
)


def translate_synchronisation(draft: Draft) -> None:
    """Fill `draft` for an opcode of `words.SYNCHRONISATION`."""
    root = draft.words[0]
    if root == "griddepcontrol":
        _translate_grid(draft)
    elif root in ("membar", "fence"):
        draft.kind = Kind.FENCE
        draft.sources(draft.statement.operands)
    elif root == "mbarrier":
        _translate_mbarrier(draft)
    else:
        _translate_barrier(draft)


def _translate_grid(draft: Draft) -> None:
    form = draft.words[1:]
    if draft.statement.operands:
        raise NotUnderstood("operands where none belong")
    if form == ["wait"]:
        draft.kind = Kind.WAIT
    elif form == ["launch_dependents"]:
        draft.kind = Kind.TRIGGER
    else:
        raise NotUnderstood("an unknown form of griddepcontrol")


def _translate_barrier(draft: Draft) -> None:
    words = draft.words
    draft.kind = Kind.BARRIER
    operands = draft.statement.operands
    if "cluster" in words:
        action = {"arrive": BarrierAction.ARRIVE, "wait": BarrierAction.WAIT}.get(
            words[2] if len(words) > 2 else ""
        )
        if action is None:
            raise NotUnderstood("an unknown cluster barrier")
        draft.barrier = Barrier(scope=BarrierScope.CLUSTER, action=action, is_relaxed="relaxed" in words)
    elif "warp" in words:
        draft.barrier = Barrier(
            scope=BarrierScope.WARP, action=BarrierAction.SYNC, count=draft.source(draft.operand(0))
        )
    elif "sync" in words or "arrive" in words:
        args = draft.sources(operands)
        if not args:
            raise NotUnderstood("a barrier without its number")
        draft.barrier = _cta_barrier("sync" in words, args)
    elif "red" in words:
        targets = draft.targets(draft.operand(0))
        args = draft.sources(operands[1:])
        for target in targets:
            draft.assign(target, *together(draft, words, args[-1:]), bits=1)
        draft.barrier = _cta_barrier(True, args[:-1])
    else:
        raise NotUnderstood("an unknown barrier")


def _cta_barrier(waits: bool, args: tuple[Operand, ...]) -> Barrier:
    if not args:
        raise NotUnderstood("a barrier without its number")
    return Barrier(
        scope=BarrierScope.CTA,
        action=BarrierAction.SYNC if waits else BarrierAction.ARRIVE,
        id=args[0],
        count=args[1] if len(args) > 1 else None,
    )


def _translate_mbarrier(draft: Draft) -> None:
    words = draft.words
    unknown = [w for w in words if w not in _MBARRIER_WORDS]
    if unknown:
        raise NotUnderstood(f"an unknown modifier .{unknown[0]}")
    form = words[1] if len(words) > 1 else ""
    if form == "pending_count":
        targets = draft.targets(draft.operand(0))
        draft.assign(targets[0], Op.OPAQUE, draft.sources(draft.statement.operands[1:]))
        return
    draft.kind = Kind.MBARRIER
    if form in ("test_wait", "try_wait"):
        _translate_test(draft, "parity" in words)
    elif form in ("arrive", "arrive_drop"):
        _translate_arrive(draft, "expect_tx" in words)
    elif form in ("init", "inval", "expect_tx", "complete_tx"):
        action = {"init": BarrierAction.INIT, "inval": BarrierAction.INVALIDATE}.get(
            form, BarrierAction.EXPECT
        )
        address = draft.address(draft.operand(0))
        args = draft.sources(draft.statement.operands[1:])
        draft.mbarrier = Mbarrier(
            action=action, address=address, count=args[0] if args and form == "init" else None
        )
    else:
        raise NotUnderstood("an unknown form of mbarrier")


def _translate_test(draft: Draft, has_parity: bool) -> None:
    targets = draft.targets(draft.operand(0))
    address = draft.address(draft.operand(1))
    args = draft.sources(draft.statement.operands[2:])
    if not args:
        raise NotUnderstood("an mbarrier test without its phase")
    draft.mbarrier = Mbarrier(
        action=BarrierAction.TEST,
        address=address,
        parity=args[0] if has_parity else None,
        is_relaxed="relaxed" in draft.words,
    )
    for target in targets:
        draft.assign(target, Op.OPAQUE, ())


def _translate_arrive(draft: Draft, expects_bytes: bool) -> None:
    operands = draft.statement.operands
    has_state = bool(operands) and not isinstance(operands[0], Memory)
    if has_state and isinstance(operands[0], Name):
        for target in draft.targets(operands[0]):
            draft.assign(target, Op.OPAQUE, ())
    position = 1 if has_state else 0
    address = draft.address(draft.operand(position))
    args = draft.sources(operands[position + 1 :])
    count: Operand | None = Immediate(1)
    if args and not expects_bytes:
        count = args[0]
    draft.mbarrier = Mbarrier(
        action=BarrierAction.ARRIVE,
        address=address,
        count=count,
        is_remote="shared::cluster" in draft.words,
        is_relaxed="relaxed" in draft.words,
    )


def translate_commit(draft: Draft) -> None:
    """`tcgen05.commit`: an arrival when the tensor core is done."""
    address = draft.address(draft.operand(0))
    draft.sources(draft.statement.operands[1:])
    draft.kind = Kind.MBARRIER
    draft.mbarrier = Mbarrier(
        action=BarrierAction.ARRIVE,
        address=address,
        count=Immediate(1),
        is_remote="shared::cluster" in draft.words,
        is_asynchronous=True,
    )
