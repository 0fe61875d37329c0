"""Branches and exits that hang on more than one predicate: `@P0 BRA P1, ...` is taken when both hold."""

from __future__ import annotations

from dataclasses import replace

from harness.audit.program import Instruction, Kernel, Kind
from harness.audit.sass.flat import insert_before

MARK = "both@"
"""Begins the names of registers that hold such a conjunction; the branch itself says what it is made of."""


def split_joined_guards(kernel: Kernel) -> Kernel:
    """The kernel with the conjunction of each such branch computed by an instruction in front of it."""
    before: dict[int, list[Instruction]] = {}
    changed = []
    for instruction in kernel.instructions:
        guard = instruction.predicate
        if guard is None or not guard.register.startswith(MARK):
            changed.append(instruction)
            continue
        before[instruction.index] = [
            replace(instruction, kind=Kind.PLAIN, predicate=None, targets=(), defs=(guard.register,))
        ]
        changed.append(replace(instruction, assigns=()))
    return replace(kernel, instructions=insert_before(changed, before)) if before else kernel
