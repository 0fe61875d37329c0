"""Exact tests on counts: McNemar, the sign test and Fisher's test."""

from __future__ import annotations

from math import comb


def mcnemar_p(b: int, c: int) -> float:
    """Two-sided exact p value that two paired proportions are equal.

    Args:
        b: Pairs where only the reference succeeded.
        c: Pairs where only the other succeeded.

    Returns:
        2 min(P(Bin(b+c, 1/2) <= min(b, c)), 1/2); 1 without discordant pairs. McNemar 1947, exact form.
    """
    _require_counts(b, c)
    return min(1.0, 2.0 * _lower_half_tail(min(b, c), b + c))


def sign_test_p(worse: int, better: int) -> float:
    """One-sided exact p value that `worse` is no likelier than `better` among the pairs that differ.

    Five worse pairs and no better one give 1/32.
    """
    _require_counts(worse, better)
    return _lower_half_tail(better, worse + better)


def fisher_p(hits: int, n: int, reference_hits: int, reference_n: int) -> float:
    """One-sided exact p value that the rate of `hits` is no higher than the reference's (Fisher 1935)."""
    _require_counts(hits, n, reference_hits, reference_n)
    if hits > n or reference_hits > reference_n:
        raise ValueError("more hits than trials")
    total, total_hits = n + reference_n, hits + reference_hits
    ways = sum(
        comb(total_hits, k) * comb(total - total_hits, n - k) for k in range(hits, min(n, total_hits) + 1)
    )
    return ways / comb(total, n)


def _lower_half_tail(k: int, n: int) -> float:
    """P(Bin(n, 1/2) <= k)."""
    return sum(comb(n, i) for i in range(k + 1)) / (1 << n)


def _require_counts(*counts: int) -> None:
    if any(count < 0 for count in counts):
        raise ValueError(f"counts must not be negative: {counts}")
