"""The sixteen experts of a token and their weights: the second half of OC-14.

A CTA has a token, a thread an expert. Keys are compared as integers in their order. The sixteenth largest of the warps'
maxima is a bound that at least sixteen keys reach; those that do are listed, and each counts how many of them come
before it. Every choice is then exact, whatever the order of the list.

Memory has little to do from here to the tail: CTAs behind those of the tokens ask for weights of it to come to L2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint32
from cutlass.cute.arch import inline_ptx

from specialized_path.kernels.common import device
from specialized_path.kernels.moe_experts import ops
from specialized_path.kernels.moe_latent.geometry import NUM_EXPERTS, TOP_K

_WARP = 32
_WARPS = NUM_EXPERTS // _WARP
_CHUNK = 4096
"""Bytes that a warp asks for at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionKernel:
    """The kernel; `scaling` and `epsilon` as in the contract."""

    scaling: float = 1.0
    epsilon: float = 1e-20

    @cute.jit
    def __call__(
        self,
        logits: cute.Pointer,
        bias: cute.Pointer,
        ids: cute.Pointer,
        weights: cute.Pointer,
        ahead: cute.Pointer,
        num_tokens: Int32,
        ahead_bytes: Int32,
        ahead_ctas: Int32,
        use_pdl: Int32,
        stream: Any,
    ) -> None:
        """Ids and weights of the largest `sigmoid(logit) + bias`, largest first; whole chunks of `ahead` to L2."""
        self.kernel(logits, bias, ids, weights, ahead, num_tokens, ahead_bytes).launch(
            grid=(num_tokens + ahead_ctas, 1, 1), block=(NUM_EXPERTS, 1, 1), stream=stream, use_pdl=use_pdl
        )

    @cute.kernel
    def kernel(
        self,
        logits: cute.Pointer,
        bias: cute.Pointer,
        ids: cute.Pointer,
        weights: cute.Pointer,
        ahead: cute.Pointer,
        num_tokens: Int32,
        ahead_bytes: Int32,
    ) -> None:
        """CTA t serves token t, thread e expert e."""
        block, _, _ = cute.arch.block_idx()
        num_ctas, _, _ = cute.arch.grid_dim()
        thread, _, _ = cute.arch.thread_idx()
        # What the grid behind reads above its wait is static: it may start while this one waits.
        device.release_dependents()
        if block < num_tokens:
            self.select(logits.toint(), bias.toint(), ids.toint(), weights.toint(), block, thread)
        else:
            # Not sooner: until the front ends, memory is busy with its weights.
            device.wait_for_dependencies()
            if thread % _WARP == 0:
                ahead_ctas = num_ctas - num_tokens
                chunk = thread // _WARP * ahead_ctas + block - num_tokens
                while (chunk + 1) * _CHUNK <= ahead_bytes:
                    ops.bring_to_l2(ahead.toint() + Int64(chunk) * _CHUNK, _CHUNK)
                    chunk += _WARPS * ahead_ctas

    @cute.jit
    def select(
        self, logits: Int64, bias: Int64, ids: Int64, weights: Int64, token: Int32, thread: Int32
    ) -> None:
        """The choice of one token; thread e has expert e."""
        warp, lane = thread // _WARP, thread % _WARP
        maxima = cute.arch.alloc_smem(Uint32, _WARP, alignment=16).toint()
        keys = cute.arch.alloc_smem(Uint32, NUM_EXPERTS, alignment=16).toint()
        experts = cute.arch.alloc_smem(Int32, NUM_EXPERTS, alignment=16).toint()
        scores = cute.arch.alloc_smem(Float32, NUM_EXPERTS, alignment=16).toint()
        chosen = cute.arch.alloc_smem(Float32, TOP_K, alignment=16).toint()
        listed = cute.arch.alloc_smem(Int32, 4, alignment=16).toint()
        my_bias = ops.load_float(bias + Int64(thread) * 4)
        if thread < _WARP:
            ops.store_shared_word(maxima + thread * 4, Uint32(0))
        if thread == 0:
            ops.store_shared_word(listed, Int32(0))
        cute.arch.sync_threads()
        device.wait_for_dependencies()
        logit = ops.load_float(logits + (Int64(token) * NUM_EXPERTS + thread) * 4)
        tail = device.exp(device.select(logit < Float32(0.0), logit, -logit))
        score = ops.divide(device.select(logit < Float32(0.0), tail, 1.0), tail + Float32(1.0))
        key = _ordered(score + my_bias)
        largest = _warp_max(key)
        if lane == 0:
            ops.store_shared_word(maxima + warp * 4, largest)
        cute.arch.sync_threads()
        if key >= _bound(ops.load_shared_unsigned(maxima + lane * 4)):
            place = ops.add_shared(listed, Int32(1)) * 4
            ops.store_shared_word(keys + place, key)
            ops.store_shared_word(experts + place, thread)
            device.store_shared_f32(scores + place, score)
        cute.arch.sync_threads()
        count = ops.load_shared_word(listed)
        if thread < count:
            key = ops.load_shared_unsigned(keys + thread * 4)
            expert = ops.load_shared_word(experts + thread * 4)
            rank = Int32(0)
            for k in range(count):
                other = ops.load_shared_unsigned(keys + k * 4)
                is_lower = Int32(ops.load_shared_word(experts + k * 4) < expert)
                rank += Int32(other > key) + Int32(other == key) * is_lower
            if rank < TOP_K:
                device.store_word(ids + (Int64(token) * TOP_K + rank) * 4, expert)
                device.store_shared_f32(chosen + rank * 4, device.load_shared_f32(scores + thread * 4))
        cute.arch.sync_threads()
        if thread < TOP_K:
            total = Float32(0.0)
            for slot in cutlass.range_constexpr(TOP_K):
                total += device.load_shared_f32(chosen + slot * 4)
            mine = device.load_shared_f32(chosen + thread * 4)
            weight = ops.divide(mine, total + Float32(self.epsilon)) * Float32(self.scaling)
            ops.store_bf16(weights + (Int64(token) * TOP_K + thread) * 2, weight)


def _ordered(key: Any) -> Any:
    """An unsigned integer that is larger for a larger key; 0, below every other, for NaN."""
    return inline_ptx(
        "{ .reg .b32 m, k; .reg .pred p; mov.b32 k, {$r0}; shr.s32 m, k, 31; or.b32 m, m, 0x80000000; "
        "xor.b32 k, k, m; setp.nan.f32 p, {$r0}, {$r0}; selp.b32 {$w0}, 0, k, p; }",
        write_only_types=[Uint32],
        read_only_args=[Float32(key)],
    )


def _warp_max(value: Any) -> Any:
    return inline_ptx(
        "redux.sync.max.u32 {$w0}, {$r0}, 0xffffffff;", write_only_types=[Uint32], read_only_args=[value]
    )


def _bound(maximum: Any) -> Any:
    """The largest of the warps' maxima, one a lane, that at least sixteen of them reach."""
    reached = Int32(0)
    for other in range(_WARPS):
        reached += Int32(cute.arch.shuffle_sync(maximum, other) >= maximum)
    # A lane without a warp holds 0, which never exceeds a maximum.
    return _warp_max(maximum * Uint32(reached >= TOP_K))
