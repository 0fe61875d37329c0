"""OC-16: each chosen expert is a gated MLP on the latent; weights are MXFP4 or plain, activations plain or MXFP8."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import linear as wide_linear

from specialized_path.reference.mxfp4 import Mxfp4Weight, dequantize_mxfp4
from specialized_path.reference.mxfp8 import dequantize_mxfp8, quantize_mxfp8
from specialized_path.reference.rounding import round_to
from specialized_path.reference.situ import situ

ActivationFormat = Literal["plain", "mxfp8", "mxfp8_saturating"]
"""The type of the activations' tensor, or MXFP8 with either rule of `quantize_mxfp8` for its scales."""


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
    x_format: ActivationFormat = "plain",
    hidden_format: ActivationFormat = "plain",
    acc_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The output of every chosen expert, one row a slot, not yet weighted; on a rank, its share of it.

    gate = W1 x and up = W3 x stay wide, the activation is rounded, the output is rounded. Weights count with
    their exact values. With both formats plain, activations keep the type of `x` (the W4A16 contract for MXFP4
    weights); in MXFP8 their rounding is the one to codes alone, and those count exactly (W4A8).

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
        x_format: in which `x` is multiplied; for MXFP8 L is a multiple of 32.
        hidden_format: in which the activation is multiplied; for MXFP8 the rows that count are a multiple of 32.
        acc_dtype: type of the sums and of the activation.

    Returns:
        [B, top_k, L] in `x.dtype`.

    Raises:
        ValueError: an id outside 0 ... E-1, a scale that is NaN, or columns that are no whole MXFP8 groups.

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
    wide = x.to(acc_dtype) if x_format == "plain" else _through_mxfp8(x, x_format, acc_dtype)
    rows = wide[order // topk_ids.shape[1]]
    sizes = [count for _, count in groups]
    projected = [
        [
            wide_linear(part, _expert_rows(weight, expert, intermediate_size, acc_dtype))
            for (expert, _), part in zip(groups, rows.split(sizes), strict=True)
        ]
        for weight in (w1, w3)
    ]
    gate, up = (torch.cat(parts) for parts in projected)
    activated = situ(gate, up, beta=beta, linear_beta=linear_beta, acc_dtype=acc_dtype)
    if hidden_format == "plain":
        hidden = round_to(activated, x.dtype).to(acc_dtype)
    else:
        hidden = _through_mxfp8(activated, hidden_format, acc_dtype)
    outputs = [
        round_to(wide_linear(part, _expert_columns(w2, expert, intermediate_size, acc_dtype)), x.dtype)
        for (expert, _), part in zip(groups, hidden.split(sizes), strict=True)
    ]
    return torch.cat(outputs)[order.argsort()].unflatten(0, topk_ids.shape)


def _through_mxfp8(x: Tensor, form: ActivationFormat, dtype: torch.dtype) -> Tensor:
    """`x` rounded once, to codes of MXFP8, and their values in `dtype`."""
    return dequantize_mxfp8(quantize_mxfp8(x, saturates=form == "mxfp8_saturating"), dtype=dtype)


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
