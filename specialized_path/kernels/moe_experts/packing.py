"""MXFP4 experts in the order of vLLM's Marlin kernels, which the kernels here read in place.

Marlin (Frantar and others, "MARLIN", 2024; vLLM's `gptq_marlin_repack`) keeps weights in tiles of 64 rows by 16 of K,
512 bytes each; a row of tiles has the same K, and rows of tiles follow each other. Lane `4 g + t` of a warp has 16
bytes of a tile, a word for each 16 rows: rows g and g + 8, columns 2t, 2t + 1, 2t + 8 and 2t + 9. That is an operand of
`mma.sync.m16n8k16`. The scales of 64 rows and a group of K lie together, a lane group's eight beside each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from specialized_path.kernels.moe_experts.shape import GROUP_K, STEP_K, TILE_ROWS, ExpertShape
from specialized_path.reference.mxfp4 import Mxfp4Weight

LARGEST_SCALE = 192
"""E8M0 code of 2^65; larger ones do not fit the kernels' FP32 scale and are refused."""
_EXPERTS_AT_A_TIME = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class MarlinExperts:
    """One layer's routed experts on one rank, as vLLM 0.33 keeps them (`prepare_moe_fp4_layer_for_marlin`).

    H is the rows of gate and of up in memory, L the latent.
    """

    w13: Tensor
    """[E, L/16, 4*H] int32; gate, then up."""
    w2: Tensor
    """[E, H/16, 2*L] int32."""
    w13_scale: Tensor
    """[E, L/32, 2*H] uint8, E8M0."""
    w2_scale: Tensor
    """[E, H/32, L] uint8."""


def largest_scale(experts: MarlinExperts, shape: ExpertShape) -> int:
    """The largest scale code that the kernels read; above `LARGEST_SCALE` they do not serve the experts."""
    rows = experts.w13_scale.view(*experts.w13_scale.shape[:2], 2, shape.held)[..., : shape.intermediate]
    return int(torch.stack([rows.max(), experts.w2_scale[:, : shape.down_groups].max()]).max())


def pack_experts(w1: Mxfp4Weight, w3: Mxfp4Weight, w2: Mxfp4Weight, shape: ExpertShape) -> MarlinExperts:
    """Puts a rank's slice of a layer's experts into Marlin's order, from the layout of the checkpoint.

    Inside vLLM this is vLLM's work; tests have no other source of such weights. Where vLLM would pad with zeros this
    pads with NaN, so that whoever reads the padding shows it.

    Args:
        w1: [E, I, L], gate.
        w3: [E, I, L], up.
        w2: [E, L, I], down.
        shape: sizes; E of the tensors may be any.

    Raises:
        ValueError: a size does not fit.
    """
    inner, latent = shape.intermediate, shape.latent
    for name, weight, expected in (
        ("w1", w1, (inner, latent)),
        ("w3", w3, (inner, latent)),
        ("w2", w2, (latent, inner)),
    ):
        got = (weight.packed.shape[-2], weight.packed.shape[-1] * 2)
        if got != expected or weight.scale.shape[-1] * GROUP_K != got[1]:
            raise ValueError(
                f"{name}: got {got} with {weight.scale.shape[-1]} scales a row, expected {expected}"
            )
    # Some experts at a time: the codes in the making are eight times as large as the weights.
    groups = [slice(e, e + _EXPERTS_AT_A_TIME) for e in range(0, len(w1.packed), _EXPERTS_AT_A_TIME)]
    more = shape.held - inner

    def gate_up(part: str, some: slice) -> Tensor:
        return torch.cat([pad(getattr(w, part)[some], (0, 0, 0, more), value=255) for w in (w1, w3)], dim=1)

    def down(part: str, some: slice, packed_rows: int) -> Tensor:
        return pad(getattr(w2, part)[some], (0, more // packed_rows), value=255)

    return MarlinExperts(
        w13=torch.cat([marlin_codes(gate_up("packed", some)) for some in groups]),
        w2=torch.cat([marlin_codes(down("packed", some, 2)) for some in groups]),
        w13_scale=torch.cat([marlin_scales(gate_up("scale", some)) for some in groups]),
        w2_scale=torch.cat([marlin_scales(down("scale", some, GROUP_K)) for some in groups]),
    )


def marlin_codes(packed: Tensor) -> Tensor:
    """[E, N, K/2] bytes of two codes, the even column's low, as [E, K/16, 2*N] words."""
    experts, rows, half = packed.shape
    codes = torch.stack([packed & 15, packed >> 4], dim=-1).int()
    # Rows: tile, 16 of it, eight of these, row g; columns: tile, eight of it, lane t, odd.
    codes = codes.view(experts, rows // TILE_ROWS, 4, 2, 8, 2 * half // STEP_K, 2, 4, 2)
    codes = codes.permute(0, 5, 1, 4, 7, 2, 8, 3, 6).reshape(experts, 2 * half // STEP_K, 2 * rows, 8)
    shifts = torch.arange(0, 32, 4, device=packed.device, dtype=torch.int32)
    return (codes << shifts).sum(-1, dtype=torch.int32)


def marlin_scales(scale: Tensor) -> Tensor:
    """[E, N, K/32] as [E, K/32, N]: row `32 u + 16 b + 8 a + i` of 64 at place `8 i + 4 u + 2 a + b`."""
    experts, rows, groups = scale.shape
    split = scale.view(experts, rows // TILE_ROWS, 2, 2, 2, 8, groups)
    return split.permute(0, 6, 1, 5, 2, 4, 3).reshape(experts, groups, rows)
