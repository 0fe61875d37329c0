"""Acquiring loads: a strong load whose L1 is invalidated before anything else is read.

`ld.acquire` and `atom.acquire` compile to a strong access followed by `CCTL.IVALL`, as probes show for sm_90a,
sm_100a and sm_103a; without the second instruction the access is relaxed.
"""

from __future__ import annotations

from harness.audit.program import Effect, Instruction, Kind, Order, Space

_REACH = 8
"""Instructions that a scheduler was seen to put in between, with a margin."""


def mark_acquires(instructions: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
    """The instructions, with such loads marked as acquiring."""
    leaders = {target for instruction in instructions for target in instruction.targets}
    return tuple(_mark(instructions, instruction, leaders) for instruction in instructions)


def _mark(instructions: tuple[Instruction, ...], load: Instruction, leaders: set[int]) -> Instruction:
    strong = [a for a in load.accesses if a.order is Order.RELAXED and a.effect is not Effect.WRITE]
    if not strong or strong[0].space not in (Space.GLOBAL, Space.GENERIC, Space.SHARED):
        return load
    for instruction in instructions[load.index + 1 : load.index + 1 + _REACH]:
        if instruction.index in leaders:
            return load
        if instruction.opcode == "CCTL.IVALL" and instruction.predicate in (None, load.predicate):
            accesses = tuple(a._replace(order=Order.ACQUIRE) if a in strong else a for a in load.accesses)
            return load._replace(accesses=accesses)
        if instruction.kind is not Kind.PLAIN or any(a.reads for a in instruction.accesses):
            return load
    return load
