"""Mailbox reads and the loops that spin on them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from harness.audit.cfg import Loop
from harness.audit.model import Model, Touch, is_prefetch
from harness.audit.program import Instruction, Kind, Op, Operand
from harness.audit.roles import Assignment, Role
from harness.audit.slices import Slice, slice_of
from harness.audit.values import Origin

_STEPS = (Op.ADD, Op.SUB)


@dataclass(frozen=True, slots=True)
class LoopExit:
    """An instruction that can leave a loop, with all that its condition depends on."""

    instruction: Instruction
    slice: Slice


@dataclass(frozen=True, slots=True)
class Spin:
    """A loop that goes round until a mailbox has what it waits for."""

    loop: Loop
    exits: tuple[LoopExit, ...]
    ready: tuple[LoopExit, ...]
    """Exits whose condition depends on the mailbox."""
    polls: tuple[Touch, ...]
    """Reads that a ready exit depends on, those before the loop included."""


class Mailboxes:
    """Answers for one kernel."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.reads = tuple(t for t in model.reads if t.touches(Role.MAILBOX) and not is_prefetch(t))
        self.writes = tuple(t for t in model.writes if t.touches(Role.MAILBOX))

    @cached_property
    def spins(self) -> tuple[Spin, ...]:
        """All spins, one for each loop."""
        model = self._model
        found: list[Spin] = []
        taken: set[int] = set()
        for loop in sorted(model.graph.loops, key=lambda one: len(one.blocks)):
            inside = [t for t in self.reads if model.graph.block_of[t.instruction.index] in loop.blocks]
            if not inside or all(t.instruction.index in taken for t in inside):
                continue
            exits = self.exits_of(loop)
            indices = {t.instruction.index for t in inside}
            ready = tuple(e for e in exits if any(place in indices for place, _ in e.slice.loads))
            if not ready:
                continue
            places = {place for e in ready for place, _ in e.slice.loads}
            polls = tuple(t for t in self.reads if t.instruction.index in places)
            taken |= {t.instruction.index for t in polls}
            found.append(Spin(loop, exits, ready, polls))
        return tuple(found)

    @cached_property
    def untested(self) -> tuple[Touch, ...]:
        """Mailbox reads whose value no loop waits for."""
        polled = {t.instruction.index for s in self.spins for t in s.polls}
        return tuple(t for t in self.reads if t.instruction.index not in polled)

    def exits_of(self, loop: Loop) -> tuple[LoopExit, ...]:
        """Instructions that can leave the loop under a condition."""
        model = self._model
        found = []
        for index in sorted(loop.blocks):
            block = model.graph.blocks[index]
            last = model.kernel.instructions[block.end - 1]
            leaves = any(e.target not in loop.blocks for e in block.edges)
            ends = last.kind in (Kind.EXIT, Kind.TRAP)
            if last.predicate is None or not (leaves or ends):
                continue
            value = model.values.use(last.index, last.predicate.register)
            found.append(LoopExit(last, slice_of(model.values, value)))
        return tuple(found)

    def is_bounded(self, spin: Spin) -> bool:
        """Whether some exit counts rounds or looks at a clock."""
        return any(e.slice.reads_clock or self._counts(e, spin.loop) for e in spin.exits)

    def _counts(self, leaving: LoopExit, loop: Loop) -> bool:
        values = self._model.values
        for phi in leaving.slice.phis:
            node = values.node(phi)
            if node.place not in loop.blocks:
                continue
            for part in node.parts:
                if self._steps_from(part, phi):
                    return True
        return False

    def _steps_from(self, value: int, phi: int) -> bool:
        """Whether `value` is the phi plus or minus something, over moves and merges."""
        values = self._model.values
        seen: set[int] = set()
        stack = [(values.find(value), False)]
        while stack:
            at, stepped = stack.pop()
            if at == phi:
                if stepped:
                    return True
                continue
            if at in seen:
                continue
            seen.add(at)
            node = values.node(at)
            if node.origin in (Origin.PHI, Origin.MERGE):
                stack += [(values.find(p), stepped) for p in node.parts]
            elif node.assign is not None and node.assign.op in (*_STEPS, Op.MOVE, Op.WIDEN, Op.MAD):
                is_step = node.assign.op in (*_STEPS, Op.MAD)
                stack += [(a, stepped or is_step) for a in values.args(at) if isinstance(a, int)]
        return False

    def sentinels(self, spin: Spin) -> tuple[set[int], bool]:
        """Constants that the polled words are compared with, and whether some are compared with a moving value."""
        values, expressions = self._model.values, self._model.expressions
        places = {t.instruction.index for t in spin.polls}
        constants: set[int] = set()
        is_tagged = False
        for leaving in spin.ready:
            for comparison in leaving.slice.comparisons:
                sides = values.args(comparison)
                depends = [self._depends(side, places) for side in sides]
                if len(sides) != 2 or depends[0] == depends[1]:
                    continue
                other = sides[1] if depends[0] else sides[0]
                if isinstance(other, int):
                    constant = expressions[expressions.of_value(other)].constant
                else:
                    constant = getattr(other, "value", None)
                if constant is None:
                    is_tagged = True
                else:
                    constants.add(constant)
        return constants, is_tagged

    def _depends(self, side: int | Operand, places: set[int]) -> bool:
        return isinstance(side, int) and any(p in places for p, _ in slice_of(self._model.values, side).loads)

    def assignment(self, touch: Touch) -> Assignment:
        """What the user said of the mailbox."""
        return next(a for _, a in touch.assignments if a.role is Role.MAILBOX)

    def rearms(self, spin: Spin) -> list[tuple[Touch, list[int | None]]]:
        """Writes of the same mailbox that can come after the spin began, with their constants where known."""
        model = self._model
        boxes = {s for t in spin.polls for s, a in t.assignments if a.role is Role.MAILBOX}
        after = model.graph.reachable_from(spin.loop.header)
        found = []
        for touch in self.writes:
            if model.graph.block_of[touch.instruction.index] not in after:
                continue
            if not boxes & {s for s, _ in touch.assignments}:
                continue
            index = touch.instruction.index
            numbers = [model.expressions.of_operand(index, r) for r in touch.access.registers]
            found.append((touch, [model.expressions[n].constant for n in numbers]))
        return found
