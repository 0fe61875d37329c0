"""OC-14: the router picks the largest biased scores, the lower id on a tie, and weighs without bias."""

import torch
from torch import Tensor

from specialized_path.reference.oc03_projection import linear
from specialized_path.reference.rounding import round_to


def router_logits(x: Tensor, w_gate: Tensor, *, acc_dtype: torch.dtype = torch.float32) -> Tensor:
    """Expert logits, not rounded; row shards of `w_gate` give shards that concatenate in rank order.

    Args:
        x: [B, D].
        w_gate: [E, D] or a row shard.
        acc_dtype: type of the sums and of the result.

    Returns:
        [B, E] in `acc_dtype`.
    """
    return linear(x, w_gate, acc_dtype=acc_dtype, out_dtype=acc_dtype)


def select_experts(
    logits: Tensor,
    correction_bias: Tensor,
    *,
    top_k: int,
    routed_scaling_factor: float = 1.0,
    denominator_eps: float = 1e-20,
    weight_dtype: torch.dtype = torch.bfloat16,
    acc_dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """The `top_k` largest of `sigmoid(logit) + bias`, largest first, and the renormalised sigmoids of them.

    A tie goes to the lower id; a NaN key ranks behind every other. The bias moves the choice, never a weight.

    Args:
        logits: [B, E].
        correction_bias: [E].
        top_k: experts a token.
        routed_scaling_factor: factor on the weights.
        denominator_eps: added to the sum of the chosen sigmoids.
        weight_dtype: type the weights are rounded to.
        acc_dtype: type of scores, keys and weights before rounding.

    Returns:
        ids [B, top_k] int32 and weights [B, top_k] in `weight_dtype`, both in descending order of the key.

    Source: DeepSeek-AI, "DeepSeek-V3" (sigmoid scores, auxiliary-loss-free bias); Kimi K3 checkpoint
    configuration.
    """
    scores = torch.sigmoid(logits.to(acc_dtype))
    keys = scores + correction_bias.to(acc_dtype)
    order = torch.sort(-keys, dim=-1, stable=True).indices[:, :top_k]
    chosen = scores.gather(-1, order)
    weights = chosen / (chosen.sum(dim=-1, keepdim=True) + denominator_eps) * routed_scaling_factor
    return order.to(torch.int32), round_to(weights, weight_dtype)


def router(
    x: Tensor,
    w_gate: Tensor,
    correction_bias: Tensor,
    *,
    top_k: int,
    routed_scaling_factor: float = 1.0,
    denominator_eps: float = 1e-20,
    weight_dtype: torch.dtype | None = None,
    acc_dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """Logits and choice in one: `select_experts(router_logits(x))`.

    Args:
        x: [B, D].
        w_gate: [E, D].
        correction_bias: [E].
        top_k: experts a token.
        routed_scaling_factor: factor on the weights.
        denominator_eps: added to the sum of the chosen sigmoids.
        weight_dtype: type the weights are rounded to; None means `x.dtype`.
        acc_dtype: type of the arithmetic.

    Returns:
        ids [B, top_k] int32 and weights [B, top_k].
    """
    return select_experts(
        router_logits(x, w_gate, acc_dtype=acc_dtype),
        correction_bias,
        top_k=top_k,
        routed_scaling_factor=routed_scaling_factor,
        denominator_eps=denominator_eps,
        weight_dtype=x.dtype if weight_dtype is None else weight_dtype,
        acc_dtype=acc_dtype,
    )
