"""OC-3: a projection sums wide and rounds once; the fused KDA projection is one such product, sliced."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear as wide_linear

from specialized_path.reference.rounding import round_to


def linear(
    x: Tensor,
    weight: Tensor,
    *,
    acc_dtype: torch.dtype = torch.float32,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """`x @ weight.T` summed in `acc_dtype` and rounded once.

    Args:
        x: [..., K].
        weight: [N, K], row = output feature.
        acc_dtype: type of products and sums.
        out_dtype: type rounded to; None means `x.dtype`.

    Returns:
        [..., N].
    """
    wide = wide_linear(x.to(acc_dtype), weight.to(acc_dtype))
    return round_to(wide, x.dtype if out_dtype is None else out_dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class KdaProjection:
    """The slices of one rank's fused KDA input projection, H local heads of K channels."""

    qkv: Tensor
    """[..., 3*H*K], raw queries, keys and values, in this order: the input of the short convolution."""
    gate: Tensor
    """[..., H*K], input of the sigmoid output gate."""
    f_a: Tensor
    """[..., R], low-rank input of the decay gate, the same on every rank."""
    b: Tensor
    """[..., H], logit of beta."""


def kda_input_projection(
    x: Tensor,
    w_in: Tensor,
    *,
    num_heads: int,
    head_dim: int,
    gate_rank: int | None = None,
    acc_dtype: torch.dtype = torch.float32,
) -> KdaProjection:
    """The fused projection `q | k | v | gate | f_a | b | padding`, rounded once; padding rows are ignored.

    Args:
        x: [..., D].
        w_in: [N, D] with N >= 4*H*K + R + H; rows beyond are padding and may hold anything.
        num_heads: local heads H.
        head_dim: channels of a head K.
        gate_rank: rows R of the decay gate's low-rank factor; None means `head_dim`.
        acc_dtype: type of the sums.

    Returns:
        The slices, in `x.dtype`.

    Raises:
        ValueError: `w_in` has too few rows.

    Source: Kimi team, "Kimi Linear" (KDA); the full-rank output gate is Kimi K3's.
    """
    width, rank = num_heads * head_dim, head_dim if gate_rank is None else gate_rank
    sizes = (3 * width, width, rank, num_heads)
    if w_in.shape[0] < sum(sizes):
        raise ValueError(f"w_in rows: got {w_in.shape[0]}, expected at least {sum(sizes)}")
    y = linear(x, w_in[: sum(sizes)], acc_dtype=acc_dtype)
    qkv, gate, f_a, b = y.split(sizes, dim=-1)
    return KdaProjection(qkv=qkv, gate=gate, f_a=f_a, b=b)
