"""The distance between two arms' next-token distributions, token by token, along the same continuation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, sqrt

from harness.checks.joins.pairing import Triple
from harness.checks.joins.ruling import Ruling
from harness.checks.joins.token_steps import TokenStep, TokenSteps
from harness.model.evaluation import SuiteItem, TokenLogprobs
from harness.model.policy import TokenLevelPolicy
from harness.model.words import Outcome
from harness.stats.truncated_kl import TOP, truncated_kl

MAX_TIE_GAP = 0.1
"""Nats; a baseline that prefers a token by more has decided, however noisy the A/A is."""
GAP_QUANTILE = 0.99
"""Share of the A/A's gap shifts that are taken for noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenComparison:
    """One position: the candidate against the baseline, and the baseline again against the baseline."""

    item: str
    prompt: str
    position: int
    step: TokenStep | None
    """The candidate's step that emitted the token; None when the ledger has none."""
    kl: float
    """Nats, KL(baseline || candidate)."""
    noise_kl: float
    """Nats, KL(baseline || baseline again)."""
    gap: float
    """Nats between the baseline's two most likely tokens."""
    noise_gap_shift: float
    """How far the baseline again moves that gap."""
    flips: bool
    """Whether the candidate's most likely token is another."""
    noise_flips: bool
    is_identical: bool
    """Whether the candidate's log probabilities equal the baseline's bit for bit."""


def compare_tokens(triples: Sequence[Triple], steps: TokenSteps) -> tuple[TokenComparison, ...]:
    """All positions of requests that `find_faults` found sound."""
    compared = []
    for triple in triples:
        served = steps.get(triple.candidate.request_id, ())
        for position, base in enumerate(triple.baseline.top_logprobs):
            cand, again = triple.candidate.top_logprobs[position], triple.again.top_logprobs[position]
            compared.append(
                TokenComparison(
                    item=triple.item,
                    prompt=triple.prompt,
                    position=position,
                    step=served[position] if position < len(served) else None,
                    kl=_kl(base, cand),
                    noise_kl=_kl(base, again),
                    gap=top_gap(base),
                    noise_gap_shift=gap_shift(base, again),
                    flips=top_token(base) != top_token(cand),
                    noise_flips=top_token(base) != top_token(again),
                    is_identical=_as_mapping(base) == _as_mapping(cand),
                )
            )
    return tuple(compared)


def find_faults(triples: Sequence[Triple]) -> Ruling | None:
    """What makes a comparison of the answers meaningless, or is itself a fault of the candidate."""
    faults: dict[Outcome, list[str]] = {}
    for triple in triples:
        outcome_and_line = _fault_of(triple)
        if outcome_and_line is not None:
            faults.setdefault(outcome_and_line[0], []).append(f"{triple.item}: {outcome_and_line[1]}")
    for outcome in (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE):
        if lines := faults.get(outcome):
            return Ruling(
                outcome=outcome,
                message=f"{len(lines)} of {len(triples)} answers {_FAULT_TEXT[outcome]}, first {lines[0]}.",
                details=tuple(line for group in faults.values() for line in group),
            )
    return None


_FAULT_TEXT = {
    Outcome.FAIL: "of the candidate are broken",
    Outcome.ERROR: "cannot be compared",
    Outcome.INCONCLUSIVE: "lack log probabilities",
}


def _fault_of(triple: Triple) -> tuple[Outcome, str] | None:
    """The worst thing about one request's answers."""
    candidate, off_arms = triple.candidate, (triple.baseline, triple.again)
    if candidate.error:
        return Outcome.FAIL, f"the candidate refused: {candidate.error}"
    if num_not_finite(candidate):
        return Outcome.FAIL, "log probabilities are not finite"
    if any(num_not_finite(item) for item in off_arms):
        return Outcome.ERROR, "log probabilities are not finite with the switch off"
    for item in (candidate, *off_arms):
        if item.token_ids != triple.baseline.token_ids:
            return Outcome.ERROR, "the arms did not walk the same tokens"
        if len(item.top_logprobs) != len(item.token_ids) or any(not t.token_ids for t in item.top_logprobs):
            return Outcome.INCONCLUSIVE, "log probabilities are missing"
        if any(not _is_distribution(t) for t in item.top_logprobs):
            return Outcome.ERROR, "log probabilities are not those of a distribution"
        if any(len(t.token_ids) < TOP for t in item.top_logprobs):
            return Outcome.INCONCLUSIVE, f"positions list fewer than {TOP} tokens"
    return None


def num_not_finite(item: SuiteItem) -> int:
    """Log probabilities of the answer that were NaN or infinite."""
    return sum(t.num_not_finite for t in item.top_logprobs)


def _is_distribution(top: TokenLogprobs) -> bool:
    """Distinct ids, one log probability each, none above 0, together at most 1 up to rounding."""
    if len(top.token_ids) != len(top.logprobs) or len(set(top.token_ids)) != len(top.token_ids):
        return False
    return max(top.logprobs) <= 1e-4 and sum(map(exp, top.logprobs)) <= 1 + 1e-3


def _as_mapping(top: TokenLogprobs) -> dict[int, float]:
    return dict(zip(top.token_ids, top.logprobs, strict=True))


def _kl(base: TokenLogprobs, other: TokenLogprobs) -> float:
    return truncated_kl(base.token_ids, base.logprobs, other.token_ids, other.logprobs)


def top_token(top: TokenLogprobs) -> int:
    """The most likely token."""
    return max(zip(top.logprobs, top.token_ids, strict=True), key=lambda pair: (pair[0], -pair[1]))[1]


def top_gap(top: TokenLogprobs) -> float:
    """Nats between the two most likely tokens; without a second token, as decided as can be."""
    ordered = sorted(top.logprobs, reverse=True)
    return ordered[0] - ordered[1] if len(ordered) > 1 else -min(ordered[0], 0.0) + MAX_TIE_GAP


def gap_shift(base: TokenLogprobs, other: TokenLogprobs) -> float:
    """How far `other` moves the gap between the base's two most likely tokens; its list's end stands for absence."""
    if len(base.token_ids) < 2:
        return 0.0
    found = _as_mapping(other)
    (first, _), (second, _) = sorted(_as_mapping(base).items(), key=lambda kv: -kv[1])[:2]
    end = min(found.values())
    return abs(top_gap(base) - (found.get(first, end) - found.get(second, end)))


def tie_gap(noise_shifts: Sequence[float], policy: TokenLevelPolicy) -> float:
    """The gap, in nats, up to which the baseline's two most likely tokens are a tie.

    The larger of the A/A's shift (its 99th percentile) and what the policy's KL floor allows: a perturbation of
    standard deviation s costs s^2 / 2 nats, so the floor allows s = sqrt(2 floor), and twice that on a difference.
    """
    ordered = sorted(noise_shifts)
    noise = ordered[ceil(GAP_QUANTILE * len(ordered)) - 1] if ordered else 0.0
    return min(max(noise, 2 * sqrt(2 * policy.kl_floor)), MAX_TIE_GAP)
