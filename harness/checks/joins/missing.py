"""Evidence that is not there: `error` when the harness broke while collecting it, else `not_run`."""

from __future__ import annotations

from harness.checks.joins.ruling import Ruling
from harness.model.evidence import EvidenceSet, GapEvidence
from harness.model.words import Arm, Outcome, Tier

INTERRUPTED = "the rest of the run"
"""How the gap of an interrupted collection is named: it concerns everything that is not there."""


def missing_ruling(evidence: EvidenceSet, tier: Tier, what: str, *needs: str) -> Ruling:
    """Why `what` cannot be judged: the recorded gaps that concern the tier or one of `needs`.

    Args:
        evidence: All evidence.
        tier: Where the evidence was to be collected.
        what: The missing evidence, in words.
        needs: Names as gaps give them: "arm candidate", "suite greedy".
    """
    names = (f"tier {tier}", INTERRUPTED, *needs)
    gaps = [gap for gap in evidence.gaps(tier) if any(_concerns(gap, name) for name in names)]
    broke = any(gap.broke for gap in gaps)
    reasons = tuple(f"{gap.what}: {gap.reason}" for gap in gaps)
    lines = tuple(line for gap in gaps for line in (f"{gap.what}: {gap.reason}", *gap.details))
    why = f": {reasons[0].rstrip('.')}" if reasons else ", and no gap was recorded for it"
    return Ruling(
        outcome=Outcome.ERROR if broke else Outcome.NOT_RUN,
        message=f"There is no evidence of {what}{why}.",
        advice=f"Collect it with `fasttrack validate --tier {tier}`.",
        details=lines,
    )


def _concerns(gap: GapEvidence, name: str) -> bool:
    """Whether the gap is about `name`; "suite greedy on baseline" is about "suite greedy"."""
    return gap.what == name or gap.what.startswith((f"{name} on ", f"{name} of "))


def arm_need(arm: Arm) -> str:
    """How gaps name an arm."""
    return f"arm {arm}"
