"""Loops that wait for a word in shared memory: hand-written flags, which may pass one thread's wait on to another."""

from __future__ import annotations

from harness.audit.cfg import Loop
from harness.audit.model import Model
from harness.audit.program import Instruction, Kind, Space


def flag_exits(model: Model) -> dict[tuple[int, int], Instruction]:
    """Edges, as blocks, that leave such a loop when the word has come, with the branch.

    The loop does nothing else: it reads shared memory, and neither writes nor touches other memory.
    """
    found: dict[tuple[int, int], Instruction] = {}
    for loop in model.graph.loops:
        reads = _reads(model, loop)
        if not reads:
            continue
        for index in sorted(loop.blocks):
            block = model.graph.blocks[index]
            last = model.kernel.instructions[block.end - 1]
            if last.kind is not Kind.BRANCH or last.predicate is None:
                continue
            loads = model.slices.of(model.values.use(last.index, last.predicate.register)).loads
            if any(place in reads for place, _ in loads):
                found |= {(index, e.target): last for e in block.edges if e.target not in loop.blocks}
    return found


def _reads(model: Model, loop: Loop) -> set[int]:
    """Reads of shared memory in a loop that only reads it; empty for any other loop."""
    found: set[int] = set()
    for index in loop.blocks:
        block = model.graph.blocks[index]
        for instruction in model.kernel.instructions[block.start : block.end]:
            if instruction.mbarrier is not None or instruction.barrier is not None:
                return set()
            if any(a.writes or a.space is not Space.SHARED for a in instruction.accesses):
                return set()
            found |= {instruction.index} if instruction.accesses else set()
    return found
