"""SYN011: an mbarrier expects as many arrivals as its phase gets."""

from __future__ import annotations

from collections.abc import Sequence

from harness.audit.analysis import Analysis
from harness.audit.decide import AuditResult, Decision, result_of, site_of
from harness.audit.program import BarrierAction, Instruction

_Place = tuple[str, int]


class MbarrierCounts:
    """The count given at initialisation equals the arrivals of one phase."""

    id = "SYN011"
    claim = "An mbarrier is initialised with the number of arrivals that one phase gets"
    how = (
        "For each mbarrier whose place and count are constant, counts the threads that can run each of its arrivals. "
        "Arrivals from other CTAs, by asynchronous copies, or at a place that is not constant are not counted."
    )

    def decide(self, analysis: Analysis) -> Sequence[AuditResult]:
        """One result for each mbarrier that is not right, or one for the kernel."""
        kernel, barriers = analysis.model.kernel, analysis.barriers
        inits = [
            (i, barriers.place_of(i, i.mbarrier))
            for i in barriers.objects
            if i.mbarrier is not None and i.mbarrier.action is BarrierAction.INIT
        ]
        if not inits:
            reason = "The kernel initialises no mbarrier."
            return [result_of(self.id, kernel, Decision.NOT_APPLICABLE, reason)]
        results = [self._decide(analysis, i, place) for i, place in inits]
        wrong = [r for r in results if r.decision is Decision.SHOWN]
        right = [r for r in results if r.decision is Decision.PROVEN]
        if wrong or not right:
            return wrong or results[:1]
        reason = f"{len(right)} mbarriers expect exactly the arrivals of one phase."
        uncounted = len(results) - len(right)
        reason += f" {uncounted} more cannot be counted." if uncounted else ""
        return [result_of(self.id, kernel, Decision.PROVEN, reason)]

    def _decide(self, analysis: Analysis, init: Instruction, place: _Place | None) -> AuditResult:
        kernel, barriers = analysis.model.kernel, analysis.barriers
        name = f"{place[0] or 'shared'}+{place[1]}" if place is not None else "an mbarrier"
        count = barriers.count_of(init)
        mine = [i for i, where in barriers.arrivals if where == place and place is not None]
        sites = (site_of(init, "initialised"), *(site_of(i, "arrives") for i in mine[:6]))

        def result(decision: Decision, reason: str) -> AuditResult:
            return result_of(self.id, kernel, decision, reason, sites=sites, subject=name)

        uncounted = self._why_not(analysis, mine, place, count)
        if uncounted or count is None:
            return result(Decision.NOT_APPLICABLE, f"The arrivals at {name} cannot be counted: {uncounted}.")
        most = [self._arrivals(analysis, i) for i in mine]
        known = [n for n in most if n is not None]
        least = sum(self._times(analysis, i) * barriers.surely_arriving({i.index}) for i in mine)
        expects = f"{name} expects {count} arrivals a phase"
        if sum(known) < count and not self._repeats(analysis, mine):
            return result(Decision.SHOWN, f"{expects} and can get {sum(known)}: its phase never completes.")
        if len(mine) == 1 and least > count:
            return result(Decision.SHOWN, f"{expects}; its only arrival is run by {least} threads.")
        if sum(known) == count or all(n == count for n in known):
            return result(Decision.PROVEN, f"{expects}, and gets so many.")
        return result(
            Decision.NOT_APPLICABLE,
            f"{expects}; which of its arrivals, by up to {known} threads, make one phase is not clear.",
        )

    def _why_not(
        self, analysis: Analysis, mine: list[Instruction], place: _Place | None, count: int | None
    ) -> str:
        if place is None or count is None:
            return "its place or its count is not constant"
        if any(where is None for _, where in analysis.barriers.arrivals):
            return "an arrival at a place that is computed may be at it"
        if not mine:
            return "it has no arrival in this kernel"
        return (
            ""
            if all(self._arrivals(analysis, i) is not None for i in mine)
            else "not all come from known threads"
        )

    def _arrivals(self, analysis: Analysis, instruction: Instruction) -> int | None:
        """Arrivals by all threads that can run the instruction once."""
        mbarrier = instruction.mbarrier
        if mbarrier is None or mbarrier.is_remote or mbarrier.is_asynchronous:
            return None
        threads = analysis.barriers.arriving({instruction.index})
        times = self._times(analysis, instruction)
        return None if threads is None or not times else threads * times

    def _times(self, analysis: Analysis, instruction: Instruction) -> int:
        """Arrivals that one thread's arrival counts for; 0 when that is not constant."""
        mbarrier = instruction.mbarrier
        if mbarrier is None or mbarrier.count is None:
            return 1
        return analysis.barriers.count_of(instruction) or 0

    def _repeats(self, analysis: Analysis, instructions: list[Instruction]) -> bool:
        graph = analysis.model.graph
        return any(
            graph.block_of[i.index] in graph.reachable_from(graph.block_of[i.index]) for i in instructions
        )
