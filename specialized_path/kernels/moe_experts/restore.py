"""Packed experts as vLLM's Marlin kernels hold them, on PyTorch tensors: for the steps that vLLM's forward runs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specialized_path.kernels.common.checks import require
from specialized_path.kernels.moe_experts.packing import SCALE_OFFSET, PackedExperts
from specialized_path.kernels.moe_experts.shape import BLOCK_K, TILE_ROWS, ExpertShape
from specialized_path.kernels.moe_experts.variants import restore_variant


@dataclass(frozen=True, slots=True, kw_only=True)
class MarlinExperts:
    """A layer's experts in vLLM's layout for W4A16 products (`prepare_moe_fp4_layer_for_marlin`, vLLM 0.33)."""

    w13: Tensor
    """[E, L/16, 4*I] int32."""
    w2: Tensor
    """[E, I/16, 2*L] int32."""
    w13_scale: Tensor
    """[E, L/32, 2*I] uint8, E8M0."""
    w2_scale: Tensor
    """[E, I/32, L] uint8."""


def restore_experts(packed: PackedExperts, shape: ExpertShape, out: MarlinExperts) -> None:
    """Writes every expert of a layer to `out`, in the stream's order.

    Raises:
        ValueError: a shape, type, device or stride is not as said.
    """
    count = len(packed.gate_up)
    inner, latent = shape.intermediate, shape.latent
    require("w13", out.w13, (count, latent // 16, 4 * inner), torch.int32)
    require("w2", out.w2, (count, inner // 16, 2 * latent), torch.int32)
    from cutlass import Int32

    from specialized_path.kernels.common.host import current_stream, pointer

    for is_gated, source, words in ((True, packed.gate_up, out.w13), (False, packed.down, out.w2)):
        stream = current_stream(words.device)
        # What lies in front and behind is vLLM's and may read what this overwrites: no early launch.
        restore_variant(shape, is_gated).run(pointer(source), pointer(words), Int32(count), Int32(0), stream)
    restore_scales(packed, shape, out)


def restore_scales(packed: PackedExperts, shape: ExpertShape, out: MarlinExperts) -> None:
    """The scales alone. Row `32 u + 16 b + 8 a + i` of 64 stands at place `8 i + 4 u + 2 a + b` of Marlin's."""
    count = len(packed.gate_up)
    gate_up, down = (
        _scales(tiles, blocks).view(count, -1, *places, blocks, 8, 2, 2)
        for tiles, blocks, places in (
            (packed.gate_up, shape.gate_up_blocks, (2, 2, 2)),
            (packed.down, shape.down_blocks, (2, 2)),
        )
    )
    for source, target in (
        (gate_up.permute(0, 5, 7, 8, 1, 6, 2, 4, 3), out.w13_scale),
        (down.permute(0, 4, 6, 1, 5, 2, 7, 3), out.w2_scale),
    ):
        torch.sub(source, SCALE_OFFSET, out=target.view(source.shape))


def _scales(packed: Tensor, blocks: int) -> Tensor:
    """[E, tiles, blocks, 8, 2, 2]: what lies behind the codes of each tile; row of eight, group, half of the tile."""
    codes = blocks * TILE_ROWS * BLOCK_K // 2
    return packed[..., codes:].view(*packed.shape[:2], blocks, 8, 2, 2)
