"""A small recurrence with gates over four layers, in bfloat16, as two sets of kernels would compute it.

One rounds every projection, the other keeps them in single precision within a layer. Both round what leaves a layer,
and the cache row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float32]
HIDDEN, HEAD, LAYERS, STEPS = 192, 32, 4, 16
_WIDTHS = {"q": HEAD, "k": HEAD, "v": HEAD, "gate": HEAD, "beta": 1, "row": 48}


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What a request left behind after each step."""

    states: Numbers
    """[steps, layers, head, head] float32."""
    rows: Numbers
    """[steps, layers, row] in bfloat16's numbers."""


def to_bfloat16(numbers: Numbers) -> Numbers:
    """Rounded to nearest, ties to even, and back in float32."""
    bits = np.asarray(numbers, np.float32).view(np.uint32).astype(np.uint64)
    return ((((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16).astype(np.uint32)).view(np.float32)


def unrounded(numbers: Numbers) -> Numbers:
    """As they are."""
    return numbers


def serve(*, request: int, within: Callable[[Numbers], Numbers]) -> Served:
    """A request of its own inputs through the weights that all share; `within` rounds what stays inside a layer."""
    weights = np.random.default_rng(7)
    layers = [
        {name: _drawn(weights, width, HIDDEN) for name, width in _WIDTHS.items()}
        | {"out": _drawn(weights, HIDDEN, HEAD)}
        for _ in range(LAYERS)
    ]
    inputs = to_bfloat16(np.random.default_rng(request).normal(size=(STEPS, HIDDEN)))
    states = np.zeros((STEPS + 1, LAYERS, HEAD, HEAD), np.float32)
    rows = np.zeros((STEPS, LAYERS, _WIDTHS["row"]), np.float32)
    for step, hidden in enumerate(inputs):
        for index, layer in enumerate(layers):
            normed = to_bfloat16(hidden / np.sqrt((hidden * hidden).mean()))
            found = {name: within(layer[name] @ normed) for name in ("q", "k", "v", "gate", "beta")}
            states[step + 1, index] = _next_state(states[step, index], found)
            rows[step, index] = to_bfloat16(layer["row"] @ normed)
            read = within(found["q"] @ states[step + 1, index] / np.float32(np.sqrt(HEAD)))
            hidden = to_bfloat16(hidden + within(layer["out"] @ read))
    return Served(states=states[1:], rows=rows)


def _drawn(weights: np.random.Generator, rows: int, columns: int) -> Numbers:
    return to_bfloat16(weights.normal(size=(rows, columns)) / np.sqrt(columns))


def _next_state(state: Numbers, found: dict[str, Numbers]) -> Numbers:
    """The delta rule with a gate for each row of the state."""
    key = found["k"] / np.linalg.norm(found["k"])
    gate = np.exp(-0.1 * np.log1p(np.exp(found["gate"])))
    kept = gate[:, None] * state
    beta = 1 / (1 + np.exp(-found["beta"]))
    return np.asarray(kept + beta * np.outer(key, found["v"] - key @ kept), np.float32)
