"""Rotary position embedding with YaRN frequencies, pairs interleaved; the target has none, its drafter does."""

import math

import torch
from torch import Tensor

from specialized_path.reference.rounding import round_to


def yarn_inv_freq(
    dim: int,
    *,
    theta: float,
    factor: float = 1.0,
    original_max_position: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
) -> Tensor:
    """Angular frequencies of the dim/2 pairs: fast pairs as trained, slow ones divided by `factor`, a ramp between.

    A pair that turns at least `beta_fast` times over the trained length stays; one that turns at most
    `beta_slow` times is interpolated.

    Args:
        dim: rotated channels, even.
        theta: base of the frequencies.
        factor: context extension; 1 gives plain rotary frequencies.
        original_max_position: trained length, tokens.
        beta_fast: turns.
        beta_slow: turns.

    Returns:
        [dim/2] float64, radians a token.

    Source: Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models" (section 3.2, the
    ramp's ends rounded outwards to whole pairs as in its published code).
    """
    freqs = theta ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)

    def pair_of(turns: float) -> float:
        return dim * math.log(original_max_position / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(pair_of(beta_fast)), 0)
    high = min(math.ceil(pair_of(beta_slow)), dim - 1)
    pairs = torch.arange(dim // 2, dtype=torch.float64)
    interpolated = ((pairs - low) / max(high - low, 1e-3)).clamp(0, 1)
    return freqs * (1 - interpolated) + freqs / factor * interpolated


def yarn_mscale(factor: float, mscale: float = 1.0) -> float:
    """YaRN's growth of attention logits with the extension: `1 + 0.1 * mscale * ln(factor)`, 1 without extension.

    Source: Peng et al., "YaRN" (section 3.3); the weight `mscale` is DeepSeek-V2's.
    """
    return 1.0 if factor <= 1 else 1.0 + 0.1 * mscale * math.log(factor)


def rotate_interleaved(
    x: Tensor,
    positions: Tensor,
    inv_freq: Tensor,
    *,
    mscale: float = 1.0,
    acc_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Channels 2i and 2i+1 turn by `position * inv_freq[i]`; the result is rounded once.

    Angles are computed in float64: a float32 product of a position of a million is off by 0.03 radians.

    Args:
        x: [..., dim], its type is the one rounded to.
        positions: integers that broadcast against `x.shape[:-1]`.
        inv_freq: [dim/2], radians a token.
        mscale: factor on the result.
        acc_dtype: type of the products.

    Returns:
        The shape and type of `x`.

    Source: Su et al., "RoFormer" (the interleaved form).
    """
    angles = positions.double().unsqueeze(-1) * inv_freq.double()
    cos, sin = (mscale * angles.cos()).to(acc_dtype), (mscale * angles.sin()).to(acc_dtype)
    even, odd = x.to(acc_dtype).unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1)
    return round_to(turned.flatten(-2), x.dtype)
