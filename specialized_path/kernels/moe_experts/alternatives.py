"""Other forms of the experts' kernels, to be timed against those that serve: none of them serves.

By name, what compiles and launches each: `PARTS` in the place of `launch.expert_hidden`, `SPREADS` in the place of
`launch.expert_outputs` and the norm behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from specialized_path.kernels.moe_experts.launch import held_rows
from specialized_path.kernels.moe_experts.packing import MarlinExperts
from specialized_path.kernels.moe_experts.shape import SHAPES, ExpertShape
from specialized_path.kernels.moe_experts.shares import TILE_SUM_BYTES, PartsTactic, SpreadTactic

PARTS = {
    "parts": PartsTactic(warps=16, depth=3, is_shared=True),
    "parts, whole tiles": PartsTactic(warps=16, depth=3, is_shared=False),
    "parts, 12 warps": PartsTactic(warps=12, depth=4, is_shared=True),
    "parts, 8 warps": PartsTactic(warps=8, depth=4, is_shared=True),
}
SPREADS = {
    "spread": SpreadTactic(warps=16, depth=3, to_l2=True),
    "spread, not to L2": SpreadTactic(warps=16, depth=3, to_l2=False),
    "spread, 12 warps": SpreadTactic(warps=12, depth=3, to_l2=True),
    "spread, 8 warps": SpreadTactic(warps=8, depth=3, to_l2=True),
}
COMBINE_CTAS = (1, 2, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsRoom:
    """Where CTAs bring sums to each other: one for all layers, since a launch leaves it as it was."""

    sums: Tensor
    """[CTAs, bytes] uint8."""
    brought: Tensor
    """[CTAs] int32, zeros between launches."""


def parts_room(device: torch.device | str) -> PartsRoom:
    """Room for every SM of a GPU."""
    ctas = num_sms(torch.device(device))
    return PartsRoom(
        sums=torch.empty(ctas, TILE_SUM_BYTES, dtype=torch.uint8, device=device),
        brought=torch.zeros(ctas, dtype=torch.int32, device=device),
    )


def num_sms(device: torch.device) -> int:
    """CTAs of a launch, one an SM."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def expert_hidden(
    latent: Tensor,
    topk_ids: Tensor,
    weights: MarlinExperts,
    *,
    kernel: Any,
    room: PartsRoom,
    out: Tensor,
    use_pdl: bool = True,
    num_ctas: int | None = None,
) -> Tensor:
    """As `launch.expert_hidden`, by a kernel of `build_parts`, with the same bits."""
    from cutlass import Int32

    from specialized_path.kernels.common.host import current_stream, pointer

    addresses = (latent, topk_ids, weights.w13, weights.w13_scale, out, room.sums, room.brought)
    numbers = (latent.shape[0], num_ctas or num_sms(latent.device), use_pdl)
    kernel(*map(pointer, addresses), *map(Int32, numbers), current_stream(latent.device))
    return out


def expert_outputs(
    hidden: Tensor,
    topk_ids: Tensor,
    weights: MarlinExperts,
    *,
    kernel: Any,
    out: Tensor,
    use_pdl: bool = True,
) -> Tensor:
    """Each slot's rounded output, [B, top_k, L], by a kernel of `build_spread`."""
    from cutlass import Int32

    from specialized_path.kernels.common.host import current_stream, pointer

    addresses = (hidden, topk_ids, weights.w2, weights.w2_scale, out)
    numbers = (hidden.shape[0], num_sms(hidden.device), use_pdl)
    kernel(*map(pointer, addresses), *map(Int32, numbers), current_stream(hidden.device))
    return out


def combine_and_norm(
    outputs: Tensor,
    topk_ids: Tensor,
    topk_weights: Tensor,
    weight: Tensor,
    *,
    kernel: Any,
    out: Tensor,
    use_pdl: bool = True,
) -> Tensor:
    """The normed weighted sum over slots, [B, L], rows may lie apart, by a kernel of `build_combine`."""
    from cutlass import Int32, Int64

    from specialized_path.kernels.common.host import current_stream, pointer

    addresses = (outputs, topk_ids, topk_weights, weight, out)
    numbers = (Int64(2 * out.stride(0)), Int32(outputs.shape[0]), Int32(use_pdl))
    kernel(*map(pointer, addresses), *numbers, current_stream(outputs.device))
    return out


def shape_of(weights: MarlinExperts) -> ExpertShape:
    """The shape of a layer's experts; of two with as many rows in memory, the first."""
    return next(shape for shape in SHAPES if shape.held == held_rows(weights))


@cache
def build_parts(shape: ExpertShape, tactic: PartsTactic) -> Any:
    """Compiles the gate-up kernel by parts."""
    import cutlass.cute as cute
    from cutlass import Int32

    from specialized_path.kernels.common.host import fake_pointer, fake_stream
    from specialized_path.kernels.moe_experts.gate_up_parts import PartsGateUpKernel

    types = (torch.bfloat16, torch.int32, torch.int32, torch.uint8, torch.bfloat16, torch.uint8, torch.int32)
    kernel = PartsGateUpKernel(shape=shape, tactic=tactic)
    return cute.compile(kernel, *map(fake_pointer, types), *(Int32(1),) * 3, fake_stream())


@cache
def build_spread(shape: ExpertShape, tactic: SpreadTactic) -> Any:
    """Compiles the spread down kernel."""
    import cutlass.cute as cute
    from cutlass import Int32

    from specialized_path.kernels.common.host import fake_pointer, fake_stream
    from specialized_path.kernels.moe_experts.down_spread import SpreadDownKernel

    types = (torch.bfloat16, torch.int32, torch.int32, torch.uint8, torch.bfloat16)
    kernel = SpreadDownKernel(shape=shape, tactic=tactic)
    return cute.compile(kernel, *map(fake_pointer, types), *(Int32(1),) * 3, fake_stream())


@cache
def build_combine(ctas: int) -> Any:
    """Compiles the sum over slots with the norm."""
    import cutlass.cute as cute
    from cutlass import Int32, Int64

    from specialized_path.kernels.common.host import fake_pointer, fake_stream
    from specialized_path.kernels.moe_latent.combine import CombineNormKernel

    types = (torch.bfloat16, torch.int32, torch.bfloat16, torch.bfloat16, torch.bfloat16)
    kernel = CombineNormKernel(ctas=ctas)
    return cute.compile(kernel, *map(fake_pointer, types), Int64(1), Int32(1), Int32(1), fake_stream())
