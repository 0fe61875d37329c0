"""PDL002: dependents are not let go before the data that they may read is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.audit.analysis import Analysis
from harness.audit.decide import AuditResult, Decision, result_of
from harness.audit.model import Model, Need
from harness.audit.program import Kind, Mechanism
from harness.audit.triggered import Late
from harness.audit.witness import sites_of
from harness.model.kernels import Dependents

_WAITS = "every dependent reads this kernel's results after its own griddepcontrol.wait only"
_EACH_THREAD = (
    "each thread's stores precede its own trigger; threads that trigger early are not held by slower ones"
)
_ASYNCHRONOUS = (Mechanism.BULK, Mechanism.TENSOR_MAP)


class TriggerAfterStores:
    """The trigger comes after the last store that a dependent may read."""

    id = "PDL002"
    claim = "launch_dependents does not come before the last store that a dependent may read"
    how = (
        "Walks all ways on from each trigger to global writes. Where thread roles differ, a store of one role must be "
        "ordered before the trigger of another by a barrier. Declaring that dependents wait makes any order right."
    )

    def decide(self, analysis: Analysis) -> Sequence[AuditResult]:
        """One result for each argument stored too late, or one for the kernel."""
        model = analysis.model
        kernel = model.kernel
        if not any(i.kind is Kind.TRIGGER for i in kernel.instructions):
            if not model.is_dependent:
                reason = "The kernel has no trigger: dependents start when it has completed."
                return [result_of(self.id, kernel, Decision.NOT_APPLICABLE, reason)]
            reason = "The kernel has no trigger: dependents are let go when the grid has completed."
            return [result_of(self.id, kernel, Decision.PROVEN, reason)]
        late = analysis.triggered.late
        results = [self._result(model, one) for one in late]
        if not results:
            reason = "No store that a dependent may read comes after the trigger."
            assumed: tuple[str, ...] = (_EACH_THREAD,) if analysis.triggered.relies_on_each_thread else ()
            if model.options.dependents is not Dependents.WAIT:
                assumed += _completed(model)
            return [result_of(self.id, kernel, Decision.PROVEN, reason, assumptions=assumed)]
        if model.options.dependents is Dependents.WAIT:
            lines = ", ".join(str(r.sites[-1].line) for r in results[:8] if r.sites)
            reason = (
                f"Stores come after the trigger (lines {lines}): right if dependents wait before they read."
            )
            return [result_of(self.id, kernel, Decision.PROVEN, reason, assumptions=(_WAITS,))]
        return results

    def _result(self, model: Model, late: Late) -> AuditResult:
        sites = sites_of(late.way, late.note) if late.way is not None else ()
        decision = Decision.SHOWN if late.is_sure else Decision.UNDECIDED
        found = result_of(self.id, model.kernel, decision, late.reason, sites=sites, subject=late.subject)
        return replace(found, sites=(*late.before, *found.sites))


def _completed(model: Model) -> tuple[str, ...]:
    """What must hold of stores that are under way when the instruction that starts them is over."""
    lines = [
        str(t.instruction.line)
        for t in model.writes
        if t.access.mechanism in _ASYNCHRONOUS and t.dependent_need is not Need.NO
    ]
    return (f"asynchronous stores (line {', '.join(lines)}) have completed at the trigger",) if lines else ()
