"""The policy's token-level limits, applied to a group of compared tokens."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from harness.checks.joins.ruling import Ruling, combine_rulings
from harness.checks.joins.token_level import TokenComparison
from harness.model.finding import Measurement
from harness.model.policy import Policy
from harness.model.words import Outcome
from harness.stats.clusters import MIN_CLUSTERS, Array, cluster_bootstrap
from harness.stats.exact_tests import sign_test_p
from harness.stats.margins import decide_below, n_to_resolve
from harness.stats.order_statistics import quantile_lower_bound, sample_quantile

TAIL = 0.999
MAX_NOISE_KL = 0.02
"""Nats; two runs of the baseline that are further apart in the mean are no yardstick: by Pinsker's inequality a tenth
of the probability may lie elsewhere."""


def decide_token_level(tokens: Sequence[TokenComparison], what: str, policy: Policy, tie: float) -> Ruling:
    """Whether a group of tokens is as close to the baseline as the policy asks: mean, tail and confident flips.

    Args:
        tokens: At least one compared token.
        what: The group, in words.
        policy: Limits and alpha.
        tie: Nats up to which the baseline's two most likely tokens are a tie.
    """
    identical = sum(t.is_identical for t in tokens)
    restless = _decide_noise(tokens, what)
    if restless is not None:
        return restless
    combined = combine_rulings(
        [
            _decide_mean(tokens, what, policy),
            _decide_tail(tokens, what, policy),
            _decide_flips(tokens, what, policy, tie),
        ]
    )
    note = f"{what}: {identical} of {len(tokens)} tokens equal the baseline bit for bit"
    return Ruling(
        outcome=combined.outcome,
        message=combined.message,
        advice=combined.advice,
        measurements=combined.measurements,
        details=(*combined.details, note),
    )


def _decide_noise(tokens: Sequence[TokenComparison], what: str) -> Ruling | None:
    """Nothing is judged by a baseline that is as far from itself as a broken candidate would be."""
    noise = fmean(t.noise_kl for t in tokens)
    if noise <= MAX_NOISE_KL:
        return None
    return Ruling(
        outcome=Outcome.INCONCLUSIVE,
        message=f"{what}: the mean KL between two runs of the baseline is {noise:.2e} nats over {len(tokens)} tokens, "
        f"above {MAX_NOISE_KL:g}: nothing can be judged against it.",
        advice="Make the baseline repeatable first: fixed seeds, one batch composition, a quiet machine.",
    )


def _decide_mean(tokens: Sequence[TokenComparison], what: str, policy: Policy) -> Ruling:
    """Mean KL against the larger of the floor and the allowed multiple of the A/A's mean, prompts as clusters."""
    limits = policy.token_level
    clusters = _sums_by_prompt(tokens)
    mean, noise = fmean(t.kl for t in tokens), fmean(t.noise_kl for t in tokens)
    limit = max(limits.kl_floor, limits.max_mean_kl_ratio * noise)

    def excess(totals: Array) -> Array:
        means = totals[:, :2] / totals[:, 2:3]
        allowed: Array = (limits.max_mean_kl_ratio * means[:, 1]).clip(min=limits.kl_floor)
        return means[:, 0] - allowed

    if len(clusters) >= MIN_CLUSTERS:
        low, high = cluster_bootstrap(list(clusters.values()), excess, alpha=policy.alpha)
    else:
        each = [
            kl / n - max(limits.kl_floor, limits.max_mean_kl_ratio * aa / n)
            for kl, aa, n in clusters.values()
        ]
        low, high = min(each), max(each)
    outcome = decide_below(low, high, 0.0)
    message = (
        f"{what}: mean KL {mean:.2e} nats over {len(tokens)} tokens, limit {limit:.2e} (A/A {noise:.2e})."
    )
    advice = ""
    if outcome is Outcome.FAIL:
        advice = "The candidate computes another distribution: compare its operators with the reference at this batch."
    elif outcome is Outcome.INCONCLUSIVE:
        needed = n_to_resolve(len(clusters), (high - low) / 2, abs(mean - limit))
        advice = f"Collect about {needed or 2 * len(clusters)} prompts instead of {len(clusters)}."
    measurement = Measurement(
        name=f"mean KL, {what}",
        unit="nats",
        estimate=mean,
        ci_low=max(0.0, min(limit + low, mean)),
        ci_high=max(limit + high, mean),
        margin=limit,
        n=len(clusters),
    )
    return Ruling(outcome=outcome, message=message, advice=advice, measurements=(measurement,))


def _sums_by_prompt(tokens: Sequence[TokenComparison]) -> dict[str, tuple[float, float, int]]:
    sums: dict[str, tuple[float, float, int]] = {}
    for token in tokens:
        kl, noise, n = sums.get(token.prompt, (0.0, 0.0, 0))
        sums[token.prompt] = (kl + token.kl, noise + token.noise_kl, n + 1)
    return sums


def _decide_tail(tokens: Sequence[TokenComparison], what: str, policy: Policy) -> Ruling:
    """The 99.9th percentile of the token KL: fails only when the quantile's lower bound passes the limit."""
    values = [t.kl for t in tokens]
    noise = sample_quantile([t.noise_kl for t in tokens], TAIL)
    limit = max(policy.token_level.max_p999_kl, 2 * noise)
    estimate = sample_quantile(values, TAIL)
    lower = quantile_lower_bound(values, TAIL, alpha=policy.alpha)
    outcome = Outcome.PASS
    if estimate > limit:
        outcome = Outcome.FAIL if lower is not None and lower > limit else Outcome.INCONCLUSIVE
    worst = sorted(tokens, key=lambda t: -t.kl)[:5]
    return Ruling(
        outcome=outcome,
        message=f"Its 99.9th percentile is {estimate:.2e} nats (limit {limit:.2e}).",
        advice=""
        if outcome is Outcome.PASS
        else "Look at the tokens with the largest distance, listed below.",
        measurements=(
            Measurement(
                name=f"p99.9 of KL, {what}",
                unit="nats",
                estimate=estimate,
                ci_low=lower if lower is None else min(lower, estimate),
                margin=limit,
                n=len(tokens),
            ),
        ),
        details=()
        if outcome is Outcome.PASS
        else tuple(f"{t.item} token {t.position}: KL {t.kl:.2e} nats (A/A {t.noise_kl:.2e})" for t in worst),
    )


def _decide_flips(tokens: Sequence[TokenComparison], what: str, policy: Policy, tie: float) -> Ruling:
    """Flips of a most likely token that the baseline prefers by more than a tie, against the A/A's flips."""
    confident = [t for t in tokens if t.gap > tie]
    flipped = [t for t in confident if t.flips]
    num_noise = sum(t.noise_flips for t in confident)
    only_candidate = sum(not t.noise_flips for t in flipped)
    only_noise = sum(t.noise_flips and not t.flips for t in confident)
    ties = sum(t.flips for t in tokens) - len(flipped)
    if len(flipped) <= num_noise:
        outcome = Outcome.PASS
    else:
        p = sign_test_p(only_candidate, only_noise)
        outcome = Outcome.FAIL if p <= policy.alpha else Outcome.INCONCLUSIVE
    return Ruling(
        outcome=outcome,
        message=f"{len(flipped)} confident flips of the first choice (A/A {num_noise}), {ties} at ties.",
        advice=""
        if outcome is Outcome.PASS
        else "A confident flip is another answer; the positions are listed below.",
        measurements=(
            Measurement(
                name=f"confident flips, {what}",
                unit="tokens",
                estimate=float(len(flipped)),
                margin=float(num_noise),
                n=len(confident),
            ),
        ),
        details=tuple(
            f"{t.item} token {t.position}: the baseline's first choice leads by {t.gap:.3f} nats"
            for t in flipped
            if not t.noise_flips
        ),
    )
