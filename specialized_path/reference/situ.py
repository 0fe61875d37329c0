"""SiTU is the saturating gated activation of every Kimi K3 MLP; this is it, and the MLP around it."""

import torch
from torch import Tensor

from specialized_path.reference.oc03_projection import linear
from specialized_path.reference.rounding import round_to


def situ(
    gate: Tensor,
    up: Tensor,
    *,
    beta: float = 4.0,
    linear_beta: float = 25.0,
    acc_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """`beta*tanh(gate/beta) * sigmoid(gate) * linear_beta*tanh(up/linear_beta)`, elementwise, not rounded.

    Args:
        gate: any shape; +-infinity is legal and saturates.
        up: the shape of `gate`.
        beta: bound of the gate branch, dimensionless.
        linear_beta: bound of the linear branch, dimensionless.
        acc_dtype: type of the arithmetic and of the result.

    Returns:
        The shape of `gate` in `acc_dtype`; magnitude at most `beta * linear_beta`.

    Source: Kimi K3 checkpoint configuration (SiTU activation, beta 4, linear beta 25).
    """
    g, u = gate.to(acc_dtype), up.to(acc_dtype)
    bounded_gate = beta * torch.tanh(g / beta) * torch.sigmoid(g)
    return bounded_gate * (linear_beta * torch.tanh(u / linear_beta))


def gated_mlp_partial(
    x: Tensor,
    w_gate_up: Tensor,
    w_down: Tensor,
    *,
    beta: float = 4.0,
    linear_beta: float = 25.0,
    acc_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """One rank's share of a gated MLP: rounded after gate-up, after the activation and after down.

    Args:
        x: [..., D]; its type is the one rounded to.
        w_gate_up: [2*I, D], gate rows first.
        w_down: [D_out, I], the columns of this rank.
        beta: see `situ`.
        linear_beta: see `situ`.
        acc_dtype: type of the sums and of the activation.

    Returns:
        [..., D_out] in `x.dtype`; the ranks' shares add up to the MLP (`rank_order_sum`).

    Raises:
        ValueError: `w_gate_up` has not twice as many rows as `w_down` has columns.
    """
    if w_gate_up.shape[0] != 2 * w_down.shape[1]:
        raise ValueError(f"w_gate_up rows: got {w_gate_up.shape[0]}, expected {2 * w_down.shape[1]}")
    gate, up = linear(x, w_gate_up, acc_dtype=acc_dtype).chunk(2, dim=-1)
    hidden = situ(gate, up, beta=beta, linear_beta=linear_beta, acc_dtype=acc_dtype)
    return linear(round_to(hidden, x.dtype), w_down, acc_dtype=acc_dtype)
