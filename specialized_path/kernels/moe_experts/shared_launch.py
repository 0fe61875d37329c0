"""Gated MLPs in BF16, the shared experts and the dense one, on PyTorch tensors: packed once, two launches a step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specialized_path.kernels.common.checks import require
from specialized_path.kernels.moe_experts.shared_variants import HIDDEN, SharedVariant, find_shared_variant


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedSharedExperts:
    """One layer's shared experts, or its dense MLP, on one rank, BF16."""

    gate_up: Tensor
    """[2*I, 7168], rows gate 0, up 0, gate 1, up 1, ..."""
    down: Tensor
    """[7168, I], the checkpoint's tensor as it is."""


def pack_shared_experts(w_gate_up: Tensor, w_down: Tensor) -> PackedSharedExperts:
    """Interleaves gate and up rows.

    Args:
        w_gate_up: [2*I, D], gate rows first.
        w_down: [D, I], contiguous; it is kept, not copied.

    Raises:
        ValueError: `w_gate_up` has not twice as many rows as `w_down` has columns.
    """
    rows, inner = w_gate_up.shape[0], w_down.shape[1]
    if rows != 2 * inner:
        raise ValueError(f"w_gate_up rows: got {rows}, expected {2 * inner}")
    return PackedSharedExperts(gate_up=torch.stack(w_gate_up.chunk(2), dim=1).flatten(0, 1), down=w_down)


def shared_experts(
    x: Tensor,
    weights: PackedSharedExperts,
    *,
    hidden: Tensor | None = None,
    out: Tensor | None = None,
    use_pdl: bool = True,
) -> Tensor:
    """One rank's share of the shared experts' output, or of the dense MLP's: OC-18, OC-20.

    Args:
        x: [B, 7168] BF16, contiguous, 1 <= B <= 64.
        weights: of the layer, on the GPU; nothing on the stream may still be writing them.
        hidden: [B, I] BF16, workspace; allocated when None. Give it inside a CUDA graph.
        out: [B, 7168] BF16; allocated when None. Give it inside a CUDA graph.
        use_pdl: launch before the kernel in front has completed.

    Raises:
        ValueError: a shape, type, device or stride is not as above.
    """
    rows, inner = x.shape[0], weights.down.shape[1]
    up = find_shared_variant("gate_up", inner, rows)
    hidden = x.new_empty(rows, inner) if hidden is None else hidden
    require("x", x, (rows, HIDDEN))
    require("gate_up", weights.gate_up, up.weight_size)
    require("hidden", hidden, (rows, inner))
    _launch(up, x, weights.gate_up, hidden, use_pdl)
    return shared_down(hidden, weights.down, out=out, use_pdl=use_pdl)


def shared_down(hidden: Tensor, w_down: Tensor, *, out: Tensor | None = None, use_pdl: bool = True) -> Tensor:
    """The second half of OC-18 alone, [B, 7168]: for hidden values that came with another product."""
    rows, inner = hidden.shape
    down = find_shared_variant("down", inner, rows)
    out = hidden.new_empty(rows, HIDDEN) if out is None else out
    require("hidden", hidden, (rows, inner))
    require("down", w_down, down.weight_size)
    require("out", out, (rows, HIDDEN))
    _launch(down, hidden, w_down, out, use_pdl)
    return out


def _launch(variant: SharedVariant, x: Tensor, weight: Tensor, out: Tensor, use_pdl: bool) -> None:
    from cutlass import Int32

    from specialized_path.kernels.common.host import current_stream, pointer

    variant.kernel.run(
        pointer(x), pointer(weight), pointer(out), Int32(x.shape[0]), Int32(use_pdl), current_stream(x.device)
    )
