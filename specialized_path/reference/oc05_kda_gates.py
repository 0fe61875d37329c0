"""OC-5: KDA's decay is bounded below and differs by key channel; its write strength is a sigmoid by head."""

import torch
from torch import Tensor

from specialized_path.reference.oc03_projection import linear


def kda_decay(
    raw_g: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    *,
    lower_bound: float = -5.0,
    acc_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """`lower_bound * sigmoid(exp(A_log) * (raw_g + dt_bias))`, the log of the decay, in (lower_bound, 0).

    Args:
        raw_g: [..., H, K].
        A_log: [H].
        dt_bias: [H*K] or [H, K].
        lower_bound: the most negative log decay, natural log a token.
        acc_dtype: type of the arithmetic and of the result.

    Returns:
        g [..., H, K] in `acc_dtype`; at saturation the bounds themselves are reached.

    Source: Kimi team, "Kimi Linear"; the bound is from the Kimi K3 checkpoint configuration.
    """
    num_heads, head_dim = raw_g.shape[-2:]
    bias = dt_bias.to(acc_dtype).reshape(num_heads, head_dim)
    rate = A_log.to(acc_dtype).exp().unsqueeze(-1)
    return lower_bound * torch.sigmoid(rate * (raw_g.to(acc_dtype) + bias))


def kda_gates(
    f_a: Tensor,
    b: Tensor,
    w_f_b: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    *,
    lower_bound: float = -5.0,
    acc_dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """The log decay `g` by key channel and the write strength `beta` by head.

    The low-rank product is rounded once to the type of `f_a` before the gate. The gate is steep there (up to
    `1.25 * exp(A_log)` for the default bound): a kernel is compared with `kda_decay` on its own `raw_g`.

    Args:
        f_a: [..., R].
        b: [..., H].
        w_f_b: [H*K, R].
        A_log: [H].
        dt_bias: [H*K] or [H, K].
        lower_bound: the most negative log decay, natural log a token.
        acc_dtype: type of the arithmetic and of the results.

    Returns:
        g [..., H, K] and beta [..., H] in (0, 1), both in `acc_dtype`.

    Source: Kimi team, "Kimi Linear"; the bound is from the Kimi K3 checkpoint configuration.
    """
    raw_g = linear(f_a, w_f_b, acc_dtype=acc_dtype).unflatten(-1, (A_log.numel(), -1))
    g = kda_decay(raw_g, A_log, dt_bias, lower_bound=lower_bound, acc_dtype=acc_dtype)
    return g, torch.sigmoid(b.to(acc_dtype))
