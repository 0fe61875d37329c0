"""A projection on PyTorch tensors: checks what it gets, picks the variant by shape and batch, launches it."""

from __future__ import annotations

import torch
from torch import Tensor

from specialized_path.kernels.common.checks import require
from specialized_path.kernels.projection.variants import find_variant


def project(x: Tensor, weight: Tensor, *, out: Tensor | None = None, use_pdl: bool = True) -> Tensor:
    """`x @ weight.T`, summed in FP32 and rounded once: OC-3, and the products of OC-8 and OC-12.

    Args:
        x: [B, K] BF16, contiguous, 1 <= B <= 64.
        weight: [N, K] BF16, contiguous; a shape of `variants.SHAPES`. It is read before the kernel in front has
            completed: nothing on the stream may still be writing it.
        out: [B, N] BF16, contiguous; allocated when None. Give it inside a CUDA graph.
        use_pdl: launch before the kernel in front has completed.

    Raises:
        ValueError: a shape, type, device or stride is not as above.
    """
    variant = find_variant(weight.shape[0], weight.shape[-1], x.shape[0])
    rows, shape = x.shape[0], variant.shape
    y = torch.empty((rows, shape.num_outputs), dtype=x.dtype, device=x.device) if out is None else out
    require("x", x, (rows, shape.num_inputs))
    require("weight", weight, (shape.num_outputs, shape.num_inputs))
    require("out", y, (rows, shape.num_outputs))
    from cutlass import Int32

    from specialized_path.kernels.common.host import current_stream, pointer

    variant.kernel.run(
        pointer(x), pointer(weight), pointer(y), Int32(rows), Int32(use_pdl), current_stream(x.device)
    )
    return y
