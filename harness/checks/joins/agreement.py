"""Paired non-inferiority of agreement: candidate against baseline, with the A/A as the reference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from harness.checks.joins.ruling import Ruling
from harness.model.finding import Measurement
from harness.model.words import Outcome
from harness.stats.margins import decide_above
from harness.stats.paired_proportions import min_n_without_discordance, needed_n, tango_interval

MIN_NOISE_AGREEMENT = 0.8
"""Below this share of plainly equal A/A answers, agreement is no yardstick for anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementCounts:
    """How many of the units agree with the baseline, on the candidate and on the baseline again."""

    n: int
    candidate: int
    noise: int
    only_noise: int
    """Units on which only the baseline again agrees."""
    only_candidate: int
    noise_plainly: int
    """Units on which the baseline again agrees without any allowance for ties."""

    @classmethod
    def of(cls, units: Iterable[tuple[bool, bool, bool]]) -> Self:
        """Counts from (candidate agrees, baseline again agrees, baseline again agrees plainly) a unit."""
        rows = list(units)
        return cls(
            n=len(rows),
            candidate=sum(c for c, _, _ in rows),
            noise=sum(a for _, a, _ in rows),
            only_noise=sum(a and not c for c, a, _ in rows),
            only_candidate=sum(c and not a for c, a, _ in rows),
            noise_plainly=sum(plain for _, _, plain in rows),
        )


def decide_agreement(counts: AgreementCounts, what: str, margin: float, alpha: float) -> Ruling:
    """Whether the candidate agrees no more than `margin` less often than the baseline again does.

    Tango's score interval of the difference; the lower bound must reach minus the margin.
    """
    fewest = min_n_without_discordance(margin, alpha=alpha)
    if counts.n == 0:
        return Ruling(
            outcome=Outcome.INCONCLUSIVE,
            message=f"No distinct answers of {what} could be compared; {fewest} are needed.",
        )
    difference = tango_interval(counts.n, counts.only_noise, counts.only_candidate, alpha=alpha)
    outcome = decide_above(difference.ci_low, difference.ci_high, -margin)
    message = (
        f"{counts.candidate} of {counts.n} distinct answers of {what} agree with the baseline (A/A {counts.noise}): "
        f"difference {difference.estimate:+.1%}, interval {difference.ci_low:+.1%} to {difference.ci_high:+.1%}, "
        f"margin -{margin:.0%}."
    )
    advice = ""
    if counts.noise_plainly < MIN_NOISE_AGREEMENT * counts.n:
        outcome = Outcome.INCONCLUSIVE
        message += (
            f" The A/A itself agrees in only {counts.noise_plainly} of {counts.n}, which judges nothing."
        )
        advice = "Make the baseline repeatable first: fixed seeds, one batch composition, a quiet machine."
    elif outcome is Outcome.INCONCLUSIVE:
        discordance = (counts.only_noise + counts.only_candidate) / counts.n
        wanted = max(needed_n(discordance, margin, alpha=alpha), counts.n + 1)
        advice = f"Collect about {wanted} distinct answers instead of {counts.n}."
    elif outcome is Outcome.FAIL:
        advice = (
            "Compare the first token that differs with the reference; COR001 says at which batch it starts."
        )
    return Ruling(
        outcome=outcome,
        message=message,
        advice=advice,
        measurements=(
            Measurement(
                name=f"agreement difference, {what}",
                unit="share",
                estimate=difference.estimate,
                ci_low=difference.ci_low,
                ci_high=difference.ci_high,
                margin=-margin,
                n=counts.n,
            ),
        ),
    )
