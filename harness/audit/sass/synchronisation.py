"""Barriers, mbarriers, fences, and the two halves of programmatic dependent launch.

The machine forms were read off compiled probes: `griddepcontrol.wait` becomes ACQBULK and
`griddepcontrol.launch_dependents` becomes PREEXIT, on sm_90a, sm_100a and sm_103a alike.
"""

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
    Unknown,
)
from harness.audit.sass.draft import Draft, NotUnderstood
from harness.audit.sass.operands import MachineAddress, MachineRegister

FENCES = frozenset(["MEMBAR", "FENCE", "ERRBAR", "CGAERRBAR"])
_IDLE = """
NOP YIELD NANOSLEEP DEPBAR LDGDEPBAR UTMACMDFLUSH WARPGROUP WARPGROUPSET ENDCOLLECTIVE USETMAXREG
UVIRTCOUNT VIRTCOUNT WARPARRIVE ACQSHMINIT SETMAXREG USETSHMSZ PMTRIG LEPC BMOV
"""
NO_EFFECT = frozenset(_IDLE.split())
"""No register result that matters and no memory: waits on scoreboards and copy groups, hints, allocation counters."""
OPCODES = FENCES | frozenset(
    ["BAR", "UCGABAR_ARV", "UCGABAR_WAIT", "WARPSYNC", "SYNCS", "ARRIVES", "UTCBAR", "ACQBULK", "PREEXIT"]
)


def translate_synchronisation(draft: Draft) -> None:
    """Fill `draft` for an opcode of `OPCODES`."""
    root = draft.root
    if root in ("ACQBULK", "PREEXIT"):
        if draft.operands or draft.words:
            raise NotUnderstood("operands where none belong")
        draft.kind = Kind.WAIT if root == "ACQBULK" else Kind.TRIGGER
    elif root in FENCES:
        draft.kind = Kind.FENCE
    elif root == "BAR":
        _translate_barrier(draft)
    elif root.startswith("UCGABAR"):
        action = BarrierAction.ARRIVE if root == "UCGABAR_ARV" else BarrierAction.WAIT
        draft.kind = Kind.BARRIER
        draft.barrier = Barrier(scope=BarrierScope.CLUSTER, action=action)
    elif root == "WARPSYNC":
        _translate_warp_barrier(draft)
    elif root == "SYNCS":
        _translate_mbarrier(draft)
    else:
        _translate_asynchronous_arrival(draft)


def _translate_barrier(draft: Draft) -> None:
    words = draft.words
    args = [draft.value(o) for o in draft.operands if not _is_predicate(o)]
    for operand in draft.operands:
        if _is_predicate(operand):
            draft.value(operand)
    if not args or not ({"SYNC", "ARV", "RED"} & set(words)):
        raise NotUnderstood("an unknown barrier")
    draft.kind = Kind.BARRIER
    draft.barrier = Barrier(
        scope=BarrierScope.CTA,
        action=BarrierAction.ARRIVE if "ARV" in words else BarrierAction.SYNC,
        id=args[0],
        count=args[1] if len(args) > 1 else None,
    )


def _is_predicate(operand: object) -> bool:
    return isinstance(operand, MachineRegister) and operand.is_predicate


def _translate_warp_barrier(draft: Draft) -> None:
    if "COLLECTIVE" in draft.words:
        draft.value(draft.operand(0))
        return
    mask: Operand = Immediate(0xFFFFFFFF)
    if "ALL" not in draft.words:
        mask = draft.value(draft.operand(0))
    draft.kind = Kind.BARRIER
    draft.barrier = Barrier(scope=BarrierScope.WARP, action=BarrierAction.SYNC, count=mask)


def _translate_mbarrier(draft: Draft) -> None:
    words = draft.words
    place = next((p for p, o in enumerate(draft.operands) if isinstance(o, MachineAddress)), None)
    if place is None:
        raise NotUnderstood("an mbarrier operation without its address")
    address = draft.address(place)
    for operand in draft.operands[:place]:
        for name in draft.define(operand, 2 if "EXCH" in words else 1):
            draft.assign(name, Op.OPAQUE, ())
    args = [draft.value(operand) for operand in draft.operands[place + 1 :]]
    draft.kind = Kind.MBARRIER
    if words[:1] == ["EXCH"]:
        word = args[0] if args else Unknown("an encoded count")
        draft.mbarrier = Mbarrier(action=BarrierAction.INIT, address=address, count=word)
    elif words[:1] == ["PHASECHK"]:
        draft.mbarrier = Mbarrier(action=BarrierAction.TEST, address=address, parity=_parity(draft, args))
    elif words[:1] == ["CCTL"]:
        draft.mbarrier = Mbarrier(action=BarrierAction.INVALIDATE, address=address)
    elif words[:1] == ["ARRIVE"]:
        _translate_arrive(draft, words, args)
    else:
        raise NotUnderstood("an unknown operation on an mbarrier")


def _parity(draft: Draft, args: list[Operand]) -> Operand | None:
    """The phase's parity: bit 31 of the operand, where `try_wait.parity` puts it."""
    if not args or isinstance(args[0], Immediate):
        return Immediate(args[0].value >> 31 & 1) if args and isinstance(args[0], Immediate) else None
    return draft.compute(Op.SHR, (args[0], Immediate(31)))


def _translate_arrive(draft: Draft, words: list[str], args: list[Operand]) -> None:
    """`A1T0` is one arrival, `ART0` as many as the register says, `A0..` none; without a word: one and bytes."""
    address = draft.address(next(p for p, o in enumerate(draft.operands) if isinstance(o, MachineAddress)))
    form = next((word for word in words if word.startswith("A") and word not in ("ARRIVE",)), "")
    is_remote = "RED" in words
    if form.startswith("A0"):
        draft.mbarrier = Mbarrier(action=BarrierAction.EXPECT, address=address, is_remote=is_remote)
        return
    count: Operand = Immediate(1)
    if form == "ART0":
        count = args[0] if args else Unknown("a count")
    elif form not in ("", "A1T0", "A1TR"):
        raise NotUnderstood("an unknown form of arrival")
    draft.mbarrier = Mbarrier(action=BarrierAction.ARRIVE, address=address, count=count, is_remote=is_remote)


def _translate_asynchronous_arrival(draft: Draft) -> None:
    """`ARRIVES.LDGSTSBAR` (when copies are done) and `UTCBAR` (when the tensor core is done)."""
    address = draft.address(0)
    for operand in draft.operands[1:]:
        draft.value(operand)
    draft.kind = Kind.MBARRIER
    is_commit = draft.root == "UTCBAR"
    count: Operand | None = Immediate(1) if is_commit or "ARVCNT" not in draft.words else None
    draft.mbarrier = Mbarrier(
        action=BarrierAction.ARRIVE,
        address=address,
        count=count,
        is_remote="MULTICAST" in draft.words,
        is_asynchronous=True,
    )
