"""ISO012: on a GPU a specialised step writes, in its own pages, what the baseline's step writes and no more."""

from __future__ import annotations

from collections.abc import Sequence

from harness.checks.isolation.iso008_declared_writes import decide_between, decide_rows, specialised_steps
from harness.checks.joins.probes import allowed_difference, find_handover, find_probe
from harness.checks.joins.ruling import Ruling, finding_of
from harness.model.check import BaseCheck, CheckContext
from harness.model.finding import Finding
from harness.model.words import Outcome, Principle, Tier


class RowsOnAGpu(BaseCheck):
    """Words of a request's own cache pages, beside a twin that never takes the path."""

    id = "ISO012"
    title = "On a GPU a specialised step writes the rows of its own tokens and nothing behind them"
    principle = Principle.ISOLATION
    tier = Tier.GPU
    how = (
        "Compares the words of its own cache pages that each specialised step of the scripted run on a GPU changes "
        "with those that a twin's step changes, with the switch unset; and what changes between two steps."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """Two findings: rows behind the step's own, and writes between steps."""
        probe, handover = find_probe(context, self.tier), find_handover(context, self.tier)
        for missing in (probe, handover):
            if isinstance(missing, Ruling):
                return [finding_of(self, "rows", missing)]
        assert not isinstance(probe, Ruling) and not isinstance(handover, Ruling)
        twinned = {step.engine for step in handover.steps}
        fast = specialised_steps(probe, context.manifest.dispatch.targets)
        steps = tuple(step for step in fast if step.engine in twinned)
        evidence = [probe.id, handover.id]
        if not steps:
            text = "No step that the twin was to compute, too, was specialised."
            return [self.finding(Outcome.INCONCLUSIVE, "rows", text, evidence=evidence)]
        limit = allowed_difference(context, handover)
        rulings = {
            "rows": decide_rows(handover, steps, limit),
            "between steps": decide_between(handover, steps),
        }
        return [finding_of(self, name, ruling, evidence) for name, ruling in rulings.items()]
