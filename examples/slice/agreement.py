"""How far two arms' log probabilities lie apart, place by place of the same forced text."""

import math
from collections.abc import Sequence

Place = dict[str, float]
"""Log probability by token: the likeliest ones, and the forced one."""


def place_divergence(reference: Place, other: Place) -> float:
    """KL divergence in nats over the tokens that both report, each side's rest taken as one token.

    NaN when either side has a log probability that is not a number; infinity when no token is common.
    """
    common = reference.keys() & other.keys()
    if not common:
        return math.inf
    p = [math.exp(reference[token]) for token in common]
    q = [math.exp(other[token]) for token in common]
    rest_p, rest_q = max(1 - sum(p), 1e-12), max(1 - sum(q), 1e-12)
    pairs = [*zip(p, q, strict=True), (rest_p, rest_q)]
    return sum(a * math.log(a / b) for a, b in pairs if a > 0)


def divergences(reference: Sequence[Sequence[Place]], other: Sequence[Sequence[Place]]) -> list[float]:
    """Place by place, all requests in turn; raises ValueError when the texts differ in length."""
    return [
        place_divergence(p, q)
        for text, other_text in zip(reference, other, strict=True)
        for p, q in zip(text, other_text, strict=True)
    ]


def summary(values: Sequence[float]) -> dict[str, float]:
    """Mean, 99th percentile and maximum; not finite when any value is not."""
    if not all(map(math.isfinite, values)):
        return {"places": len(values), "mean": math.nan, "p99": math.nan, "max": math.nan}
    ordered = sorted(values)
    return {
        "places": len(ordered),
        "mean": sum(ordered) / len(ordered),
        "p99": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
        "max": ordered[-1],
    }
