"""OC-6: a KDA token decays the state by channel, corrects what the key recalls, and reads with the query."""

import torch
from torch import Tensor

from specialized_path.reference.norm import rms_norm
from specialized_path.reference.rounding import round_to


def delta_rule_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    state: Tensor,
    *,
    l2_eps: float = 1e-6,
    scale: float | None = None,
    acc_dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """One token of the gated delta rule on explicit states; pure.

    With q and k divided by their L2 norms and q scaled: S <- S diag(exp g); u = beta (v - S k); S <- S + u
    k^T; o = S q.

    Args:
        q: [B, H, K], before normalisation.
        k: [B, H, K], before normalisation.
        v: [B, H, V].
        g: [B, H, K], log decay, natural log.
        beta: [B, H], write strength.
        state: [B, H, V, K].
        l2_eps: added to the sums of squares of q and k.
        scale: factor on q; None means K^-1/2.
        acc_dtype: type of the arithmetic and of the results.

    Returns:
        o [B, H, V] and the new state [B, H, V, K], both in `acc_dtype`.

    Source: Kimi team, "Kimi Linear" (KDA); Yang, Kautz and Hatamizadeh, "Gated Delta Networks".
    """
    q, k, v = q.to(acc_dtype), k.to(acc_dtype), v.to(acc_dtype)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + l2_eps) * scale
    k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + l2_eps)
    decayed = state.to(acc_dtype) * g.to(acc_dtype).exp().unsqueeze(-2)
    recalled = (decayed @ k.unsqueeze(-1)).squeeze(-1)
    u = beta.to(acc_dtype).unsqueeze(-1) * (v - recalled)
    new_state = torch.addcmul(decayed, u.unsqueeze(-1), k.unsqueeze(-2))
    return (new_state @ q.unsqueeze(-1)).squeeze(-1), new_state


def gated_rms_norm(
    o: Tensor,
    gate: Tensor,
    o_norm_weight: Tensor,
    *,
    eps: float = 1e-5,
    acc_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """RMS norm of each head's output times the sigmoid of its gate, rounded once to the type of `gate`.

    Args:
        o: [..., H, V].
        gate: [..., H*V] or [..., H, V]; its type is the one rounded to.
        o_norm_weight: [V], shared by the heads.
        eps: added to the mean square over V.
        acc_dtype: type of the arithmetic.

    Returns:
        [..., H*V] in `gate.dtype`.
    """
    normed = rms_norm(o, o_norm_weight, eps=eps, acc_dtype=acc_dtype)
    gated = normed * torch.sigmoid(gate.to(acc_dtype).reshape(normed.shape))
    return round_to(gated.flatten(-2), gate.dtype)


def kda_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    gate: Tensor,
    o_norm_weight: Tensor,
    state: Tensor,
    slot_indices: Tensor,
    *,
    l2_eps: float = 1e-6,
    norm_eps: float = 1e-5,
    scale: float | None = None,
    acc_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """One token a request through recurrence and gated output norm; its state in the pool advances in place.

    Args:
        q: [B, H, K], after the short convolution, before normalisation.
        k: [B, H, K], likewise.
        v: [B, H, V], after the short convolution.
        g: [B, H, K], log decay.
        beta: [B, H].
        gate: [B, H*V]; its type is the one rounded to.
        o_norm_weight: [V].
        state: [slots, H, V, K], any strides; stored in its own type. Written in place at the live slots only.
        slot_indices: [B] int32 or int64, any strides; values <= 0 are null: output zero, nothing written.
            Live slots must differ.
        l2_eps: of the L2 norms of q and k.
        norm_eps: of the output norm.
        scale: factor on q; None means K^-1/2.
        acc_dtype: type of the arithmetic.

    Returns:
        [B, H*V] in `gate.dtype`.

    Source: Kimi team, "Kimi Linear" (KDA).
    """
    slots = slot_indices.long()
    live = slots > 0
    written = slots[live]
    o, end = delta_rule_step(
        q[live],
        k[live],
        v[live],
        g[live],
        beta[live],
        state[written],
        l2_eps=l2_eps,
        scale=scale,
        acc_dtype=acc_dtype,
    )
    state[written] = round_to(end, state.dtype)
    y = torch.zeros_like(gate)
    y[live] = gated_rms_norm(o, gate[live], o_norm_weight, eps=norm_eps, acc_dtype=acc_dtype)
    return y
