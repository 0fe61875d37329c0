"""Adversarial values of the projections' contract, as data: activations and weights by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Change = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionCase:
    """A name and what it does to random activations [B, K] and weights [N, K]."""

    name: str
    change: Change


def random_inputs(num_rows: int, num_outputs: int, num_inputs: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Activations of about one and weights that keep them so, on the current GPU or the CPU."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    gen = torch.Generator(device).manual_seed(seed)
    x = torch.randn(num_rows, num_inputs, generator=gen, device=device)
    w = torch.randn(num_outputs, num_inputs, generator=gen, device=device) * num_inputs**-0.5
    return x.bfloat16(), w.bfloat16()


def _first_row_only(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone()
    x[1:] = 0
    return x, w


def _only_k(part: slice) -> Change:
    def change(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        kept = torch.zeros_like(x)
        kept[:, part] = x[:, part]
        return kept, w

    return change


def _alternating(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Neighbouring terms cancel but for the last bit of a weight."""
    signs = torch.ones_like(x)
    signs[:, 1::2] = -1
    pairs = w.clone()
    pairs[:, 1::2] = w[:, ::2]
    pairs[:, 1] += 0.0078125
    return signs, pairs


def _large_terms_cancel(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    x, w = x.clone(), w.clone()
    x[:, 0], x[:, -1] = 1024.0, -1024.0
    w[:, 0] = w[:, -1] = 3.0
    return x, w


def _infinite_weight_row(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    w = w.clone()
    w[3, 5] = float("inf")
    return x.abs() + 0.5, w


def _nan_activation_row(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone()
    x[-1, 7] = float("nan")
    return x, w


CASES = (
    ProjectionCase(name="random", change=lambda x, w: (x, w)),
    ProjectionCase(name="only the first row is not zero", change=_first_row_only),
    ProjectionCase(name="only the last of K", change=_only_k(slice(-1, None))),
    ProjectionCase(name="only the first of K", change=_only_k(slice(0, 1))),
    ProjectionCase(name="neighbouring terms cancel", change=_alternating),
    ProjectionCase(name="large terms cancel", change=_large_terms_cancel),
    ProjectionCase(name="an infinite weight", change=_infinite_weight_row),
    ProjectionCase(name="a row with NaN", change=_nan_activation_row),
    ProjectionCase(name="zero", change=lambda x, w: (torch.zeros_like(x), w)),
    ProjectionCase(name="denormal activations", change=lambda x, w: (x * 1e-39, w * 1e6)),
)
