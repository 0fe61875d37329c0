"""Kullback-Leibler divergence of two distributions of which only the most likely tokens are known."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log

TOP = 20
"""Most likely tokens that a list holds; a further entry (the token that was forced) may follow."""
SMALLEST_MASS = 1e-9
"""Rounding of single-precision log probabilities leaves tails below this meaningless."""


def truncated_kl(
    p_ids: Sequence[int], p_logprobs: Sequence[float], q_ids: Sequence[int], q_logprobs: Sequence[float]
) -> float:
    """A lower bound, in nats, of KL(P || Q), exact when both lists hold the same tokens and one more.

    Two bounds are taken and the larger returned. The first merges everything outside the tokens common to
    both lists into one tail bucket (data-processing inequality). The second keeps every token of P's list
    and gives those that Q does not list the most that they can have: Q's 20th probability, or Q's whole
    tail. The first alone would call two disjoint lists equal.

    Args:
        p_ids: Token ids of the reference, with `p_logprobs` in natural logarithms.
        p_logprobs: Their log probabilities, each <= 0.
        q_ids: Token ids of the other.
        q_logprobs: Their log probabilities.

    Raises:
        ValueError: An empty list, or ids and log probabilities of unequal length.
    """
    if not p_ids or not q_ids or len(p_ids) != len(p_logprobs) or len(q_ids) != len(q_logprobs):
        raise ValueError("lists must not be empty, and ids and log probabilities must match")
    p = dict(zip(p_ids, map(exp, p_logprobs), strict=True))
    q = dict(zip(q_ids, map(exp, q_logprobs), strict=True))
    common = p.keys() & q.keys()
    shared = sum(p[t] * log(p[t] / max(q[t], SMALLEST_MASS**2)) for t in common if p[t] > 0)
    merged = shared + _term(1 - sum(p[t] for t in common), 1 - sum(q[t] for t in common))
    q_tail = max(1 - sum(q.values()), SMALLEST_MASS)
    most = min(sorted(q.values(), reverse=True)[min(len(q), TOP) - 1], q_tail)
    unlisted = sum(_term(p[t], most) for t in p.keys() - common)
    bounded = shared + unlisted + _term(1 - sum(p.values()), 1 - sum(q[t] for t in common))
    return max(merged, bounded, 0.0)


def _term(p: float, q: float) -> float:
    """p log(p / q) of one bucket; 0 for a bucket that rounding has emptied."""
    return p * log(p / max(q, SMALLEST_MASS)) if p > SMALLEST_MASS else 0.0
