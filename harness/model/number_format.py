"""How fine the formats of numbers are that a model computes and stores in."""

from __future__ import annotations

from collections.abc import Iterable

EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Unit in the last place of 1 in each format that a comparison of states understands, by PyTorch's name."""
SINGLE = "float32"


def coarsest(formats: Iterable[str]) -> str:
    """The format with the largest unit in the last place; one that is not understood counts as coarser than any."""
    return max(sorted(formats), key=lambda name: EPSILON.get(name, float("inf")), default=SINGLE)
