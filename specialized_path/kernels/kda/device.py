"""What the KDA kernel does with numbers in registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cutlass.cute as cute
from cutlass import Float32
from cutlass.cute.arch import inline_ptx

from specialized_path.kernels.common.device import select

LOG2E = 1.4426950408889634


def at(pointer: cute.Pointer) -> cute.Tensor:
    """The one element behind a pointer."""
    return cute.make_tensor(pointer, cute.make_layout(1))


def xor_lane(value: Float32, mask: int) -> Float32:
    """The value of the lane whose number differs by `mask`."""
    return cute.arch.shuffle_sync_bfly(value, mask)


def exp2(x: Float32) -> Float32:
    """`2^x`, relative error about 2^-22; exactly 1 at 0."""
    result: Float32 = inline_ptx(
        "ex2.approx.ftz.f32 {$w0}, {$r0};", write_only_types=[Float32], read_only_args=[Float32(x)]
    )
    return result


def sigmoid(x: Float32) -> Float32:
    """`1 / (1 + e^-x)`, relative error about 2^-22 for moderate x; exactly 0 and 1 at saturation."""
    result: Float32 = inline_ptx(
        "rcp.approx.ftz.f32 {$w0}, {$r0};",
        write_only_types=[Float32],
        read_only_args=[Float32(1.0) + exp2(x * Float32(-LOG2E))],
    )
    return result


def reduce_transposed(values: Sequence[Float32], lane: Any, masks: Sequence[int]) -> Float32:
    """Sums over the lanes that `masks` span, spread out: a lane keeps one of the values.

    While there are several values, a lane gives half of them to its partner; which half it keeps is told by its bit.
    The sums are added in the order of a butterfly over `masks`.
    """
    left = list(values)
    for mask in masks:
        if len(left) == 1:
            left = [left[0] + xor_lane(left[0], mask)]
            continue
        is_upper = (lane & mask) != 0
        middle = len(left) // 2
        left = [
            select(is_upper, upper, lower) + xor_lane(select(is_upper, lower, upper), mask)
            for lower, upper in zip(left[:middle], left[middle:], strict=True)
        ]
    return left[0]
