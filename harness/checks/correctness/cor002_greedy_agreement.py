"""COR002: free-running greedy continuations agree with the baseline's as often as a rerun's do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.checks.joins.agreement import AgreementCounts, decide_agreement
from harness.checks.joins.pairing import SuiteArms, Triple, find_suite_arms, pair_items
from harness.checks.joins.ruling import Ruling, combine_rulings, finding_of
from harness.checks.joins.served_share import decide_share, fallback_reasons
from harness.checks.joins.token_level import gap_shift, num_not_finite, tie_gap
from harness.checks.joins.token_steps import TokenSteps, count_token_steps, index_token_steps
from harness.model.check import BaseCheck, CheckContext
from harness.model.evaluation import SuiteItem
from harness.model.finding import Finding
from harness.model.ledger import Served
from harness.model.policy import Policy
from harness.model.words import Outcome, Principle, Tier

SUITE = "greedy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Where a continuation first leaves the baseline's."""

    position: int
    gap: float | None
    """Nats between the baseline's two most likely tokens there; None when not reported."""


class GreedyAgreement(BaseCheck):
    """Share of equal continuations by concurrency, against the A/A."""

    id = "COR002"
    title = "Greedy continuations agree with the baseline's as often as a second baseline run's do"
    principle = Principle.CORRECTNESS
    tier = Tier.CPU
    requires = ("COR005",)
    how = (
        "Compares whole continuations by concurrency; a first difference at a tie of the baseline does not count; "
        "Tango's paired non-inferiority test against a second baseline run."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """One finding a concurrency."""
        arms = find_suite_arms(context.evidence, SUITE, self.tier)
        if isinstance(arms, Ruling):
            return [finding_of(self, "greedy continuations", arms)]
        evidence = arms.evidence_ids
        triples, incomplete = pair_items(arms)
        findings = [finding_of(self, "greedy answers", incomplete, evidence)] if incomplete else []
        steps = index_token_steps(arms.ledger, context.manifest, (t.candidate.request_id for t in triples))
        for concurrency in sorted(required_concurrencies(arms, context.manifest.scope.max_batch)):
            group = tuple(t for t in triples if t.baseline.concurrency == concurrency)
            ruling = decide_concurrency(group, concurrency, steps, context.policy)
            findings.append(finding_of(self, f"concurrency {concurrency}", ruling, evidence))
        return findings


def required_concurrencies(arms: SuiteArms, max_batch: int) -> set[int]:
    """One request alone, the scope's largest batch, and whatever else was tried."""
    return {1, max_batch} | {item.concurrency for item in arms.baseline.items}


def decide_concurrency(
    triples: Sequence[Triple], concurrency: int, steps: TokenSteps, policy: Policy
) -> Ruling:
    """Agreement of the requests at one concurrency, and proof that the specialised path made them."""
    what = f"greedy requests at concurrency {concurrency}"
    if not triples:
        return Ruling(outcome=Outcome.INCONCLUSIVE, message=f"There are no {what}: nothing was compared.")
    candidates = [t.candidate for t in triples]
    served = count_token_steps(steps, candidates)
    rulings = [
        _decide_served(served, what, policy, fallback_reasons(steps, candidates)),
        _decide_batch_reached(candidates, concurrency, steps, policy),
        decide_continuations(triples, what, policy),
    ]
    return combine_rulings([r for r in rulings if r is not None])


def _decide_served(served: Served, what: str, policy: Policy, reasons: Sequence[str]) -> Ruling:
    """Answers that another path gave are no evidence here; that they fell back is COR003's to fail."""
    ruling = decide_share(served, what, policy.min_specialized_share, reasons)
    if ruling.outcome is Outcome.FAIL:
        return replace(ruling, outcome=Outcome.INCONCLUSIVE)
    return ruling


def _decide_batch_reached(
    items: Sequence[SuiteItem], concurrency: int, steps: TokenSteps, policy: Policy
) -> Ruling | None:
    """Enough of the tokens came from steps that really held that many requests."""
    full = sum(
        s.is_specialized and s.batch == concurrency for i in items for s in steps.get(i.request_id, ())
    )
    needed = policy.token_level.min_tokens_per_batch
    if full >= needed:
        return None
    return Ruling(
        outcome=Outcome.INCONCLUSIVE,
        message=f"Only {full} of their tokens came from specialised steps of {concurrency} requests; "
        f"{needed - full} more are needed.",
        advice="Ask for longer answers, so that the requests overlap.",
    )


def decide_continuations(triples: Sequence[Triple], what: str, policy: Policy) -> Ruling:
    """Non-inferiority of agreement. Equal baseline continuations count as one: repeating them shows nothing new."""
    broken = [t.item for t in triples if num_not_finite(t.candidate)]
    if broken:
        return Ruling(
            outcome=Outcome.FAIL,
            message=f"{len(broken)} of {len(triples)} {what} have log probabilities that are not finite.",
            details=tuple(broken),
        )
    shifts = [s for t in triples for s in _noise_shifts(t)]
    tie = tie_gap(shifts, policy.token_level)
    agrees: dict[tuple[int, ...], tuple[bool, bool, bool]] = {}
    lines, num_ties = [], 0
    for triple in triples:
        away, noise = (
            first_divergence(triple.baseline, triple.candidate),
            first_divergence(triple.baseline, triple.again),
        )
        at_tie = away is not None and _is_tie(away, tie)
        num_ties += at_tie
        if away is not None and not at_tie:
            lines.append(_describe(triple, away))
        before = agrees.get(triple.baseline.token_ids, (True, True, True))
        agrees[triple.baseline.token_ids] = (
            before[0] and (away is None or at_tie),
            before[1] and (noise is None or _is_tie(noise, tie)),
            before[2] and noise is None,
        )
    counts = AgreementCounts.of(agrees.values())
    ruling = decide_agreement(counts, what, policy.greedy_margin, policy.alpha)
    tail = (
        f"{num_ties} first differences were at ties of up to {tie:.4f} nats; {len(triples)} requests in all."
    )
    return Ruling(
        outcome=ruling.outcome,
        message=f"{ruling.message} {tail}",
        advice=ruling.advice,
        measurements=ruling.measurements,
        details=tuple(lines),
    )


def first_divergence(baseline: SuiteItem, other: SuiteItem) -> Divergence | None:
    """Where `other` first emits another token than the baseline, stops before it or goes on after it.

    A refused request diverges at its first token.
    """
    if other.token_ids == baseline.token_ids and not other.error:
        return None
    pairs = zip(baseline.token_ids, other.token_ids, strict=False)
    position = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    if position is None or position >= len(baseline.top_logprobs):
        return Divergence(position=min(len(baseline.token_ids), len(other.token_ids)), gap=None)
    top = baseline.top_logprobs[position]
    known = dict(zip(top.token_ids, top.logprobs, strict=False))
    chosen, rival = known.get(baseline.token_ids[position]), known.get(other.token_ids[position])
    return Divergence(position=position, gap=None if chosen is None or rival is None else abs(chosen - rival))


def _is_tie(divergence: Divergence, tie: float) -> bool:
    return divergence.gap is not None and divergence.gap <= tie


def _noise_shifts(triple: Triple) -> list[float]:
    """How far the baseline again moves the top-two gap, before the two runs part."""
    parted = first_divergence(triple.baseline, triple.again)
    end = len(triple.baseline.token_ids) if parted is None else parted.position + 1
    pairs = zip(triple.baseline.top_logprobs[:end], triple.again.top_logprobs[:end], strict=False)
    return [gap_shift(a, b) for a, b in pairs if a.token_ids and b.token_ids]


def _describe(triple: Triple, away: Divergence) -> str:
    if triple.candidate.error:
        return f"{triple.item}: the candidate refused: {triple.candidate.error}"
    gap = "an unknown gap" if away.gap is None else f"a gap of {away.gap:.4f} nats"
    return (
        f"{triple.item}: first differs at token {away.position} of {len(triple.baseline.token_ids)}, at {gap}"
    )
