"""MXFP4 weights in the order in which the kernels' lanes read them: packed once, when a checkpoint is loaded.

A tile is 16 weight rows. For each block of 64 of K it holds 16 bytes a lane, the word of one matrix instruction after
the other; behind all blocks of a tile come their scales, four bytes a lane group. Codes keep their four bits, so that
the packed weights are as large as the checkpoint's.

Lane `4 g + t` of a warp holds rows g and g + 8. Matrix instruction s of group q (32 of K) takes of them the four
columns `32 q + 8 t + 4 s ...`: an activation's eight neighbours in a group are one 16-byte load of lane t.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specialized_path.kernels.moe_experts.shape import BLOCK_K, GATED_ROWS, TILE_ROWS, ExpertShape
from specialized_path.reference.mxfp4 import GROUP_SIZE, Mxfp4Weight

LARGEST_SCALE = 192
"""E8M0 code of 2^65; larger ones do not fit the kernels' FP32 scale and are refused."""
SCALE_OFFSET = 62
"""What is added to a scale's code: the kernels' sums carry a factor 2^-62 beside it."""
MAGNITUDE_SHIFTS = (6, 3, 0, 9)
"""Where, in a half word, the three magnitude bits lie of the codes of registers 0 ... 3 of the matrix operand."""
SIGN_BITS = (15, 12, 14, 13)
"""Where their signs lie."""
_EXPERTS_AT_A_TIME = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedExperts:
    """One layer's routed experts on one rank."""

    gate_up: Tensor
    """[E, I/8, bytes of a tile] uint8; a tile is eight gate rows, then the eight up rows beside them."""
    down: Tensor
    """[E, L/16, bytes of a tile] uint8."""


def pack_experts(w1: Mxfp4Weight, w3: Mxfp4Weight, w2: Mxfp4Weight, shape: ExpertShape) -> PackedExperts:
    """Packs a rank's slice of a layer's experts, from the layout of the checkpoint.

    Args:
        w1: [E, >= I, L], gate; rows behind I (padding) are not read.
        w3: [E, >= I, L], up.
        w2: [E, L, >= I], down.
        shape: sizes; E of the tensors may be any.

    Raises:
        ValueError: a size does not fit, or a scale's code is above `LARGEST_SCALE` (255 is NaN).
    """
    inner, latent = shape.intermediate, shape.latent
    for name, weight, rows, columns in (
        ("w1", w1, inner, latent),
        ("w3", w3, inner, latent),
        ("w2", w2, latent, inner),
    ):
        got = (weight.packed.shape[-2], weight.packed.shape[-1] * 2)
        fits = got[0] >= rows and got[1] == columns if name != "w2" else got[0] == rows and got[1] >= columns
        if not fits or weight.scale.shape[-1] * GROUP_SIZE != got[1]:
            raise ValueError(
                f"{name}: got {got} with {weight.scale.shape[-1]} scales a row, expected ({rows}, {columns})"
            )
    count = w1.packed.shape[0]
    # Some experts at a time: the words in the making are four times as large as the weights.
    groups = [slice(e, e + _EXPERTS_AT_A_TIME) for e in range(0, count, _EXPERTS_AT_A_TIME)]
    packed = [_pack_experts(w1[some], w3[some], w2[some], shape) for some in groups]
    return PackedExperts(
        gate_up=torch.cat([gate_up for gate_up, _ in packed]),
        down=torch.cat([down for _, down in packed]),
    )


def _pack_experts(
    w1: Mxfp4Weight, w3: Mxfp4Weight, w2: Mxfp4Weight, shape: ExpertShape
) -> tuple[Tensor, Tensor]:
    inner, count = shape.intermediate, len(w1.packed)
    gate_up = [
        torch.cat(
            [part[:, :inner].reshape(count, shape.gate_up_tiles, GATED_ROWS, -1) for part in parts], dim=2
        )
        for parts in ((w1.packed, w3.packed), (w1.scale, w3.scale))
    ]
    down = [
        part[..., :columns].reshape(count, shape.down_tiles, TILE_ROWS, -1)
        for part, columns in ((w2.packed, inner // 2), (w2.scale, inner // GROUP_SIZE))
    ]
    return (
        pack_tiles(Mxfp4Weight(packed=gate_up[0], scale=gate_up[1])),
        pack_tiles(Mxfp4Weight(packed=down[0], scale=down[1])),
    )


def pack_tiles(tiles: Mxfp4Weight) -> Tensor:
    """Tiles of 16 rows in the kernels' order.

    Args:
        tiles: [..., 16, K], K a multiple of 64.

    Returns:
        [..., K/64 * 544] uint8: 512 bytes of codes a block, then 32 of scales a block.

    Raises:
        ValueError: K is no multiple of 64, or a scale's code is above `LARGEST_SCALE`.
    """
    packed, scale = tiles.packed, tiles.scale
    if packed.shape[-1] * 2 % BLOCK_K:
        raise ValueError(f"K: got {packed.shape[-1] * 2}, expected a multiple of {BLOCK_K}")
    if bool((scale > LARGEST_SCALE).any()):
        raise ValueError(f"scale codes: got {int(scale.max())}, expected 0 ... {LARGEST_SCALE}")
    blocks = packed.shape[-1] * 2 // BLOCK_K
    lead = packed.shape[:-2]
    # The bytes of a lane: of rows g and g + 8 (r), block, group q, lane t, instruction s, pair of columns c.
    lanes = packed.reshape(*lead, 2, 8, blocks, 2, 4, 2, 2).int()
    words = torch.zeros(*lead, blocks, 8, 4, 2, 2, dtype=torch.int32, device=packed.device)
    for r in range(2):
        for c in range(2):
            register = 2 * c + r
            pair = lanes[..., r, :, :, :, :, :, c].transpose(-5, -4).transpose(-3, -2)
            for half, codes in enumerate((pair & 15, pair >> 4)):
                words |= (codes & 7) << MAGNITUDE_SHIFTS[register] + 16 * half
                words |= (codes >> 3) << SIGN_BITS[register] + 16 * half
    scales = scale.reshape(*lead, 2, 8, blocks, 2).movedim(-4, -1).transpose(-4, -3) + SCALE_OFFSET
    return torch.cat([words.view(torch.uint8).reshape(*lead, -1), scales.reshape(*lead, -1)], dim=-1)
