"""Distribution-free bounds of a quantile from order statistics."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import ceil, log


def sample_quantile(values: Sequence[float], q: float) -> float:
    """The smallest value with at least a share `q` of the sample at or below it; the maximum when n < 1/(1-q)."""
    _require(values, q)
    return sorted(values)[max(ceil(q * len(values) - 1e-9), 1) - 1]


def quantile_lower_bound(values: Sequence[float], q: float, *, alpha: float) -> float | None:
    """A value that the true `q` quantile is not below, with confidence 1 - `alpha`; None when n is too small.

    The r-th smallest value exceeds the quantile only if fewer than r of n fall at or below it, so r is the
    largest rank with P(Bin(n, q) < r) <= alpha.
    """
    _require(values, q)
    n = len(values)
    rank = bisect_left(range(n), True, key=lambda k: _binomial_cdf(k, n, q) > alpha)
    return sorted(values)[rank - 1] if rank >= 1 else None


def quantile_upper_bound(values: Sequence[float], q: float, *, alpha: float) -> float | None:
    """A value that the true `q` quantile does not exceed, with confidence 1 - `alpha`; None when n is too small.

    The r-th smallest value is below the quantile only if at least r of n fall below it, so r is the smallest
    rank with P(Bin(n, q) >= r) <= alpha.
    """
    _require(values, q)
    n = len(values)
    rank = bisect_left(range(n), True, key=lambda k: 1 - _binomial_cdf(k, n, q) <= alpha) + 1
    return sorted(values)[rank - 1] if rank <= len(values) else None


def _binomial_cdf(k: int, n: int, q: float) -> float:
    """P(Bin(n, q) <= k)."""
    from scipy import special

    return float(special.bdtr(k, n, q))


def min_n_for_upper_bound(q: float, *, alpha: float) -> int:
    """The fewest values whose maximum bounds the `q` quantile: 59 for .95 and 299 for .99 at alpha .05."""
    if not 0 < q < 1:
        raise ValueError(f"q must lie in (0, 1), got {q}")
    return ceil(log(alpha) / log(q) - 1e-9)


def _require(values: Sequence[float], q: float) -> None:
    if not values:
        raise ValueError("no values")
    if not 0 < q < 1:
        raise ValueError(f"q must lie in (0, 1), got {q}")
