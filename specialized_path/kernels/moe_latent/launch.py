"""What surrounds the routed experts, on PyTorch tensors: checks what it gets, picks the variants, launches them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specialized_path.kernels.common.checks import require, require_batch, require_rows
from specialized_path.kernels.moe_latent.geometry import (
    AHEAD_MIB,
    FRONTS,
    HIDDEN,
    LATENT,
    LOGITS_BYTE,
    MAX_TOKENS,
    NUM_EXPERTS,
    TAIL_BYTE,
    TOP_K,
    FrontShape,
)
from specialized_path.kernels.moe_latent.variants import (
    ProductVariant,
    find_product,
    front_variants,
    norm_variant,
    selection_variant,
    tail_variants,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontOutputs:
    """Views of a front's buffer for a number of tokens."""

    latent: Tensor
    """[B, 3584] BF16: OC-15."""
    logits: Tensor
    """[B, 896] FP32, not rounded: the router's."""
    tail: Tensor
    """[B, 3584 + I] BF16: room for the normed latents, then the shared experts' activated gates and ups."""

    @property
    def normed(self) -> Tensor:
        """[B, 3584]: where `latent_norm` has its output."""
        return self.tail[:, :LATENT]

    @property
    def shared_hidden(self) -> Tensor:
        """[B, I]."""
        return self.tail[:, LATENT:]


def pack_front(w_latent: Tensor, w_router: Tensor, w_shared_gate_up: Tensor) -> Tensor:
    """One weight for all that multiplies the MLP input.

    Args:
        w_latent: [3584, 7168] BF16.
        w_router: [896, 7168] BF16.
        w_shared_gate_up: [2*I, 7168] BF16, gate rows first.

    Returns:
        [3584 + 896 + 2*I, 7168]: latent rows, router rows, then gate 0, up 0, gate 1, up 1, ...

    Raises:
        ValueError: a size is none of these.
    """
    _front_shape(len(w_latent) + len(w_router) + len(w_shared_gate_up))
    for name, weight, rows in (("w_latent", w_latent, LATENT), ("w_router", w_router, NUM_EXPERTS)):
        if weight.shape != (rows, HIDDEN):
            raise ValueError(f"{name}: got {tuple(weight.shape)}, expected {(rows, HIDDEN)}")
    taking_turns = torch.stack(w_shared_gate_up.chunk(2), dim=1).flatten(0, 1)
    return torch.cat([w_latent, w_router, taking_turns])


def front_buffer(weight: Tensor) -> Tensor:
    """Room for a front's outputs, [bytes] uint8, beside its packed weight; the same for every batch."""
    size = _front_shape(len(weight)).buffer_bytes
    return torch.empty(size, dtype=torch.uint8, device=weight.device)


def front_outputs(buffer: Tensor, num_tokens: int) -> FrontOutputs:
    """The outputs of `num_tokens` tokens in a buffer."""

    def view(first: int, columns: int, dtype: torch.dtype) -> Tensor:
        size = num_tokens * columns * dtype.itemsize
        return buffer[first : first + size].view(dtype).view(num_tokens, columns)

    return FrontOutputs(
        latent=view(0, LATENT, torch.bfloat16),
        logits=view(LOGITS_BYTE, NUM_EXPERTS, torch.float32),
        tail=view(TAIL_BYTE, (len(buffer) - TAIL_BYTE) // (2 * MAX_TOKENS), torch.bfloat16),
    )


def front(x: Tensor, weight: Tensor, *, buffer: Tensor | None = None, use_pdl: bool = True) -> FrontOutputs:
    """Latent, router logits and the shared experts' hidden values, of one product: OC-15, OC-14, OC-18.

    Args:
        x: [B, 7168] BF16, contiguous, 1 <= B <= 64.
        weight: of `pack_front`, on the GPU; nothing on the stream may still be writing it.
        buffer: of `front_buffer`; allocated when None. Give it inside a CUDA graph.
        use_pdl: launch before the kernel in front has completed.

    Raises:
        ValueError: a shape, type, device or stride is not as above.
    """
    rows = x.shape[0]
    variant = find_product(front_variants(), tuple(weight.shape), rows)
    buffer = front_buffer(weight) if buffer is None else buffer
    require("x", x, (rows, HIDDEN))
    require("buffer", buffer, (_front_shape(len(weight)).buffer_bytes,), torch.uint8)
    _launch(variant, x, weight, buffer.view(torch.bfloat16), use_pdl)
    return front_outputs(buffer, rows)


def select_experts(
    logits: Tensor,
    correction_bias: Tensor,
    *,
    ids: Tensor | None = None,
    weights: Tensor | None = None,
    ahead: Tensor | None = None,
    use_pdl: bool = True,
) -> tuple[Tensor, Tensor]:
    """The sixteen largest `sigmoid(logit) + bias` of each token, largest first, the lower id on a tie: OC-14.

    Args:
        logits: [B, 896] FP32, contiguous.
        correction_bias: [896] FP32; nothing on the stream may still be writing it.
        ids: [B, 16] int32; allocated when None. Give it inside a CUDA graph.
        weights: [B, 16] BF16, renormalised sigmoids without bias; likewise.
        ahead: BF16 weights, contiguous, that L2 is asked to hold for a kernel behind; none when None.
        use_pdl: launch before the kernel in front has completed.

    Raises:
        ValueError: a shape, type, device or stride is not as above.
    """
    rows = logits.shape[0]
    require_batch(rows, MAX_TOKENS)
    ids = logits.new_empty(rows, TOP_K, dtype=torch.int32) if ids is None else ids
    weights = logits.new_empty(rows, TOP_K, dtype=torch.bfloat16) if weights is None else weights
    require("logits", logits, (rows, NUM_EXPERTS), torch.float32)
    require("correction_bias", correction_bias, (NUM_EXPERTS,), torch.float32)
    require("ids", ids, (rows, TOP_K), torch.int32)
    require("weights", weights, (rows, TOP_K))
    if ahead is not None:
        require("ahead", ahead, tuple(ahead.shape))
    from cutlass import Int32

    from specialized_path.kernels.common.host import current_stream, pointer

    addresses = [pointer(t) for t in (logits, correction_bias, ids, weights, ahead)]
    ahead_bytes = 0 if ahead is None else ahead.nbytes
    sms = torch.cuda.get_device_properties(logits.device).multi_processor_count
    numbers = [Int32(n) for n in (rows, ahead_bytes, sms if ahead_bytes else 0, use_pdl)]
    selection_variant().run(*addresses, *numbers, current_stream(logits.device))
    return ids, weights


def latent_norm(latent: Tensor, weight: Tensor, *, out: Tensor | None = None, use_pdl: bool = True) -> Tensor:
    """The norm on the combined latent, rounded: the end of OC-17.

    Args:
        latent: [B, 3584] BF16, contiguous, summed over ranks.
        weight: [3584] BF16; nothing on the stream may still be writing it.
        out: [B, 3584] BF16, rows may lie apart; allocated when None. Give it inside a CUDA graph.
        use_pdl: launch before the kernel in front has completed.

    Raises:
        ValueError: a shape, type, device or stride is not as above.
    """
    rows = latent.shape[0]
    require_batch(rows, MAX_TOKENS)
    out = torch.empty_like(latent) if out is None else out
    require("latent", latent, (rows, LATENT))
    require_rows("out", out, (rows, LATENT))
    require("weight", weight, (LATENT,))
    from cutlass import Int32, Int64

    from specialized_path.kernels.common.host import current_stream, pointer

    addresses = [pointer(t) for t in (latent, weight, out)]
    stride, stream = Int64(2 * out.stride(0)), current_stream(latent.device)
    norm_variant().run(*addresses, stride, Int32(rows), Int32(use_pdl), stream)
    return out


def pack_tail(w_up: Tensor, w_shared_down: Tensor) -> Tensor:
    """One weight for all that the layer adds.

    Args:
        w_up: [7168, 3584] BF16.
        w_shared_down: [7168, I] BF16.

    Returns:
        [7168, 3584 + I].
    """
    return torch.cat([w_up, w_shared_down], dim=1)


def tail_ahead(weight: Tensor, num_tokens: int) -> Tensor:
    """The rows of a tail's weights, from the first on, that `select_experts` brings to L2."""
    mib = next(mib for most, mib in AHEAD_MIB.items() if num_tokens <= most)
    return weight[: (mib << 20) // (2 * weight.shape[1])]


def project_tail(tail: Tensor, weight: Tensor, *, out: Tensor | None = None, use_pdl: bool = True) -> Tensor:
    """The layer's output, summed in FP32 and rounded once: the second half of OC-18, and OC-19.

    The contract rounds both products before it adds them; this does not, and lies nearer to the exact sum.

    Args:
        tail: [B, 3584 + I] BF16, contiguous: of `front`, with the normed latents in front.
        weight: of `pack_tail`, on the GPU; nothing on the stream may still be writing it.
        out: [B, 7168] BF16; allocated when None. Give it inside a CUDA graph.
        use_pdl: launch before the kernel in front has completed.

    Raises:
        ValueError: a shape, type, device or stride is not as above.
    """
    rows = tail.shape[0]
    variant = find_product(tail_variants(), tuple(weight.shape), rows)
    out = tail.new_empty(rows, HIDDEN) if out is None else out
    require("tail", tail, (rows, variant.weight_size[1]))
    require("out", out, (rows, HIDDEN))
    _launch(variant, tail, weight, out, use_pdl)
    return out


def _front_shape(num_outputs: int) -> FrontShape:
    for shape in FRONTS:
        if shape.num_outputs == num_outputs:
            return shape
    raise ValueError(f"front: got {num_outputs} rows, expected one of {[s.num_outputs for s in FRONTS]}")


def _launch(variant: ProductVariant, x: Tensor, weight: Tensor, out: Tensor, use_pdl: bool) -> None:
    require("weight", weight, variant.weight_size)
    from cutlass import Int32

    from specialized_path.kernels.common.host import current_stream, pointer

    rows = Int32(x.shape[0])
    variant.kernel.run(
        pointer(x), pointer(weight), pointer(out), rows, Int32(use_pdl), current_stream(x.device)
    )
