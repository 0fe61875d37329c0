"""Branches and exits that hang on more than one predicate: `@P0 BRA P1, ...` is taken when both hold."""

from __future__ import annotations

from collections.abc import Sequence

from harness.audit.program import Instruction, Kind
from harness.audit.sass.flat import Added

MARK = "both@"
"""Begins the names of registers that hold such a conjunction; the branch itself says what it is made of."""


def split_joined_guards(instructions: Sequence[Instruction]) -> tuple[list[Instruction], Added]:
    """The instructions, and for each such branch one that computes the conjunction, to go in front of it."""
    before: dict[int, list[Instruction]] = {}
    changed = []
    for instruction in instructions:
        guard = instruction.predicate
        if guard is None or not guard.register.startswith(MARK):
            changed.append(instruction)
            continue
        before[instruction.index] = [
            instruction._replace(kind=Kind.PLAIN, predicate=None, targets=(), defs=(guard.register,))
        ]
        changed.append(instruction._replace(assigns=()))
    return changed, before
