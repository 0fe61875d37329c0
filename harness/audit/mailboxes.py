"""Mailbox reads and the loops that spin on them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from harness.audit.cfg import Loop
from harness.audit.model import Model, Touch, is_prefetch
from harness.audit.program import Instruction, Kind, Op, Operand, Order
from harness.audit.readiness import Readiness
from harness.audit.roles import Assignment
from harness.audit.slices import Slice
from harness.audit.values import Origin
from harness.model.kernels import Role

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
        self._tests: dict[int, dict[int, tuple[Order, ...]]] = {}
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
    def readiness(self) -> Readiness:
        """How what was read reaches its uses."""
        reads = tuple(t for t in self.reads if t.access.registers)
        return Readiness(self._model, reads, self._repeats())

    def _repeats(self) -> frozenset[tuple[int, int]]:
        """Edges of tests along which a poll is made again."""
        graph = self._model.graph
        found = set()
        for spin in self.spins:
            for branch in self._tests_of(spin):
                block = graph.block_of[branch]
                targets = {e.target for e in graph.blocks[block].edges}
                again = {t for t in targets if self._leads_into(spin, t)}
                found |= {(block, t) for t in again if again != targets}
        return frozenset(found)

    def _leads_into(self, spin: Spin, target: int) -> bool:
        """Whether a block is in the spin's loop, or can only go there."""
        graph = self._model.graph
        seen: set[int] = set()
        while target not in spin.loop.blocks and target not in seen and len(graph.blocks[target].edges) == 1:
            seen.add(target)
            target = graph.blocks[target].edges[0].target
        return target in spin.loop.blocks

    def spins_before(self, touch: Touch) -> list[Spin]:
        """Spins that were over when a read outside of them is made."""
        graph = self._model.graph
        block = graph.block_of[touch.instruction.index]
        return [s for s in self.spins if block not in s.loop.blocks and graph.dominates(s.loop.header, block)]

    def is_behind_acquire(self, touch: Touch) -> bool:
        """Whether every way to a read comes from a poll that acquires, or that a fence follows."""
        graph = self._model.graph
        place, where = touch.instruction.index, graph.block_of[touch.instruction.index]
        seen: set[tuple[int, bool]] = set()
        stack = [(0, False)]
        while stack:
            block, is_ready = stack.pop()
            if (block, is_ready) in seen:
                continue
            seen.add((block, is_ready))
            bounds = graph.blocks[block]
            end = place if block == where else bounds.end
            if is_ready and self._fences.get(block, end) < end:
                continue
            if block == where:
                return False
            for edge in bounds.edges:
                orders = self._seen_on.get((block, edge.target), [])
                if not orders or not all(o in (Order.ACQUIRE, Order.ACQ_REL) for o in orders):
                    stack.append((edge.target, is_ready or bool(orders)))
        return bool(self.spins)

    @cached_property
    def _fences(self) -> dict[int, int]:
        """The first fence of each block that has one."""
        instructions, block_of = self._model.kernel.instructions, self._model.graph.block_of
        fences = sorted(self._model.indices_of(Kind.FENCE), reverse=True)
        return {block_of[index]: index for index in fences if instructions[index].predicate is None}

    @cached_property
    def _seen_on(self) -> dict[tuple[int, int], list[Order]]:
        """Edges behind a test that saw polls to be ready, with the polls' orders."""
        graph = self._model.graph
        found: dict[tuple[int, int], list[Order]] = {}
        for spin in self.spins:
            for branch, orders in self._tests_of(spin).items():
                block = graph.block_of[branch]
                for target in {e.target for e in graph.blocks[block].edges}:
                    if orders and not self._leads_into(spin, target):
                        found.setdefault((block, target), []).extend(orders)
        return found

    def _tests_of(self, spin: Spin) -> dict[int, tuple[Order, ...]]:
        """Branches whose condition depends on a poll of the spin, those before its loop included, with the polls'
        orders."""
        found = self._tests.get(spin.loop.header)
        if found is not None:
            return found
        model, found = self._model, {}
        sources = {s for t in spin.polls for s, _ in t.assignments}
        reads = {
            t.instruction.index: t.access.order for t in self.reads if sources & {s for s, _ in t.assignments}
        }
        before = {
            at
            for block in model.graph.predecessors[spin.loop.header]
            for at in (block, model.graph.dominators[block])
            if at not in spin.loop.blocks and not self._is_in_another(spin, at)
        }
        branches = [model.kernel.instructions[model.graph.blocks[at].end - 1] for at in sorted(before)]
        for branch in (*branches, *(e.instruction for e in spin.ready)):
            if branch.predicate is not None:
                value = model.values.use(branch.index, branch.predicate.register)
                places = {place for place, _ in self._model.slices.of(value).loads}
                found[branch.index] = tuple(reads[p] for p in sorted(places & set(reads)))
        self._tests[spin.loop.header] = found
        return found

    def _is_in_another(self, spin: Spin, block: int) -> bool:
        """Whether a block belongs to a spin of its own that is over before this one begins."""
        return any(block in s.loop.blocks and spin.loop.header not in s.loop.blocks for s in self.spins)

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
            found.append(LoopExit(last, self._model.slices.of(value)))
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
        stack = [(value, False)]
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
                stack += [(p, stepped) for p in node.parts]
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
        return isinstance(side, int) and any(p in places for p, _ in self._model.slices.of(side).loads)

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
            found.append((touch, [self._stored_constant(index, r) for r in touch.access.registers]))
        return found

    def _stored_constant(self, index: int, operand: Operand) -> int | None:
        """What an instruction stores, where it is a constant; what was set under the store's own guard is that."""
        values, expressions = self._model.values, self._model.expressions
        value = values.operand(index, operand)
        while isinstance(value, int):
            node = values.node(value)
            if node.origin is Origin.MERGE and self._have_one_guard(index, node.place):
                value = node.parts[0]
            elif node.assign is not None and node.assign.op is Op.MOVE:
                (value,) = values.args(value)
            else:
                return expressions[expressions.of_value(value)].constant
        return getattr(value, "value", None)

    def _have_one_guard(self, first: int, second: int) -> bool:
        values, instructions = self._model.values, self._model.kernel.instructions
        guards = [(place, instructions[place].predicate) for place in (first, second)]
        held = {(values.use(place, guard.register), guard.negated) for place, guard in guards if guard}
        return len(held) == 1 and all(guard for _, guard in guards)
