"""Putting instructions into a kernel's flat list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.audit.program import Instruction


def insert_before(
    instructions: Sequence[Instruction], added: Mapping[int, Sequence[Instruction]]
) -> tuple[Instruction, ...]:
    """The list with `added[i]` in front of instruction `i`, renumbered; a branch to `i` runs what stands in front."""
    places: dict[int, int] = {}
    flat: list[Instruction] = []
    for instruction in instructions:
        places[instruction.index] = len(flat)
        flat += [*added.get(instruction.index, ()), instruction]
    places[len(instructions)] = len(flat)
    return tuple(_placed(i, index, tuple(places[t] for t in i.targets)) for index, i in enumerate(flat))


def _placed(instruction: Instruction, index: int, targets: tuple[int, ...]) -> Instruction:
    """The instruction itself where its place has not changed: copies are what this costs."""
    if (instruction.index, instruction.targets) == (index, targets):
        return instruction
    return replace(instruction, index=index, targets=targets)
