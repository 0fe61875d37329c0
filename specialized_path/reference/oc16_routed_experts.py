"""OC-16: each chosen expert is a gated MLP on the latent; weights are MXFP4 or plain."""

import torch
from torch import Tensor
from torch.nn.functional import linear as wide_linear

from specialized_path.reference.mxfp4 import Mxfp4Weight, dequantize_mxfp4
from specialized_path.reference.oc03_projection import linear
from specialized_path.reference.rounding import round_to
from specialized_path.reference.situ import situ


def routed_experts(
    x: Tensor,
    topk_ids: Tensor,
    w1: Tensor | Mxfp4Weight,
    w3: Tensor | Mxfp4Weight,
    w2: Tensor | Mxfp4Weight,
    *,
    intermediate_size: int | None = None,
    beta: float = 4.0,
    linear_beta: float = 25.0,
    acc_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The output of every chosen expert, one row a slot, not yet weighted; on a rank, its share of it.

    gate = W1 x and up = W3 x stay wide, the activation is rounded, the output is rounded: activations keep
    the type of `x`, weights count with their exact values (the W4A16 contract for MXFP4 weights).

    Args:
        x: [B, L], the latent.
        topk_ids: [B, top_k] int32 or int64, 0 ... E-1.
        w1: [E, I, L], gate; a tensor or MXFP4.
        w3: [E, I, L], up.
        w2: [E, L, I], down; ranks hold slices of I and their outputs add up.
        intermediate_size: rows of I that count; padding beyond is not read (for MXFP4 a multiple of 32). None
            means all.
        beta: see `situ`.
        linear_beta: see `situ`.
        acc_dtype: type of the sums and of the activation.

    Returns:
        [B, top_k, L] in `x.dtype`.

    Raises:
        ValueError: an id outside 0 ... E-1, or a scale that is NaN.

    Source: Kimi K3 checkpoint configuration; OCP Microscaling Formats (MX) specification 1.0.
    """
    num_experts = (w1.packed if isinstance(w1, Mxfp4Weight) else w1).shape[0]
    ids = topk_ids.flatten().long()
    if bool(((ids < 0) | (ids >= num_experts)).any()):
        raise ValueError(f"topk_ids: got {topk_ids.tolist()}, expected 0 ... {num_experts - 1}")
    if not ids.numel():
        return x.new_zeros(*topk_ids.shape, x.shape[1])
    order = ids.argsort(stable=True)
    counts = ids.bincount(minlength=num_experts).tolist()
    groups = [(expert, count) for expert, count in enumerate(counts) if count]
    rows = x[order // topk_ids.shape[1]].to(acc_dtype).split([count for _, count in groups])
    projected = [
        [
            wide_linear(part, _expert_rows(weight, expert, intermediate_size, acc_dtype))
            for (expert, _), part in zip(groups, rows, strict=True)
        ]
        for weight in (w1, w3)
    ]
    gate, up = (torch.cat(parts) for parts in projected)
    hidden = round_to(situ(gate, up, beta=beta, linear_beta=linear_beta, acc_dtype=acc_dtype), x.dtype)
    outputs = [
        linear(part, _expert_columns(w2, expert, intermediate_size, acc_dtype), acc_dtype=acc_dtype)
        for (expert, _), part in zip(groups, hidden.split([count for _, count in groups]), strict=True)
    ]
    return torch.cat(outputs)[order.argsort()].unflatten(0, topk_ids.shape)


def _expert_rows(weight: Tensor | Mxfp4Weight, expert: int, rows: int | None, dtype: torch.dtype) -> Tensor:
    """The first `rows` rows of an expert's matrix, in `dtype`."""
    part = weight[expert, slice(None, rows)]
    return dequantize_mxfp4(part, dtype=dtype) if isinstance(part, Mxfp4Weight) else part.to(dtype)


def _expert_columns(
    weight: Tensor | Mxfp4Weight, expert: int, columns: int | None, dtype: torch.dtype
) -> Tensor:
    """The first `columns` columns of an expert's matrix, in `dtype`."""
    if isinstance(weight, Tensor):
        return weight[expert, :, :columns].to(dtype)
    packed, scale = weight.packed[expert], weight.scale[expert]
    if columns is not None:
        packed, scale = packed[:, : columns // 2], scale[:, : columns // 32]
    return dequantize_mxfp4(Mxfp4Weight(packed=packed, scale=scale), dtype=dtype)
