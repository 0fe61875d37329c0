"""What a feature's law on every arm comes to."""

from __future__ import annotations

from collections.abc import Sequence

from harness.checks.joins.ruling import Ruling, combine_rulings
from harness.checks.scope.feature_answers import FeatureLaw, Tried
from harness.model.finding import Measurement
from harness.model.policy import Policy
from harness.model.words import Outcome
from harness.stats.exact_tests import sign_test_p
from harness.stats.goodness_of_fit import fit_p_value

MIN_TRIES = 8.0
"""Expected breaches of a feature that is not there: none at all has a probability below e^-8."""
MIN_TRIES_A_LEVEL = 3.0
"""The same alone, and together: below e^-3, 5 %."""
FIT_ALPHA = 1e-4
"""Draws that their own distribution gives less often than this do not follow it. A run makes some ten such tests."""


def decide_law(
    law: FeatureLaw, off: tuple[Tried, Tried], candidate: Tried, levels: Sequence[Tried], policy: Policy
) -> Ruling:
    """Whether the law holds on the candidate, given that it holds with the switch off.

    Args:
        law: The feature's.
        off: The baseline's tries and the baseline again's.
        candidate: All of the candidate's tries.
        levels: The candidate's tries alone and together.
        policy: Margin and alpha of the differences.
    """
    broken_off = [line for tried in off for line in tried.breaches]
    if broken_off:
        return Ruling(
            outcome=Outcome.INCONCLUSIVE,
            message=f"With the switch off, {law.claim!r} is broken {len(broken_off)} times: the fault is the engine's "
            "own, or the case's.",
            details=tuple(broken_off),
        )
    if candidate.breaches:
        return Ruling(
            outcome=Outcome.FAIL,
            message=f"{law.claim}: broken {len(candidate.breaches)} times, never with the switch off.",
            advice="The engine's own sampler and output processing must see every step's logits, row by row.",
            details=candidate.breaches,
        )
    return combine_rulings(
        [
            _decide_power(law, off, levels, candidate),
            *_decide_fits(off, candidate),
            _decide_differences(off, candidate, policy),
        ]
    )


def _decide_power(
    law: FeatureLaw, off: tuple[Tried, Tried], levels: Sequence[Tried], candidate: Tried
) -> Ruling:
    """Whether answers without the feature would have broken the law, as expected from the answers themselves."""
    least, weakest_off = min(tried.num for tried in levels), min(tried.num for tried in off)
    measurement = Measurement(
        name=f"{law.feature}, expected breaches without it",
        unit="tokens or answers",
        estimate=candidate.num,
        margin=MIN_TRIES,
        n=max(1, int(candidate.num)),
    )
    weak = candidate.num < MIN_TRIES or least < MIN_TRIES_A_LEVEL or weakest_off < MIN_TRIES
    return Ruling(
        outcome=Outcome.INCONCLUSIVE if weak else Outcome.PASS,
        message=f"{law.claim}: not broken; a path without the feature would have done so about {candidate.num:.0f} "
        f"times ({least:.0f} at the weaker load, with the switch off {weakest_off:.0f}).",
        advice=f"Send more requests: {MIN_TRIES:.0f} are needed, {MIN_TRIES_A_LEVEL:.0f} at each load."
        if weak
        else "",
        measurements=(measurement,),
    )


def _decide_fits(off: tuple[Tried, Tried], candidate: Tried) -> list[Ruling]:
    """Draws follow the asked distributions, and some would not be taken for draws without the feature."""
    rulings = []
    for name, draws in candidate.draws.items():
        p = fit_p_value(draws)
        p_off = min(fit_p_value(tried.draws.get(name, ())) for tried in off)
        outcome, text = Outcome.PASS, f"{name}: {len(draws)} draws fit with p = {p:.2g}"
        if p_off < FIT_ALPHA:
            outcome, text = Outcome.INCONCLUSIVE, f"{text}; with the switch off they do not (p = {p_off:.2g})"
        elif p < FIT_ALPHA:
            outcome, text = Outcome.FAIL, f"{text}: they follow another distribution than the one asked for"
        rulings.append(Ruling(outcome=outcome, message=f"{text}."))
    without = {name: fit_p_value(draws) for name, draws in candidate.others.items()}
    if without and min(without.values()) >= FIT_ALPHA:
        text = ", ".join(f"{name} p = {p:.2g}" for name, p in without.items())
        message = f"Without the feature they would fit as well ({text}): too few draws to tell."
        rulings.append(Ruling(outcome=Outcome.INCONCLUSIVE, message=message, advice="Send more requests."))
    return rulings


def _decide_differences(off: tuple[Tried, Tried], candidate: Tried, policy: Policy) -> Ruling:
    """Pairs that should be equal and are not, against those of the arms with the switch off."""
    if not candidate.compared:
        return Ruling(outcome=Outcome.PASS, message="")
    base, again = (set(t.differences) for t in off)
    own = set(candidate.differences)
    worse, better = len(own - base), len(base - own)
    excess = (len(own) - max(len(base), len(again))) / candidate.compared
    if excess <= policy.greedy_margin:
        outcome = Outcome.PASS
    else:
        outcome = Outcome.FAIL if sign_test_p(worse, better) <= policy.alpha else Outcome.INCONCLUSIVE
    return Ruling(
        outcome=outcome,
        message=f"{len(own)} of {candidate.compared} pairs that should agree differ (baseline {len(base)}, "
        f"A/A {len(again)}).",
        details=()
        if outcome is Outcome.PASS
        else tuple(f"{name}: {candidate.differences[name]}" for name in sorted(own - base)),
    )
