"""KDA decode and verify steps on PyTorch tensors: checks what it gets, picks the variant, launches it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specialized_path.kernels.common.checks import require
from specialized_path.kernels.kda.geometry import DIM, TAPS
from specialized_path.kernels.kda.variants import KdaVariant, find_variant

MAX_SLOTS = 32
"""Columns of the slot table: a warp reads a row of it at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KdaWeights:
    """One layer's weights on one rank, contiguous, on the GPU."""

    conv_weight: Tensor
    """[3*H*128, 4] FP32, channels q | k | v, tap 0 for the oldest input."""
    w_f_b: Tensor
    """[H*128, 128] BF16."""
    A_log: Tensor
    """[H] FP32."""
    dt_bias: Tensor
    """[H*128] FP32."""
    o_norm_weight: Tensor
    """[128] BF16."""

    def check(self, heads: int) -> None:
        """Raises ValueError unless shapes, types and strides are as above."""
        require("conv_weight", self.conv_weight, (3 * heads * DIM, TAPS), torch.float32)
        require("w_f_b", self.w_f_b, (heads * DIM, DIM))
        require("A_log", self.A_log, (heads,), torch.float32)
        require("dt_bias", self.dt_bias, (heads * DIM,), torch.float32)
        require("o_norm_weight", self.o_norm_weight, (DIM,))


def kda_decode(
    projected: Tensor,
    weights: KdaWeights,
    conv_state: Tensor,
    state: Tensor,
    slot_indices: Tensor,
    *,
    out: Tensor | None = None,
    use_pdl: bool = True,
    variant: KdaVariant | None = None,
) -> Tensor:
    """OC-4 to OC-6: one token a request; windows and states advance in place.

    What is read before the dependency wait (all but `projected`) must have been written two or more launches back, in
    a chain whose kernels trigger after their own wait.

    Args:
        projected: [B, N] BF16, rows of the fused projection: q | k | v | g (H*128 each), f_a (128), b (H), padding.
            Row stride any multiple of 8 elements.
        weights: of the layer.
        conv_state: [slots, 3*H*128, >= 3] BF16, any strides; the first 3 columns are the window, oldest first.
        state: [slots, H, 128, 128] FP32 (value, key); each head contiguous, strides of slots and heads any multiples of
            4 elements.
        slot_indices: [B] int32, any stride; values <= 0 are null: y = 0, nothing is written. Live slots must differ.
        out: [B, H*128] BF16, any row stride; allocated when None.
        use_pdl: launch before the kernel in front has completed.
        variant: overrides the choice by batch.

    Returns:
        y, the input of the output projection.

    Raises:
        ValueError: a shape, type, device or stride is not as above.
    """
    return _run(
        projected, weights, (conv_state, state), slot_indices.unsqueeze(-1), None, out, use_pdl, variant
    )


def kda_verify(
    projected: Tensor,
    weights: KdaWeights,
    conv_state: Tensor,
    state: Tensor,
    slots: Tensor,
    num_accepted_tokens: Tensor,
    *,
    out: Tensor | None = None,
    use_pdl: bool = True,
    variant: KdaVariant | None = None,
) -> Tensor:
    """OC-7: q tokens a request (2 to 8); one state is left for each token, in its own slot.

    Args:
        projected: [B*q, N] BF16, the tokens of a request in sequence; otherwise as for `kda_decode`.
        weights: of the layer.
        conv_state: [slots, 3*H*128, >= S+2] BF16, any strides; the window lives in `slots[:, 0]`.
        state: as for `kda_decode`.
        slots: [B, S] int32, any strides, q <= S <= 32; values <= 0 are null: read as zeros, never written. A request
            whose slots are all null is padding: y = 0.
        num_accepted_tokens: [B] int32, any stride, 1 ... S, tokens kept of the step before, counting the bonus one; the
            step starts from `slots[:, a-1]`. Values outside are taken as the nearest inside.
        out: [B*q, H*128] BF16, any row stride; allocated when None.
        use_pdl: launch before the kernel in front has completed.
        variant: overrides the choice by batch.

    Returns:
        y, the input of the output projection.

    Raises:
        ValueError: a shape, type, device or stride is not as above.
    """
    return _run(projected, weights, (conv_state, state), slots, num_accepted_tokens, out, use_pdl, variant)


def _run(
    projected: Tensor,
    weights: KdaWeights,
    pools: tuple[Tensor, Tensor],
    slots: Tensor,
    num_accepted_tokens: Tensor | None,
    out: Tensor | None,
    use_pdl: bool,
    variant: KdaVariant | None,
) -> Tensor:
    conv_state, state = pools
    heads, (num_reqs, columns) = weights.A_log.numel(), slots.shape
    tokens = _tokens_of(projected, num_reqs, num_accepted_tokens is not None)
    if out is None:
        out = projected.new_empty(projected.shape[0], heads * DIM)
    weights.check(heads)
    _check_rows(projected, out, heads)
    _check_pools(conv_state, state, heads, TAPS - 1 if num_accepted_tokens is None else columns + TAPS - 2)
    _check_indices(slots, num_accepted_tokens, tokens)
    chosen = find_variant(heads, tokens, num_reqs) if variant is None else variant
    if (chosen.schedule.heads, chosen.schedule.tokens) != (heads, tokens):
        raise ValueError(f"variant: got {chosen.kernel.name}, expected heads {heads}, tokens {tokens}")

    from cutlass import Int32, Int64

    from specialized_path.kernels.common.host import current_stream, pointer

    chosen.kernel.run(
        pointer(projected),
        pointer(weights.conv_weight),
        pointer(weights.w_f_b),
        pointer(weights.A_log),
        pointer(weights.dt_bias),
        pointer(weights.o_norm_weight),
        pointer(conv_state, alignment=2),
        pointer(state),
        pointer(slots, alignment=4),
        pointer(num_accepted_tokens, torch.int32, alignment=4),
        pointer(out, alignment=2),
        Int64(projected.stride(0)),
        *(Int64(stride) for stride in conv_state.stride()),
        Int64(state.stride(0)),
        Int64(state.stride(1)),
        *(Int64(stride) for stride in slots.stride()),
        Int32(columns),
        Int64(0 if num_accepted_tokens is None else num_accepted_tokens.stride(0)),
        Int64(out.stride(0)),
        Int32(num_reqs),
        Int32(use_pdl),
        current_stream(projected.device),
    )
    return out


def _tokens_of(projected: Tensor, num_reqs: int, is_verify: bool) -> int:
    rows = projected.shape[0]
    if not num_reqs or rows % num_reqs or (rows == num_reqs) == is_verify:
        expected = "a multiple, at least twice as many" if is_verify else "as many"
        raise ValueError(f"projected: got {rows} rows for {num_reqs} requests, expected {expected}")
    return rows // num_reqs


def _check_rows(projected: Tensor, out: Tensor, heads: int) -> None:
    needed = 4 * heads * DIM + DIM + heads
    for name, tensor, columns in (("projected", projected, needed), ("out", out, heads * DIM)):
        if tensor.ndim != 2 or tensor.dtype != torch.bfloat16 or not tensor.is_cuda or tensor.stride(1) != 1:
            raise ValueError(f"{name}: got {_words(tensor)}, expected rows of BF16 on cuda")
        if tensor.shape[1] < columns or tensor.shape[0] != projected.shape[0]:
            raise ValueError(f"{name}: got {_words(tensor)}, expected {projected.shape[0]} rows of {columns}")
    if projected.stride(0) % 8:
        raise ValueError(f"projected: got row stride {projected.stride(0)}, expected a multiple of 8")


def _check_pools(conv_state: Tensor, state: Tensor, heads: int, width: int) -> None:
    if conv_state.dtype != torch.bfloat16 or not conv_state.is_cuda or conv_state.ndim != 3:
        raise ValueError(f"conv_state: got {_words(conv_state)}, expected three dimensions of BF16 on cuda")
    if conv_state.shape[1] != 3 * heads * DIM or conv_state.shape[2] < width:
        raise ValueError(
            f"conv_state: got {_words(conv_state)}, expected {3 * heads * DIM} channels of at least {width}"
        )
    if state.dtype != torch.float32 or not state.is_cuda or state.shape[1:] != (heads, DIM, DIM):
        raise ValueError(f"state: got {_words(state)}, expected [slots, {heads}, {DIM}, {DIM}] FP32 on cuda")
    if state.stride()[2:] != (DIM, 1) or state.stride(0) % 4 or state.stride(1) % 4:
        raise ValueError(
            f"state: got strides {state.stride()}, expected multiples of 4, then {DIM} and 1 inside a head"
        )


def _check_indices(slots: Tensor, num_accepted_tokens: Tensor | None, tokens: int) -> None:
    for name, tensor in (("slots", slots), ("num_accepted_tokens", num_accepted_tokens)):
        if tensor is not None and (tensor.dtype != torch.int32 or not tensor.is_cuda):
            raise ValueError(f"{name}: got {_words(tensor)}, expected int32 on cuda")
    if not tokens <= slots.shape[1] <= MAX_SLOTS:
        raise ValueError(f"slots: got {slots.shape[1]} columns, expected {tokens} ... {MAX_SLOTS}")
    if num_accepted_tokens is not None and num_accepted_tokens.shape != slots.shape[:1]:
        raise ValueError(
            f"num_accepted_tokens: got {_words(num_accepted_tokens)}, expected {slots.shape[:1]}"
        )


def _words(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {tensor.dtype} on {tensor.device.type}"
