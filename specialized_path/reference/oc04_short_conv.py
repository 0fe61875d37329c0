"""OC-4: each channel is filtered over its last inputs, then SiLU; the window moves on by one."""

import torch
from torch import Tensor

from specialized_path.reference.rounding import round_to


def causal_conv(
    x: Tensor, weight: Tensor, window: Tensor, *, acc_dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """SiLU of the causal filter over `window` followed by `x`, and the two joined; pure.

    Args:
        x: [B, T, C], new raw inputs, oldest first.
        weight: [C, W], tap 0 multiplies the oldest input.
        window: [B, C, W-1], the inputs before `x`, oldest first; zeros for a fresh request.
        acc_dtype: type of the sum and of SiLU.

    Returns:
        Outputs [B, T, C] in `acc_dtype`, and the joined inputs [B, C, W-1+T] in the window's type. The window
        after t tokens is columns `t ... t+W-2` of the latter.
    """
    joined = torch.cat([window.to(acc_dtype), x.transpose(1, 2).to(acc_dtype)], dim=2)
    taps = joined.unfold(2, weight.shape[1], 1)
    z = (taps * weight.to(acc_dtype).unsqueeze(1)).sum(dim=-1)
    stored = torch.cat([window, round_to(x, window.dtype).transpose(1, 2)], dim=2)
    return (z * torch.sigmoid(z)).transpose(1, 2), stored


def short_conv(
    x: Tensor,
    weight: Tensor,
    conv_state: Tensor,
    slot_indices: Tensor,
    *,
    acc_dtype: torch.dtype = torch.float32,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """One token a request through the short convolution; its window in the pool advances in place.

    The window is the first W-1 columns of the slot, raw inputs before activation, oldest first. Further
    columns (room for draft tokens) are neither read nor written.

    Args:
        x: [B, C], raw projection output.
        weight: [C, W]; no bias.
        conv_state: [slots, C, width >= W-1], any strides. Written in place at the live slots only.
        slot_indices: [B] int32 or int64, any strides; values <= 0 are null: output zero, nothing written.
            Live slots must differ.
        acc_dtype: type of the sum and of SiLU.
        out_dtype: type rounded to; None means `acc_dtype`, that is no rounding (a path that rounds here
            passes the type of `x`).

    Returns:
        [B, C].

    Raises:
        ValueError: the pool's window is narrower than W-1.

    Source: Kimi team, "Kimi Linear" (short convolution of width 4, SiLU).
    """
    taps = weight.shape[1] - 1
    if conv_state.shape[2] < taps:
        raise ValueError(f"conv_state width: got {conv_state.shape[2]}, expected at least {taps}")
    slots = slot_indices.long()
    live = slots > 0
    written = slots[live]
    out, joined = causal_conv(
        x[live].unsqueeze(1), weight, conv_state[written, :, :taps], acc_dtype=acc_dtype
    )
    conv_state[written, :, :taps] = joined[:, :, 1:]
    y = torch.zeros_like(x, dtype=acc_dtype)
    y[live] = out[:, 0]
    return y if out_dtype is None else round_to(y, out_dtype)
