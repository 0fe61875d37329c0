"""SASS text → kernels in the common form."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.audit.program import (
    Instruction,
    Kernel,
    Kind,
    Level,
    Param,
    Predicate,
    Problem,
)
from harness.audit.sass import arithmetic, control, copies, memory, predicates, synchronisation, tensor
from harness.audit.sass.acquires import mark_acquires
from harness.audit.sass.attributes import KernelInfo, parse_attributes
from harness.audit.sass.draft import Bank, Draft, NotUnderstood
from harness.audit.sass.expansion import Expansion, Item, expand
from harness.audit.sass.flat import insert_before
from harness.audit.sass.idioms import resolve_idioms
from harness.audit.sass.joined import split_joined_guards
from harness.audit.sass.listing import Listing, parse_listing
from harness.audit.sass.machine import machine_of
from harness.audit.sass.operands import MachineRegister, parse_operand
from harness.audit.sass.predication import split_guarded_values
from harness.audit.sass.tables import split_tables


@dataclass(frozen=True, slots=True, kw_only=True)
class SassFile:
    """What one SASS text holds."""

    kernels: tuple[Kernel, ...]
    infos: tuple[KernelInfo, ...]
    """Attributes of each kernel, in the same order."""
    problems: tuple[Problem, ...]
    """Problems of the file; each kernel carries them too."""


def read_sass(
    text: str, source_file: str = "", *, parameter_names: Mapping[str, Sequence[str]] | None = None
) -> SassFile:
    """Every kernel of the text, and what could not be read. Never raises, whatever the text.

    `parameter_names` has the names of each kernel's parameters in order, as its PTX has them; machine code has
    none, and `kernel_param_0` stands in for them.
    """
    listing = parse_listing(text)
    problems = list(listing.problems)
    if not listing.entries:
        problems.append(Problem(1, text[:80].split("\n", 1)[0], "the text holds no kernel", True))
    if listing.arch and machine_of(listing.arch) is None:
        problems.append(Problem(1, listing.arch, "an architecture that the audit does not know", True))
    kernels, infos = [], []
    for name in dict.fromkeys(listing.entries):
        info = parse_attributes(listing, name)
        names = tuple((parameter_names or {}).get(name, ()))
        kernels.append(_read_kernel(listing, name, info, names, problems, source_file))
        infos.append(info)
    return SassFile(kernels=tuple(kernels), infos=tuple(infos), problems=tuple(problems))


def _read_kernel(
    listing: Listing,
    name: str,
    info: KernelInfo,
    names: tuple[str, ...],
    problems: Sequence[Problem],
    source_file: str,
) -> Kernel:
    found = list(problems)
    extent = listing.extent(name)
    machine = machine_of(listing.arch)
    params = _params_of(name, info, names)
    offsets = tuple(place.offset for place in info.parameters)
    instructions: tuple[Instruction, ...] = ()
    places: dict[int, int] = {}
    if not info.is_present:
        reason = "no attributes of the kernel: nvdisasm prints them without --print-code"
        found.append(Problem(1, name[:160], reason, True))
    if extent is None:
        found.append(Problem(1, name[:160], "the text does not hold the whole kernel", True))
    elif machine is not None:
        base = info.parameter_base if info.parameter_base is not None else machine.parameter_base
        bank = Bank(machine=machine, base=base, params=params, offsets=offsets)
        expansion = expand(listing, *extent)
        found += expansion.problems
        places = {
            item.line.address: index for index, item in enumerate(expansion.items) if item.frame.number == 0
        }
        instructions = mark_acquires(_translate(listing, expansion, bank, found))
    most = info.max_threads
    kernel = Kernel(
        name=name,
        arch=listing.arch,
        level=Level.SASS,
        instructions=instructions,
        params=params,
        block_size=info.required_threads,
        max_threads=most[0] * most[1] * most[2] if most else None,
        problems=tuple(found),
        source_file=source_file,
    )
    table = listing.tables.get(name, b"")
    named = split_tables(resolve_idioms(kernel, params, offsets, machine), table, places)
    split, joined = split_joined_guards(named.instructions)
    renamed, copies = split_guarded_values(split)
    return replace(named, instructions=insert_before(renamed, {**copies, **joined}))


def _params_of(name: str, info: KernelInfo, names: tuple[str, ...]) -> tuple[Param, ...]:
    """The parameters; names are used when there are as many of them as of parameters."""
    shown = names if len(names) == len(info.parameters) else ()
    return tuple(
        Param(
            index=index,
            name=shown[index] if shown else f"{name}_param_{place.ordinal}",
            num_bytes=place.num_bytes,
            is_pointer=False if place.num_bytes < 8 else None,
            is_grid_constant_struct=place.num_bytes > 8,
        )
        for index, place in enumerate(info.parameters)
    )


def _translate(
    listing: Listing, expansion: Expansion, bank: Bank, problems: list[Problem]
) -> tuple[Instruction, ...]:
    instructions = []
    for index, item in enumerate(expansion.items):
        after = item.position + 1
        precedes_nop = after < len(listing.lines) and listing.lines[after].opcode == "NOP"
        draft = Draft(line=item.line, bank=bank, precedes_nop=precedes_nop)
        try:
            predicate = _dispatch(draft, item)
            targets = _targets(listing, expansion, draft, item, index)
        except (NotUnderstood, IndexError) as error:
            reason = (
                str(error) if isinstance(error, NotUnderstood) else "fewer operands than the opcode takes"
            )
            problems.append(Problem(item.line.number, item.line.text[:160], reason))
            draft = Draft(line=item.line, bank=bank, kind=Kind.OPAQUE)
            predicate, targets = None, ()
        instructions.append(_freeze(draft, item, predicate, targets, index))
    return tuple(instructions)


def _dispatch(draft: Draft, item: Item) -> Predicate | None:
    guard = parse_operand(item.line.guard) if item.line.guard else None
    if isinstance(guard, MachineRegister) and not guard.name:
        if guard.is_negated:
            return None
        guard = None
    root = draft.root
    if item.callee is None and root == "RET" and item.frame.returns_to is not None:
        draft.kind = Kind.BRANCH
    elif item.callee is None:
        _translate_opcode(draft, root)
    decides = draft.replaces_guard or (guard if isinstance(guard, MachineRegister) else None)
    first = draft.operands[0] if draft.operands else None
    if root == "R2UR" and isinstance(first, MachineRegister) and first.is_predicate:
        decides = None  # one of a warp's values after the other: some lane's is always there
    if draft.falls_through or decides is None:
        return None
    draft.uses.append(decides.name)
    return Predicate(decides.name, decides.is_negated)


def _translate_opcode(draft: Draft, root: str) -> None:
    if root in predicates.TRANSLATORS:
        predicates.TRANSLATORS[root](draft)
    elif root in arithmetic.OPCODES:
        arithmetic.translate_arithmetic(draft)
    elif root in memory.TRANSLATORS:
        memory.TRANSLATORS[root](draft)
    elif root in copies.TRANSLATORS:
        copies.TRANSLATORS[root](draft)
    elif root in tensor.TRANSLATORS:
        tensor.TRANSLATORS[root](draft)
    elif root in synchronisation.OPCODES:
        synchronisation.translate_synchronisation(draft)
    elif root in control.OPCODES:
        control.translate_control(draft)
    elif root not in synchronisation.NO_EFFECT:
        raise NotUnderstood(f"an unknown opcode {draft.line.opcode}")


def _targets(listing: Listing, expansion: Expansion, draft: Draft, item: Item, index: int) -> tuple[int, ...]:
    if draft.kind is not Kind.BRANCH:
        return ()
    if draft.root == "RET" and item.frame.returns_to is not None:
        return (_place(expansion, item.frame.returns_to),)
    found = []
    for label in draft.labels:
        position = listing.labels.get(label)
        if position is None and re.fullmatch(r"0x[0-9a-f]+", label):
            position = _at_address(listing, item, int(label, 16))
        if position is None or not item.frame.start <= position < item.frame.end:
            raise NotUnderstood("a branch out of its function")
        found.append(_place(expansion, (item.frame.number, position)))
    if draft.falls_through:
        found.append(index + 1)
    return tuple(dict.fromkeys(found))


def _place(expansion: Expansion, key: tuple[int, int]) -> int:
    place = expansion.places.get(key)
    if place is None:
        raise NotUnderstood("a branch out of its function")
    return place


def _at_address(listing: Listing, item: Item, address: int) -> int | None:
    for position in range(item.frame.start, item.frame.end):
        if listing.lines[position].address == address:
            return position
    return None


def _freeze(
    draft: Draft, item: Item, predicate: Predicate | None, targets: tuple[int, ...], index: int
) -> Instruction:
    return Instruction(
        index=index,
        line=item.line.number,
        text=item.line.text,
        opcode=item.line.opcode,
        kind=draft.kind,
        predicate=predicate,
        targets=targets,
        defs=tuple(dict.fromkeys(draft.defs)),
        uses=tuple(dict.fromkeys(draft.uses)),
        assigns=tuple(draft.assigns),
        accesses=tuple(draft.accesses),
        barrier=draft.barrier,
        mbarrier=draft.mbarrier,
        source=item.line.source,
        call_lines=item.frame.call_lines,
    )
