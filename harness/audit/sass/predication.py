"""Values made and used under one guard: machine code predicates short stretches instead of branching around them.

`@!P3 LEA R20, ...` followed by `@!P3 LDG R4, [R20.64]` reads at what the LEA made, never at what R20 held before;
seen one by one, the second would take either. Within a straight stretch in which neither the guard nor the
register changes, the use gets a register of its own, made by a copy of the first instruction without its guard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.audit.program import (
    Access,
    Address,
    Instruction,
    Kind,
    Op,
    Operand,
    Predicate,
    Register,
)
from harness.audit.sass.flat import Added

_ENDS = (Kind.BRANCH, Kind.OPAQUE_BRANCH, Kind.EXIT, Kind.TRAP, Kind.CALL, Kind.OPAQUE)


@dataclass(frozen=True, slots=True)
class _Guarded:
    guard: Predicate
    name: str


def split_guarded_values(instructions: Sequence[Instruction]) -> tuple[Sequence[Instruction], Added]:
    """The instructions with such uses on registers of their own, and the copies that go in front of some."""
    leaders = {t for i in instructions for t in i.targets}
    held: dict[str, _Guarded] = {}
    copies: dict[str, Instruction] = {}
    wanted: set[str] = set()
    changed: list[tuple[Instruction, Instruction]] = []
    for instruction in instructions:
        if instruction.index in leaders:
            held.clear()
        renamed = _rename(instruction, held, wanted)
        changed.append((instruction, renamed))
        _forget(held, instruction)
        if renamed.predicate is not None and renamed.kind is Kind.PLAIN:
            _hold(held, copies, renamed, renamed.predicate)
        if instruction.kind in _ENDS:
            held.clear()
    if not wanted:
        return instructions, {}
    before: dict[int, list[Instruction]] = {}
    made = _closed(copies, wanted)
    for name in sorted(made, key=lambda n: copies[n].index):
        before.setdefault(copies[name].index, []).append(copies[name])
    chosen = [new if new is old or _added(old, new) <= made else old for old, new in changed]
    return chosen, before


def _added(old: Instruction, renamed: Instruction) -> set[str]:
    """Registers of copies that a renamed instruction uses."""
    return set(renamed.uses) - set(old.uses)


def _rename(instruction: Instruction, held: dict[str, _Guarded], wanted: set[str]) -> Instruction:
    guard = instruction.predicate
    if guard is None or not any(r in held and held[r].guard == guard for r in instruction.uses):
        return instruction
    used: set[str] = set()

    def rename(operand: Operand) -> Operand:
        if isinstance(operand, Register) and operand.name in held and held[operand.name].guard == guard:
            used.add(held[operand.name].name)
            return Register(held[operand.name].name)
        return operand

    assigns = tuple(a._replace(args=tuple(map(rename, a.args))) for a in instruction.assigns)
    accesses = tuple(_renamed_access(access, rename) for access in instruction.accesses)
    if not used:
        return instruction
    if instruction.accesses:
        wanted |= used
    uses = (*instruction.uses, *sorted(used))
    return instruction._replace(assigns=assigns, accesses=accesses, uses=uses)


def _renamed_access(access: Access, rename: Callable[[Operand], Operand]) -> Access:
    address = Address(terms=tuple(map(rename, access.address.terms)), offset=access.address.offset)
    registers = access.registers if access.reads else tuple(map(rename, access.registers))
    return access._replace(address=address, registers=registers)


def _forget(held: dict[str, _Guarded], instruction: Instruction) -> None:
    for name in instruction.defs:
        held.pop(name, None)
        for other in [r for r, value in held.items() if value.guard.register == name]:
            del held[other]


def _hold(
    held: dict[str, _Guarded], copies: dict[str, Instruction], instruction: Instruction, guard: Predicate
) -> None:
    if guard.register in instruction.defs or instruction.accesses:
        return
    temporaries = tuple(a for a in instruction.assigns if a.target.startswith("~"))
    for assign in instruction.assigns:
        if assign.target not in instruction.defs or assign.op is Op.LOAD:
            continue
        name = f"{assign.target}@{instruction.index}"
        copies[name] = instruction._replace(
            predicate=None,
            defs=(name,),
            assigns=(*temporaries, assign._replace(target=name)),
        )
        held[assign.target] = _Guarded(guard, name)


def _closed(copies: dict[str, Instruction], wanted: set[str]) -> set[str]:
    """`wanted` and every copy that a wanted copy uses."""
    found: set[str] = set()
    stack = list(wanted)
    while stack:
        name = stack.pop()
        if name not in found:
            found.add(name)
            args = (arg for assign in copies[name].assigns for arg in assign.args)
            stack += [a.name for a in args if isinstance(a, Register) and a.name in copies]
    return found
