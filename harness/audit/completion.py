"""Whether a grid can complete before the grids before it: what holds it when not every thread waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice, product

from harness.audit.model import Model
from harness.audit.program import Kind, Op
from harness.audit.threads import ThreadClass
from harness.audit.unwaited import MAX_ROUNDS, Unwaited
from harness.audit.values import Origin
from harness.audit.walk import EXIT
from harness.audit.witness import Way, contradiction, way_of

MAX_CTAS = 64
"""CTAs of a known grid that are looked at, from the first."""
_CTA_SPECIALS = ("ctaid", "clusterid", "cluster_ctaid", "cluster_ctarank")
_SIZES = ("nctaid", "nclusterid", "cluster", "constant bank")
_FIRST = {
    f"{name}.{axis}": 0 for name in ("ctaid", "clusterid", "cluster_ctaid") for axis in ("x", "y", "z")
} | {"cluster_ctarank": 0}


class Completion:
    """Answers for one kernel."""

    def __init__(self, model: Model, unwaited: Unwaited) -> None:
        self._model = model
        self._unwaited = unwaited

    @property
    def sees_all_ctas(self) -> bool:
        """Whether the grid is known and small enough that every CTA is looked at."""
        grid = self._model.options.grid
        return grid is not None and grid[0] * grid[1] * grid[2] <= MAX_CTAS

    def waiting_cta(self) -> str:
        """A CTA of every launch of which some thread always waits, in words; empty when none was found."""
        for place, specials in self._ctas(self._model.options.grid or (1, 1, 1)):
            if self._waits(specials):
                return f"CTA {place} of the grid" if any(place) else "the first CTA"
        return ""

    def may_hold_in_a_larger_grid(self) -> bool:
        """Whether some CTA always waits that a grid of unknown size may have."""
        if any(e.startswith(_SIZES) for e in self._specials_of_guards()):
            return True
        return any(self._waits(specials) for _, specials in self._ctas((MAX_CTAS, 1, 1)))

    def _specials_of_guards(self) -> set[str]:
        model = self._model
        guards = model.guards(frozenset(range(len(model.graph.blocks))))
        parts = (part for guard in guards for part in model.expressions.parts(guard))
        return {model.expressions[part].special for part in parts}

    def _waits(self, specials: Mapping[str, int]) -> bool:
        """Whether a CTA surely has a thread that always waits."""
        groups: dict[tuple[int, ...], list[ThreadClass]] = {}
        for threads in self._unwaited.classes:
            groups.setdefault(threads.threads, []).append(threads)
        is_exact = self._model.threads.count is not None
        present = [group for threads, group in groups.items() if is_exact or 0 in threads]
        return any(all(self._always_waits(t, specials) for t in group) for group in present)

    def _ctas(self, grid: tuple[int, int, int]) -> Iterator[tuple[tuple[int, ...], Mapping[str, int]]]:
        yield (0, 0, 0), _FIRST
        x, y, z = grid
        every = product(range(z), range(y), range(x))
        for place in islice(every, 1, MAX_CTAS):
            yield place[::-1], dict(zip(("ctaid.x", "ctaid.y", "ctaid.z"), place[::-1], strict=True))

    def _always_waits(self, threads: ThreadClass, specials: Mapping[str, int]) -> bool:
        tracked: frozenset[int] = frozenset()
        for _ in range(MAX_ROUNDS):
            walk, _ = self._unwaited.walk(threads, tracked, None, strict=False, specials=specials)
            if not walk.is_complete:
                return False
            if EXIT not in walk.arrivals:
                return True
            way = way_of(self._model.graph, walk, walk.arrivals[EXIT], EXIT, threads)
            learned = contradiction(self._model, way) - tracked
            if not learned:
                return False
            tracked |= learned
        return False

    def decides_by_cta(self, way: Way) -> bool:
        """Whether the way avoids the wait by a condition on which CTA it is, and on nothing else."""
        model = self._model
        waits = model.indices_of(Kind.WAIT)
        deciding = set(model.guards(frozenset(way.blocks), waits))
        for choice in (c for choices in way.choices for c in choices):
            guard = model.kernel.instructions[choice.instruction].predicate
            if guard is None:
                continue
            number = model.expressions.of_register(choice.instruction, guard.register)
            if number in deciding and self._is_about_cta(number):
                return True
        return False

    def _is_about_cta(self, number: int) -> bool:
        """Whether an expression is made of the CTA's place in the grid (and the thread's in the CTA) only, be it by
        arithmetic that is not followed."""
        expressions, values = self._model.expressions, self._model.values
        names: set[str] = set()
        seen: set[int] = set()
        stack = [number]
        while stack:
            at = stack.pop()
            if at in seen:
                continue
            seen.add(at)
            entry = expressions[at]
            if entry.param or (entry.name and entry.name != "difference"):
                return False
            names |= {entry.special.partition(".")[0]} if entry.special else set()
            stack += entry.args
            if entry.leaf is None:
                continue
            node = values.node(entry.leaf)
            if node.origin in (Origin.PHI, Origin.MERGE):
                stack += [expressions.of_value(p) for p in node.parts]
                continue
            if node.assign is None or node.assign.op is Op.LOAD:
                return False
            stack += [expressions.of_value(a) for a in values.args(entry.leaf) if isinstance(a, int)]
        return bool(names & set(_CTA_SPECIALS))
