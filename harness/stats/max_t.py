"""One alarm over many cells: whether any of them is above zero, with the error of all of them together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.stats.paired_ratio import EXACT_FLIPS_UP_TO


def max_t_p_values(
    values: Sequence[Sequence[float]], *, num_flips: int = 4_999, seed: int = 0
) -> tuple[float, ...]:
    """One-sided p value of each cell that its values are symmetric about 0, adjusted for all the cells.

    Westfall and Young's single step: signs are flipped block by block with the same flips in every cell, and each
    cell is compared with the largest statistic of any. The statistic is sum(x) / sqrt(sum(x^2)): it rises with
    Student's t, and flips leave its root alone, so that cells of unequal noise and length are comparable.

    Args:
        values: One row a cell, one value a block; rows may have different lengths.
        num_flips: Sign patterns drawn where there are more than 2^`EXACT_FLIPS_UP_TO`.
        seed: Of the drawn patterns.

    Raises:
        ValueError: No cell, an empty one, or a value that is not finite.
    """
    if not values or not all(values):
        raise ValueError("need one or more cells with one or more values each")
    table = np.zeros((len(values), max(map(len, values))))
    for row, cell in zip(table, values, strict=True):
        row[: len(cell)] = cell
    if not np.isfinite(table).all():
        raise ValueError("values must be finite")
    scale = np.sqrt((table**2).sum(axis=1, keepdims=True))
    unit = np.divide(table, scale, out=np.zeros_like(table), where=scale > 0)
    n = table.shape[1]
    if n <= EXACT_FLIPS_UP_TO:
        signs = 1 - 2 * (np.arange(2**n)[:, None] >> np.arange(n) & 1)
    else:
        drawn = 1 - 2 * np.random.default_rng(seed).integers(0, 2, size=(num_flips, n))
        signs = np.vstack([np.ones((1, n), dtype=drawn.dtype), drawn])
    largest = np.sort(np.max(signs @ unit.T, axis=1))
    reached = len(largest) - np.searchsorted(largest, unit.sum(axis=1) - 1e-12, side="left")
    return tuple(float(count / len(largest)) for count in reached)
