"""Whether an arm is shown to be no slower than another: paired blocks, beside an A/A that says whether they count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

from harness.model.words import Outcome
from harness.stats.margins import decide_below, n_to_resolve
from harness.stats.paired_ratio import PairedRatio, needed_pairs, paired_log_ratio, sign_flip_p

MAX_DROPPED_SHARE = 0.25
"""Of a cell's blocks, how many the rules may drop before the rest shows nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedVerdict:
    """What the blocks of a cell show, with the numbers."""

    outcome: Outcome
    message: str
    needed: int | None
    """Blocks in all that would decide it, with 80 % power where the measured noise is the true one; None where it is
    decided, or more would not help."""
    timing: PairedRatio
    noise: PairedRatio | None


def ratio_text(ratio: PairedRatio) -> str:
    """The estimate, its interval, and the blocks behind it."""
    return f"{ratio.estimate:.4f} ({ratio.ci_low:.4f} to {ratio.ci_high:.4f}, {ratio.n} blocks)"


def judge_pairs(
    baseline: Sequence[float],
    candidate: Sequence[float],
    again: Sequence[float],
    *,
    margin: float,
    alpha: float,
) -> PairedVerdict:
    """The A/A decides first whether anything can be said; then Student's interval and the exact sign-flip test.

    Args:
        baseline: A positive time a block.
        candidate: The same in the same order.
        again: The second baseline's; empty: there is no A/A, and nothing is decided.
        margin: How much more time the candidate may take, as a ratio minus one; also how quiet the A/A must be.
        alpha: One-sided level.

    Raises:
        ValueError: fewer than two blocks, unequal lengths, or a time that is not positive and finite.
    """
    timing = paired_log_ratio(baseline, candidate, alpha=alpha)
    noise = paired_log_ratio(baseline, again, alpha=alpha) if again else None
    outcome, message, needed = _decide(timing, noise, margin, alpha)
    return PairedVerdict(outcome=outcome, message=message, needed=needed, timing=timing, noise=noise)


def _decide(
    timing: PairedRatio, noise: PairedRatio | None, margin: float, alpha: float
) -> tuple[Outcome, str, int | None]:
    limit = 1 + margin
    if noise is None:
        text = f"Ratio {ratio_text(timing)}; there is no A/A to hold it against."
        return Outcome.INCONCLUSIVE, text, None
    half_width = (noise.ci_high - noise.ci_low) / 2
    if noise.ci_low > limit or noise.ci_high < 1 / limit:
        text = f"The A/A is biased: two baselines differ by {ratio_text(noise)}."
        return Outcome.INCONCLUSIVE, text, None
    if half_width > margin:
        text = f"The A/A is noisy: {ratio_text(noise)}, half its interval exceeds {margin:.1%}."
        return Outcome.INCONCLUSIVE, text, n_to_resolve(noise.n, half_width, margin)
    outcome = decide_below(timing.ci_low, timing.ci_high, limit)
    p = sign_flip_p([r - log(limit) for r in timing.log_ratios])
    if outcome is Outcome.PASS and p > alpha:
        outcome = Outcome.INCONCLUSIVE
    text = (
        f"Ratio {ratio_text(timing)}, limit {limit:.3f}; exact sign-flip p {p:.3f}; A/A {noise.estimate:.4f}."
    )
    distance = abs(log(limit) - log(timing.estimate))
    if outcome is not Outcome.INCONCLUSIVE or distance == 0:
        return outcome, text, None
    return outcome, text, max(needed_pairs(timing.sd, distance, alpha=alpha), timing.n + 1)
