"""Putting instructions into a kernel's flat list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.audit.program import Instruction

Added = Mapping[int, Sequence[Instruction]]
"""Instructions to go in front of others, by the index of those."""


def insert_before(instructions: Sequence[Instruction], added: Added) -> tuple[Instruction, ...]:
    """The list with `added[i]` in front of instruction `i`, renumbered; a branch to `i` runs what stands in front."""
    places: dict[int, int] = {}
    flat: list[Instruction] = []
    for instruction in instructions:
        places[instruction.index] = len(flat)
        flat += [*added.get(instruction.index, ()), instruction]
    places[len(instructions)] = len(flat)
    return tuple(_placed(instruction, index, places) for index, instruction in enumerate(flat))


def _placed(instruction: Instruction, index: int, places: Mapping[int, int]) -> Instruction:
    """The instruction itself where its place has not changed: copies are what this costs."""
    targets = tuple(places[t] for t in instruction.targets) if instruction.targets else ()
    if (instruction.index, instruction.targets) == (index, targets):
        return instruction
    return instruction._replace(index=index, targets=targets)
