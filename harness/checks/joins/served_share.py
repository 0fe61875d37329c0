"""Whether the requests that a claim rests on were served by the specialised path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from harness.checks.joins.ruling import Ruling
from harness.checks.joins.token_steps import TokenSteps
from harness.model.evaluation import SuiteItem
from harness.model.finding import Measurement
from harness.model.ledger import Path, Served
from harness.model.words import Outcome


def decide_share(served: Served, what: str, min_share: float, details: Iterable[str] = ()) -> Ruling:
    """Whether enough of the decode tokens were served specialised; none at all decides nothing.

    A step whose decision and code disagree counts for neither path and fails by itself.
    """
    share = served.share
    if share is None:
        return Ruling(
            outcome=Outcome.INCONCLUSIVE,
            message=f"The ledger has no decode token of {what} inside the scope: nothing shows which path served.",
            advice="Ask for more tokens, or for fewer requests at once, so that pure decode steps occur.",
        )
    measurement = Measurement(
        name=f"specialised share, {what}", unit="share", estimate=share, margin=min_share, n=served.total
    )
    text = (
        f"{served.specialized} of {served.total} decode tokens of {what} were served by the specialised path"
    )
    if served.contradictory:
        outcome = Outcome.FAIL
        text += f"; in {served.contradictory}, the decision and the code that ran disagree"
    else:
        outcome = Outcome.PASS if share >= min_share else Outcome.FAIL
    failed = outcome is Outcome.FAIL
    return Ruling(
        outcome=outcome,
        message=f"{text} ({share:.1%}, required {min_share:.0%}).",
        advice="Read the reasons for falling back in the ledger, and widen the path or narrow the scope."
        if failed
        else "",
        measurements=(measurement,),
        details=tuple(details) if failed else (),
    )


def fallback_reasons(steps: TokenSteps, items: Iterable[SuiteItem]) -> tuple[str, ...]:
    """Why decode tokens of these requests were not served specialised, most frequent first."""
    counts: Counter[str] = Counter()
    for item in items:
        for step in steps.get(item.request_id, ()):
            if step.row.is_pure_decode and step.in_scope and step.path is not Path.SPECIALIZED:
                reasons = ", ".join(sorted({d.reason or "no reason given" for d in step.row.decisions}))
                counts[f"batch {step.batch}: {step.path}: {reasons or 'no decision was seen'}"] += 1
    return tuple(f"{count} tokens: {text}" for text, count in counts.most_common())
