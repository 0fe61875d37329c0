"""Everything that the rules ask about one kernel, computed once and when asked for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from harness.audit.cfg import Graph
from harness.audit.expressions import Expressions
from harness.audit.facts import Facts, Knowledge
from harness.audit.forms import Source, SourceKind
from harness.audit.integers import Interval
from harness.audit.pointers import Chooser, Pointers, Reach
from harness.audit.program import Access, Effect, Instruction, Kernel, Kind, Op, Space
from harness.audit.roles import Assignment, KernelOptions
from harness.audit.slices import Slices
from harness.audit.threads import WARP, ThreadClass, Threads
from harness.audit.values import Values
from harness.model.kernels import Launch, Role


class Need(Enum):
    """Whether an access has to come after the wait."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Touch:
    """One access of global memory, with the roles of what it can reach."""

    instruction: Instruction
    access: Access
    reach: Reach
    assignments: tuple[tuple[Source, Assignment], ...]

    @property
    def must_wait(self) -> bool:
        """Whether it may have to come after the wait, as a read or as a write."""
        reads = self.access.reads and self.read_need is not Need.NO
        return reads or (self.access.writes and self.write_need is not Need.NO)

    @property
    def is_mixed(self) -> bool:
        """Whether it depends on the way taken what it reaches, and with that whether it must wait."""
        needs = {
            a.role.reads_need_wait if self.access.reads else a.role.writes_need_wait
            for _, a in self.assignments
        }
        return len(needs) > 1 and not self.reach.is_ambiguous

    @property
    def read_need(self) -> Need:
        """Whether it reads what an earlier grid may still write."""
        return self._need([a.role.reads_need_wait for _, a in self.assignments])

    @property
    def write_need(self) -> Need:
        """Whether it changes what an earlier grid may still read or write."""
        return self._need([a.role.writes_need_wait for _, a in self.assignments])

    @property
    def dependent_need(self) -> Need:
        """Whether it writes what a later grid may read."""
        return self._need([a.role.is_read_by_dependents for _, a in self.assignments])

    def _need(self, each: list[bool]) -> Need:
        if self.reach.is_ambiguous and len(set(each)) > 1:
            return Need.UNKNOWN
        if any(each):
            return Need.YES
        return Need.NO if each and self.reach.is_resolved else Need.UNKNOWN

    def touches(self, role: Role) -> bool:
        """Whether memory of this role can be reached."""
        return any(a.role is role for _, a in self.assignments)

    @property
    def arguments(self) -> tuple[tuple[int, int | None], ...]:
        """The kernel parameters that can be reached, by number and offset."""
        return tuple(sorted({(s.param, s.offset) for s, _ in self.assignments if s.param >= 0}, key=str))

    @property
    def subject(self) -> str:
        """The arguments, with their roles."""
        shown = []
        for source, assignment in self.assignments:
            given = "role not given, taken as activation" if assignment.is_default else assignment.role.value
            shown.append(f"{source} ({given})")
        return ", ".join(dict.fromkeys(shown)) or "an address that leads to no argument"


class Model:
    """One kernel under one set of options."""

    def __init__(self, kernel: Kernel, options: KernelOptions) -> None:
        self.kernel = kernel
        self.options = options.shortened(kernel.name)
        self.block_size = options.block_size or kernel.block_size

    @cached_property
    def graph(self) -> Graph:
        """Control flow."""
        return Graph(self.kernel)

    @cached_property
    def values(self) -> Values:
        """Definitions and uses."""
        return Values(self.graph)

    @cached_property
    def slices(self) -> Slices:
        """What values are computed from."""
        return Slices(self.values)

    @cached_property
    def expressions(self) -> Expressions:
        """Conditions as keys."""
        return Expressions(self.values, self._limits())

    def _limits(self) -> dict[str, Interval]:
        """Values that special registers can have, by the sizes of warp, CTA and grid as far as they are known."""
        found: dict[str, Interval] = {"laneid": (0, WARP - 1), "WARP_SZ": (WARP, WARP)}
        for axis, size in zip("xyz", self.block_size or (), strict=False):
            found[f"tid.{axis}"], found[f"ntid.{axis}"] = (0, size - 1), (size, size)
        for axis, size in zip("xyz", self.options.grid or (), strict=False):
            found[f"ctaid.{axis}"], found[f"nctaid.{axis}"] = (0, size - 1), (size, size)
        return found

    @cached_property
    def pointers(self) -> Pointers:
        """Where addresses come from."""
        return Pointers(self.values)

    @cached_property
    def threads(self) -> Threads:
        """Threads of a CTA."""
        return Threads(self.kernel, self.expressions, self.block_size)

    @cached_property
    def touches(self) -> tuple[Touch, ...]:
        """Every access of global memory, in order."""
        found = []
        for instruction in self.kernel.instructions:
            for access in instruction.accesses:
                if access.space in (Space.GLOBAL, Space.GENERIC) and access.cache != "tensormap":
                    touch = self._touch(instruction, access)
                    if touch is not None:
                        found.append(touch)
        return tuple(found)

    def _touch(self, instruction: Instruction, access: Access) -> Touch | None:
        reach = self.pointers.reach(instruction, access)
        if reach.space is not Space.GLOBAL:
            return None
        return self._touch_of(instruction, access, reach)

    def _touch_of(self, instruction: Instruction, access: Access, reach: Reach) -> Touch:
        assignments = {}
        for source, constant in reach.sources:
            if source.kind is SourceKind.VARIABLE and source.space is not Space.GLOBAL:
                continue
            assignments[source] = self.options.role_of(source, constant)
        return Touch(
            instruction=instruction, access=access, reach=reach, assignments=tuple(assignments.items())
        )

    def touch_given(self, touch: Touch, chooser: Chooser) -> Touch:
        """The access with what it can reach where `chooser` knows how selects turn out."""
        reach = self.pointers.reach_given(touch.instruction, touch.access, chooser)
        return self._touch_of(touch.instruction, touch.access, reach)

    @cached_property
    def mixed(self) -> dict[int, tuple[int, ...]]:
        """Accesses of which the address chooses between arguments of different roles, and what they choose by."""
        found: dict[int, tuple[int, ...]] = {}
        for touch in self.touches:
            if touch.is_mixed:
                chosen = self.pointers.choices(touch.instruction, touch.access)
                index = touch.instruction.index
                found[index] = tuple(sorted({*found.get(index, ()), *chosen}))
        return found

    def must_wait_given(self, instruction: Instruction, knowledge: Knowledge, facts: Facts) -> bool:
        """Whether an access must come after the wait where `facts` are known."""

        def chooser(value: int) -> bool | None:
            return knowledge.truth(self.expressions.of_value(value), facts)

        touches = [t for t in self.touches if t.instruction is instruction]
        return any((self.touch_given(t, chooser) if t.is_mixed else t).must_wait for t in touches)

    @cached_property
    def reads(self) -> tuple[Touch, ...]:
        """Reads and prefetches of global memory."""
        return tuple(t for t in self.touches if t.access.reads)

    @cached_property
    def writes(self) -> tuple[Touch, ...]:
        """Writes and updates of global memory."""
        return tuple(t for t in self.touches if t.access.writes)

    @property
    def is_dependent(self) -> bool:
        """Whether the kernel may start before the grids before it have completed."""
        if self.options.launch is Launch.UNKNOWN:
            return self.kernel.uses_dependent_launch
        return self.options.launch is Launch.PDL

    @cached_property
    def unknown_instructions(self) -> tuple[Instruction, ...]:
        """Calls of unknown functions and text that was not understood: they may read and write anything."""
        indices = self.indices_of(Kind.CALL, Kind.OPAQUE, Kind.OPAQUE_BRANCH)
        return tuple(self.kernel.instructions[i] for i in sorted(indices))

    @cached_property
    def _by_kind(self) -> dict[Kind, list[int]]:
        found: dict[Kind, list[int]] = {}
        for instruction in self.kernel.instructions:
            found.setdefault(instruction.kind, []).append(instruction.index)
        return found

    def indices_of(self, *kinds: Kind) -> frozenset[int]:
        """Instructions of these kinds."""
        return frozenset(index for kind in kinds for index in self._by_kind.get(kind, ()))

    @cached_property
    def unreadable(self) -> str:
        """Why no rule may pass this kernel: text that could not be read; empty when all could."""
        if self.kernel.problems:
            first = self.kernel.problems[0]
            more = f" ({len(self.kernel.problems)} such places)" if len(self.kernel.problems) > 1 else ""
            return f"line {first.line}: {first.reason}: {first.text}{more}"
        for instruction in self.kernel.instructions:
            if instruction.kind in (Kind.OPAQUE, Kind.OPAQUE_BRANCH):
                return f"line {instruction.line}: not understood: {instruction.text}"
        return "" if self.kernel.instructions else "the kernel has no instructions"

    @cached_property
    def _places(self) -> frozenset[int]:
        """Instructions that the rules ask about: control's ends, order, global memory."""
        special = self.indices_of(*(k for k in Kind if k not in (Kind.PLAIN, Kind.BRANCH)))
        return special | {t.instruction.index for t in self.touches}

    def _decides(self, block: int, eventful: set[int]) -> bool:
        """Whether the way taken at a block's end changes which places run."""
        region = self.graph.between(block)
        return region is None or not eventful.isdisjoint(region)

    def guards(self, blocks: frozenset[int], places: frozenset[int] | None = None) -> list[int]:
        """Predicates in `blocks` that decide which of `places` run (all that rules ask about), in program order."""
        chosen = self._places if places is None else places
        eventful = {self.graph.block_of[p] for p in chosen}
        found: dict[int, None] = {}
        for index in sorted(blocks):
            block = self.graph.blocks[index]
            for instruction in self.kernel.instructions[block.start : block.end]:
                guard = instruction.predicate
                if guard is None:
                    continue
                is_branch = instruction.kind is Kind.BRANCH
                is_end = instruction.kind in (Kind.EXIT, Kind.TRAP)
                decides = self._decides(index, eventful) if is_branch else instruction.index in chosen
                if decides or is_end:
                    found[self.expressions.of_register(instruction.index, guard.register)] = None
        return list(found)

    def classes(self, blocks: frozenset[int], places: frozenset[int]) -> tuple[ThreadClass, ...]:
        """Thread classes by the role conditions in `blocks` that decide which of `places` run."""
        conditions: dict[int, None] = {}
        first = self.indices_of(Kind.WAIT, Kind.TRIGGER, Kind.BARRIER)
        for guard in (*self.guards(blocks, first), *self.guards(blocks, places)):
            for part in (guard, *sorted(self.expressions.parts(guard))):
                entry = self.expressions[part]
                if entry.op is Op.ELECT or self._is_boolean(part):
                    conditions[part] = None
        return self.threads.classes(conditions)

    def _is_boolean(self, number: int) -> bool:
        entry = self.expressions[number]
        logical = entry.bits == 1 and entry.op in (Op.AND, Op.OR, Op.XOR, Op.NOT)
        return logical or entry.op in (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE)


def is_prefetch(touch: Touch) -> bool:
    """Whether the access only moves data closer."""
    return touch.access.effect is Effect.PREFETCH
