"""SYN010: a named barrier waits for as many threads as come to it."""

from __future__ import annotations

from collections.abc import Sequence

from harness.audit.analysis import Analysis
from harness.audit.barriers import BarrierKey
from harness.audit.decide import AuditResult, Decision, result_of, site_of
from harness.audit.program import BarrierScope, Instruction
from harness.audit.threads import WARP


class BarrierCounts:
    """The count of bar.sync and bar.arrive equals the threads of the roles that reach the barrier."""

    id = "SYN010"
    claim = "A CTA barrier with a thread count waits for exactly the threads whose roles reach it"
    how = (
        "For each barrier number with a constant count, adds up the threads of the classes that can reach one of its "
        "instructions; the size of the CTA must be known (.reqntid or `block`)."
    )

    def decide(self, analysis: Analysis) -> Sequence[AuditResult]:
        """One result for each counted barrier that is not right or not sure, or one for the kernel."""
        kernel, barriers = analysis.model.kernel, analysis.barriers
        groups: dict[BarrierKey, list[Instruction]] = {}
        for instruction in barriers.instructions:
            key = barriers.key_of(instruction)
            counted = instruction.barrier is not None and instruction.barrier.count is not None
            if key is not None and key.scope is BarrierScope.CTA and counted:
                groups.setdefault(key, []).append(instruction)
        if not groups:
            reason = "The kernel has no CTA barrier with a thread count."
            return [result_of(self.id, kernel, Decision.NOT_APPLICABLE, reason)]
        results = [self._decide(analysis, key, users) for key, users in groups.items()]
        wrong = [r for r in results if r.decision in (Decision.SHOWN, Decision.UNDECIDED)]
        right = [r for r in results if r.decision is Decision.PROVEN]
        if wrong or not right:
            return wrong or results[:1]
        uncounted = len(results) - len(right)
        reason = f"Each of {len(right)} counted barriers is reached by exactly as many threads as it counts."
        reason += f" {uncounted} more cannot be counted." if uncounted else ""
        return [result_of(self.id, kernel, Decision.PROVEN, reason)]

    def _decide(self, analysis: Analysis, key: BarrierKey, users: list[Instruction]) -> AuditResult:
        kernel, barriers = analysis.model.kernel, analysis.barriers
        subject = f"barrier {key.number if key.number is not None else 'with a computed number'}"
        counts = {barriers.count_of(i) for i in users}
        sites = tuple(site_of(i) for i in users[:6])

        def result(decision: Decision, reason: str) -> AuditResult:
            return result_of(self.id, kernel, decision, reason, sites=sites, subject=subject)

        constants = [c for c in counts if c is not None]
        odd = [c for c in constants if c % WARP or c <= 0]
        if odd:
            return result(
                Decision.SHOWN, f"{subject} counts {odd[0]} threads, which is no multiple of a warp."
            )
        if len(constants) != 1 or len(counts) != 1 or key.number is None:
            return result(Decision.NOT_APPLICABLE, f"{subject} has no single constant count.")
        everyone = {i.index for i in barriers.instructions if barriers.key_of(i) == key}
        arriving = barriers.arriving(everyone)
        if arriving is None:
            why = "the CTA's size is not known" if analysis.model.threads.count is None else "too many ways"
            return result(Decision.NOT_APPLICABLE, f"Threads that reach {subject} cannot be counted: {why}.")
        if arriving > constants[0]:
            arriving = barriers.arriving(everyone, is_precise=True) or arriving
        wants = f"{subject} waits for {constants[0]} threads"
        if arriving < constants[0]:
            return result(Decision.SHOWN, f"{wants}; only {arriving} can reach it: it never opens.")
        if arriving > constants[0]:
            return result(Decision.UNDECIDED, f"{wants}; {arriving} can reach it, perhaps in turns.")
        return result(Decision.PROVEN, f"{wants}, and so many reach it.")
