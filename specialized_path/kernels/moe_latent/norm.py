"""The norm on the combined latent: the end of OC-17. A CTA has a token, a thread eight columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64

from specialized_path.kernels.common import device
from specialized_path.kernels.moe_latent.geometry import LATENT

_COLUMNS = 8
_THREADS = LATENT // _COLUMNS
_WARPS = _THREADS // 32


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentNormKernel:
    """The kernel; `epsilon` is added to the mean square."""

    epsilon: float = 1e-5

    @cute.jit
    def __call__(
        self,
        latent: cute.Pointer,
        weight: cute.Pointer,
        out: cute.Pointer,
        out_stride: Int64,
        num_tokens: Int32,
        use_pdl: Int32,
        stream: Any,
    ) -> None:
        """`out = latent * rsqrt(mean(latent^2) + epsilon) * weight`, by row; rows of `out` every `out_stride` bytes."""
        self.kernel(latent, weight, out, out_stride).launch(
            grid=(num_tokens, 1, 1), block=(_THREADS, 1, 1), stream=stream, use_pdl=use_pdl
        )

    @cute.kernel
    def kernel(
        self, latent: cute.Pointer, weight: cute.Pointer, out: cute.Pointer, out_stride: Int64
    ) -> None:
        """CTA t serves token t."""
        token, _, _ = cute.arch.block_idx()
        thread, _, _ = cute.arch.thread_idx()
        squares = cute.arch.alloc_smem(Float32, _WARPS, alignment=16).toint()
        # What the grid behind reads above its wait is static: it may bring its weights while this one waits.
        device.release_dependents()
        column = Int64(thread) * (_COLUMNS * 2)
        scale = _floats(device.load_words(weight.toint() + column))
        device.wait_for_dependencies()
        values = _floats(device.load_words(latent.toint() + Int64(token) * (LATENT * 2) + column))
        square = Float32(0.0)
        for value in values:
            square = square + value * value
        square = device.warp_sum(square)
        if thread % 32 == 0:
            device.store_shared_f32(squares + thread // 32 * 4, square)
        cute.arch.sync_threads()
        total = Float32(0.0)
        for warp in cutlass.range_constexpr(_WARPS):
            total += device.load_shared_f32(squares + warp * 4)
        inverse = device.rsqrt(total * Float32(1.0 / LATENT) + Float32(self.epsilon))
        normed = [value * inverse * w for value, w in zip(values, scale, strict=True)]
        pairs = zip(normed[::2], normed[1::2], strict=True)
        there = out.toint() + Int64(token) * out_stride + column
        device.store_words(there, tuple(device.pack_bf16(*pair) for pair in pairs))


def _floats(words: tuple[Any, ...]) -> list[Any]:
    return [value for word in words for value in device.unpack_bf16(word)]
