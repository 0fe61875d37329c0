"""Routed experts on PyTorch tensors: checks what it gets, picks the variants, launches the two kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from specialized_path.kernels.common.checks import require
from specialized_path.kernels.moe_experts.packing import MarlinExperts
from specialized_path.kernels.moe_experts.shape import ExpertShape
from specialized_path.kernels.moe_experts.variants import (
    ExpertsVariant,
    down_variants,
    find_variant,
    gate_up_variants,
)


def routed_experts(
    latent: Tensor,
    topk_ids: Tensor,
    topk_weights: Tensor,
    weights: MarlinExperts,
    *,
    hidden: Tensor | None = None,
    out: Tensor | None = None,
    use_pdl: bool = True,
) -> Tensor:
    """A rank's weighted sum of its chosen experts' outputs: OC-16 (W4A16) and the first step of OC-17.

    Args:
        latent: [B, L] BF16, contiguous, 1 <= B <= 64.
        topk_ids: [B, top_k] int32, contiguous. A row with an id outside 0 ... E-1 comes out as NaN. The second kernel
            reads ids and weights above its wait: they are written before the first one, which triggers after its wait.
        topk_weights: [B, top_k] BF16, contiguous.
        weights: of the layer, on the GPU, scale codes up to `LARGEST_SCALE`; nothing on the stream may still be writing
            them.
        hidden: [B, top_k, I] BF16, workspace; allocated when None. Give it inside a CUDA graph.
        out: [B, L] BF16; allocated when None. Give it inside a CUDA graph.
        use_pdl: launch before the kernel in front has completed.

    Returns:
        [B, L], for each token the sum over its slots, slot 0 first, of weight times the expert's rounded output.

    Raises:
        ValueError: a shape, type, device or stride is not as above.
    """
    hidden = expert_hidden(latent, topk_ids, weights, out=hidden, use_pdl=use_pdl)
    return expert_outputs(hidden, topk_ids, topk_weights, weights, out=out, use_pdl=use_pdl)


def expert_hidden(
    latent: Tensor,
    topk_ids: Tensor,
    weights: MarlinExperts,
    *,
    out: Tensor | None = None,
    use_pdl: bool = True,
    variant: ExpertsVariant | None = None,
) -> Tensor:
    """`situ(W1 x, W3 x)` of every chosen expert, [B, top_k, I] BF16; arguments as for `routed_experts`."""
    rows, chosen = latent.shape[0], variant or _variant(gate_up_variants(), weights, latent.shape[0])
    shape = chosen.shape
    if out is None:
        out = latent.new_empty(rows, shape.top_k, shape.intermediate)
    require("latent", latent, (rows, shape.latent))
    require("topk_ids", topk_ids, (rows, shape.top_k), torch.int32)
    require("hidden", out, (rows, shape.top_k, shape.intermediate))
    _check_weights(weights, shape)
    from cutlass import Int32

    from specialized_path.kernels.common.host import current_stream, pointer

    chosen.kernel.run(
        pointer(latent),
        pointer(topk_ids),
        pointer(weights.w13),
        pointer(weights.w13_scale),
        pointer(out),
        Int32(rows),
        Int32(torch.cuda.get_device_properties(latent.device).multi_processor_count),
        Int32(use_pdl),
        current_stream(latent.device),
    )
    return out


def expert_outputs(
    hidden: Tensor,
    topk_ids: Tensor,
    topk_weights: Tensor,
    weights: MarlinExperts,
    *,
    out: Tensor | None = None,
    use_pdl: bool = True,
    variant: ExpertsVariant | None = None,
) -> Tensor:
    """The weighted sum of `W2 hidden` over slots, [B, L] BF16; arguments as for `routed_experts`.

    Ids and weights must have been written two or more launches back, and the kernel in front trigger after its wait.
    """
    rows, chosen = hidden.shape[0], variant or _variant(down_variants(), weights, hidden.shape[0])
    shape = chosen.shape
    if out is None:
        out = hidden.new_empty(rows, shape.latent)
    require("hidden", hidden, (rows, shape.top_k, shape.intermediate))
    require("topk_ids", topk_ids, (rows, shape.top_k), torch.int32)
    require("topk_weights", topk_weights, (rows, shape.top_k))
    require("out", out, (rows, shape.latent))
    _check_weights(weights, shape)
    from cutlass import Int32

    from specialized_path.kernels.common.host import current_stream, pointer

    chosen.kernel.run(
        pointer(hidden),
        pointer(topk_ids),
        pointer(topk_weights),
        pointer(weights.w2),
        pointer(weights.w2_scale),
        pointer(out),
        Int32(rows),
        Int32(use_pdl),
        current_stream(hidden.device),
    )
    return out


def held_rows(weights: MarlinExperts) -> int:
    """Rows of gate in memory: by which the variants of a layer are found."""
    return 16 * weights.w2.shape[1]


def _variant(kind: tuple[ExpertsVariant, ...], weights: MarlinExperts, rows: int) -> ExpertsVariant:
    return find_variant(kind, held_rows(weights), rows)


def _check_weights(weights: MarlinExperts, shape: ExpertShape) -> None:
    experts, held, latent = shape.num_experts, shape.held, shape.latent
    require("w13", weights.w13, (experts, latent // 16, 4 * held), torch.int32)
    require("w2", weights.w2, (experts, held // 16, 2 * latent), torch.int32)
    require("w13_scale", weights.w13_scale, (experts, latent // 32, 2 * held), torch.uint8)
    require("w2_scale", weights.w2_scale, (experts, held // 32, latent), torch.uint8)
