"""The weighted sum over slots and the norm on it: OC-17, for a layer whose latents need no sum over ranks.

An alternative to the end of `moe_experts.down` and to `norm`. A CTA, or a cluster, has a token, a thread eight or four
columns of it. It copies its columns of all slots at once, through shared memory, since registers do not hold them;
they are weighted and added in slot order, rounded, and normed as the contract says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint8, Uint32

from specialized_path.kernels.common import device
from specialized_path.kernels.common.cluster import ClusterSums
from specialized_path.kernels.moe_experts import ops
from specialized_path.kernels.moe_latent.geometry import LATENT, NUM_EXPERTS, TOP_K


@dataclass(frozen=True, slots=True, kw_only=True)
class CombineNormKernel:
    """The kernel; `epsilon` is added to the mean square."""

    ctas: int = 4
    """Of a token: 1, 2 or 4."""
    epsilon: float = 1e-5

    @property
    def columns(self) -> int:
        """Of a thread."""
        return 8 if self.ctas == 1 else 4

    @property
    def threads(self) -> int:
        """Of a CTA."""
        return LATENT // (self.columns * self.ctas)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory: all slots' columns of the CTA."""
        return TOP_K * self.threads * self.columns * 2

    @cute.jit
    def __call__(
        self,
        outputs: cute.Pointer,
        topk_ids: cute.Pointer,
        topk_weights: cute.Pointer,
        weight: cute.Pointer,
        normed: cute.Pointer,
        normed_stride: Int64,
        num_tokens: Int32,
        use_pdl: Int32,
        stream: Any,
    ) -> None:
        """`normed = rmsnorm(sum over slots of topk_weights[b, slot] outputs[b, slot]) * weight`, by row.

        Rows of `normed` lie every `normed_stride` bytes. A row with an id of no expert is NaN.
        """
        self.kernel(outputs, topk_ids, topk_weights, weight, normed, normed_stride).launch(
            grid=(num_tokens * self.ctas, 1, 1),
            cluster=(self.ctas, 1, 1),
            block=(self.threads, 1, 1),
            smem=self.shared_bytes,
            stream=stream,
            use_pdl=use_pdl,
        )

    @cute.kernel
    def kernel(
        self,
        outputs: cute.Pointer,
        topk_ids: cute.Pointer,
        topk_weights: cute.Pointer,
        weight: cute.Pointer,
        normed: cute.Pointer,
        normed_stride: Int64,
    ) -> None:
        """Cluster t serves token t."""
        size: cutlass.Constexpr = self.columns * 2
        block, _, _ = cute.arch.block_idx()
        thread, _, _ = cute.arch.thread_idx()
        # What the grid behind reads above its wait is static: it may bring its weights while this one waits.
        device.release_dependents()
        if cutlass.const_expr(self.ctas > 1):
            cute.arch.cluster_arrive_relaxed()
        mine = cute.arch.get_dyn_smem(Uint8, alignment=128).toint() + thread * size
        token, cta = block // self.ctas, block % self.ctas
        away = Int64(cta * self.threads + thread) * size
        scale = _floats(device.load_words(weight.toint() + away, self.columns // 2))
        # Ids and weights were settled when the kernel in front triggered, behind its wait.
        ids = [
            word
            for i in range(TOP_K // 4)
            for word in device.load_words(topk_ids.toint() + (Int64(token) * TOP_K + 4 * i) * 4)
        ]
        weights = [
            value
            for i in range(TOP_K // 8)
            for value in _floats(device.load_words(topk_weights.toint() + (Int64(token) * TOP_K + 8 * i) * 2))
        ]
        device.wait_for_dependencies()
        start = outputs.toint() + Int64(token) * (TOP_K * LATENT * 2) + away
        for slot in cutlass.range_constexpr(TOP_K):
            ops.copy_async(mine + slot * (self.threads * size), start + slot * (LATENT * 2), size)
        ops.commit_copies()
        ops.wait_for_copies(0)
        total = [Float32(0.0)] * self.columns
        for slot in cutlass.range_constexpr(TOP_K):
            # An expert that there is not stored nothing.
            factor = device.select(Uint32(ids[slot]) < Uint32(NUM_EXPERTS), weights[slot], float("nan"))
            words = _load_shared(mine + slot * (self.threads * size), self.columns // 2)
            total = [ops.fma(factor, y, t) for y, t in zip(_floats(words), total, strict=True)]
        values = _floats(tuple(device.pack_bf16(*pair) for pair in _pairs(total)))
        square = Float32(0.0)
        for value in values:
            square = square + value * value
        inverse = device.rsqrt(
            self.total(square, cta, thread) * Float32(1.0 / LATENT) + Float32(self.epsilon)
        )
        result = [value * inverse * w for value, w in zip(values, scale, strict=True)]
        there = normed.toint() + Int64(token) * normed_stride + away
        device.store_words(there, tuple(device.pack_bf16(*pair) for pair in _pairs(result)))

    def total(self, square: Any, cta: Any, thread: Any) -> Any:
        """The sum over all threads of a token."""
        if self.ctas > 1:
            cute.arch.cluster_wait()
            return ClusterSums(cta, thread, self.ctas, self.threads // 32).sum(square)
        squares = cute.arch.alloc_smem(Float32, self.threads // 32, alignment=16).toint()
        return _sum_of_cta(squares, device.warp_sum(square), thread, self.threads // 32)


@cute.jit
def _sum_of_cta(squares: Int32, mine: Float32, thread: Int32, warps: cutlass.Constexpr) -> Float32:
    """The warps' sums in their order, as in `norm`."""
    if thread % 32 == 0:
        device.store_shared_f32(squares + thread // 32 * 4, mine)
    cute.arch.sync_threads()
    total = Float32(0.0)
    for warp in cutlass.range_constexpr(warps):
        total += device.load_shared_f32(squares + warp * 4)
    return total


def _load_shared(address: Any, count: int) -> tuple[Any, ...]:
    return ops.load_shared_words(address) if count == 4 else ops.load_shared_pair(address)


def _pairs(values: list[Any]) -> Any:
    return zip(values[::2], values[1::2], strict=True)


def _floats(words: tuple[Any, ...]) -> list[Any]:
    return [value for word in words for value in device.unpack_bf16(word)]
