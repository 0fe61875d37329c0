"""COR009: the evaluations notice a candidate that was made wrong on purpose."""

from __future__ import annotations

from collections.abc import Sequence

from harness.checks.joins.eval_control import decide_control, find_control
from harness.checks.joins.eval_grades import grade_aime_item, grade_mrcr_item
from harness.checks.joins.ruling import Ruling, finding_of
from harness.model.check import BaseCheck, CheckContext
from harness.model.finding import Finding
from harness.model.words import Principle, Tier


class NegativeControl(BaseCheck):
    """Each suite's control, by the decision rule of the suite itself."""

    id = "COR009"
    title = "The evaluations notice a candidate whose specialised code was made wrong on purpose"
    principle = Principle.CORRECTNESS
    tier = Tier.CPU
    requires = ("COR005",)
    how = (
        "A slice of each suite is asked again while noise lies on what the specialised code returns; it must score "
        "worse than the candidate by more than the suite's margin."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """One finding a suite."""
        evals = context.policy.evals
        findings = []
        for suite, grade, margin in (
            ("mrcr", grade_mrcr_item, evals.mrcr_margin),
            ("aime", grade_aime_item, evals.aime_margin),
        ):
            control = find_control(context, suite, self.tier)
            if isinstance(control, Ruling):
                findings.append(finding_of(self, suite, control))
            else:
                ruling = decide_control(context, control, grade, margin)
                findings.append(finding_of(self, suite, ruling, control.evidence_ids))
        return findings
