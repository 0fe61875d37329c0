"""Asynchronous copies: `LDGSTS`, bulk copies, tensor maps."""

from __future__ import annotations

from collections.abc import Callable

from harness.audit.program import Access, Address, Effect, Kind, Mechanism, Op, Operand, Space
from harness.audit.sass.draft import Draft, NotUnderstood
from harness.audit.sass.operands import MachineAddress, MachineRegister
from harness.audit.sass.widths import access_bytes


def _brackets(draft: Draft) -> list[Address]:
    """The addresses of the instruction's brackets; a descriptor operand alone (`desc[UR4]`) is a cache policy."""
    found = []
    for operand in draft.operands:
        if isinstance(operand, MachineAddress):
            found.append(draft.sum_of(operand))
        elif "desc[" not in getattr(operand, "text", ""):
            draft.value(operand)
    return found


def translate_async_copy(draft: Draft) -> None:
    """`LDGSTS [shared], desc[..][global]`."""
    places = _brackets(draft)
    if len(places) != 2:
        raise NotUnderstood("a copy without its two addresses")
    size = access_bytes(draft.words)
    draft.accesses += [
        Access(
            effect=Effect.READ,
            space=Space.GLOBAL,
            mechanism=Mechanism.ASYNC_COPY,
            address=places[1],
            element_bytes=size,
        ),
        Access(
            effect=Effect.WRITE,
            space=Space.SHARED,
            mechanism=Mechanism.ASYNC_COPY,
            address=places[0],
            element_bytes=size,
        ),
    ]


def translate_bulk(draft: Draft) -> None:
    """`UBLKCP.S.G [target], [source], bytes` and `UBLKRED.G.S`: the suffixes name target and source."""
    places = _brackets(draft)
    spaces = [{"S": Space.SHARED, "G": Space.GLOBAL}[w] for w in draft.words if w in ("S", "G")]
    if len(places) < 2 or len(spaces) != 2:
        raise NotUnderstood("a bulk copy of an unknown form")
    effect = Effect.UPDATE if draft.root == "UBLKRED" else Effect.WRITE
    draft.accesses += [
        Access(effect=Effect.READ, space=spaces[1], mechanism=Mechanism.BULK, address=places[1]),
        Access(effect=effect, space=spaces[0], mechanism=Mechanism.BULK, address=places[0]),
    ]


def translate_bulk_prefetch(draft: Draft) -> None:
    """`UBLKPF.L2 [global], bytes` and `UTMAPF.L2.2D [coordinates], [map]`."""
    places = _brackets(draft)
    is_map = draft.root == "UTMAPF"
    if len(places) != (2 if is_map else 1):
        raise NotUnderstood("a prefetch of an unknown form")
    draft.accesses.append(
        Access(
            effect=Effect.PREFETCH,
            space=Space.GLOBAL,
            mechanism=Mechanism.TENSOR_MAP if is_map else Mechanism.BULK,
            address=places[-1],
        )
    )


def translate_tensor_map(draft: Draft) -> None:
    """`UTMALDG.2D [shared and coordinates], [map]`, `UTMASTG`, `UTMAREDG`."""
    places = _brackets(draft)
    if len(places) != 2:
        raise NotUnderstood("a tensor copy without its two addresses")
    inner, outer = places
    effects = {
        "UTMALDG": (Effect.READ, Effect.WRITE),
        "UTMASTG": (Effect.WRITE, Effect.READ),
        "UTMAREDG": (Effect.UPDATE, Effect.READ),
    }[draft.root]
    tensor = Access(effect=effects[0], space=Space.GLOBAL, mechanism=Mechanism.TENSOR_MAP, address=outer)
    tile = Access(effect=effects[1], space=Space.SHARED, mechanism=Mechanism.BULK, address=inner)
    draft.accesses += [tensor, tile] if draft.root == "UTMALDG" else [tile, tensor]


def translate_map_control(draft: Draft) -> None:
    """`UTMACCTL.PF` prefetches a tensor map; `.IV` is the fence before one that was written is used."""
    places = _brackets(draft)
    if "PF" in draft.words and len(places) == 1:
        draft.accesses.append(
            Access(effect=Effect.PREFETCH, space=Space.GENERIC, address=places[0], cache="tensormap")
        )
    elif "IV" in draft.words or "IVALL" in draft.words:
        draft.kind = Kind.FENCE
    else:
        raise NotUnderstood("an unknown control of a tensor map")


def translate_shared_fill(draft: Draft) -> None:
    """`UMEMSETS` and `UGETNEXTWORKID` write shared memory."""
    places = _brackets(draft)
    if not places:
        raise NotUnderstood("no shared memory operand")
    draft.accesses.append(
        Access(effect=Effect.WRITE, space=Space.SHARED, mechanism=Mechanism.BULK, address=places[0])
    )


def translate_tensor_allocation(draft: Draft) -> None:
    """`UTCATOMSWS`: the allocator of tensor memory; its results are masks and a flag."""
    for operand in draft.operands[:1]:
        for name in draft.define(operand):
            draft.assign(name, Op.OPAQUE, ())
    if "FIND_AND_SET" in draft.words:
        for name in draft.define(draft.operand(1)):
            draft.assign(name, Op.OPAQUE, ())
    for operand in draft.operands[1:]:
        draft.value(operand)


def translate_texture(draft: Draft) -> None:
    """Textures and surfaces: what they reach is behind a handle, not an address."""
    is_load = draft.root not in ("SUST", "SURED", "SUATOM")
    if is_load:
        results = [o for o in draft.operands[:2] if isinstance(o, MachineRegister) and not o.is_predicate]
        for result in results:
            for name in draft.define(result, 2 if result.name else 1):
                draft.assign(name, Op.OPAQUE, ())
    handle: tuple[Operand, ...] = ()
    for operand in draft.operands[1:]:
        value = draft.value(operand)
        if isinstance(operand, MachineRegister) and operand.file == "UR":
            handle = (value,)
    surface = draft.root.startswith("SU")
    effect = {"SUST": Effect.WRITE, "SURED": Effect.UPDATE, "SUATOM": Effect.UPDATE}.get(
        draft.root, Effect.READ
    )
    draft.accesses.append(
        Access(
            effect=effect,
            space=Space.GLOBAL,
            mechanism=Mechanism.SURFACE if surface else Mechanism.TEXTURE,
            address=Address(terms=handle),
        )
    )


TRANSLATORS: dict[str, Callable[[Draft], None]] = {
    "LDGSTS": translate_async_copy,
    **dict.fromkeys(("UBLKCP", "UBLKRED"), translate_bulk),
    **dict.fromkeys(("UBLKPF", "UTMAPF"), translate_bulk_prefetch),
    **dict.fromkeys(("UTMALDG", "UTMASTG", "UTMAREDG"), translate_tensor_map),
    "UTMACCTL": translate_map_control,
    **dict.fromkeys(("UMEMSETS", "UGETNEXTWORKID"), translate_shared_fill),
    **dict.fromkeys(("TEX", "TLD", "TLD4", "TXD", "SULD", "SUST", "SURED", "SUATOM"), translate_texture),
    "UTCATOMSWS": translate_tensor_allocation,
}
