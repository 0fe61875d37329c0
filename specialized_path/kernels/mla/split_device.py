"""The device's side of the split plan, and the share of a context-parallel rank; `SplitPlan` says what they mean."""

from __future__ import annotations

import cutlass
from cutlass import Int32, cute

from specialized_path.kernels.mla.split_plan import GRANULE


@cute.jit
def chunk_tokens(length: Int32, target_splits: Int32, longest_chunk: Int32, max_splits: Int32) -> Int32:
    """`SplitPlan.chunk_tokens`."""
    even = cutlass.min(granules(ceil_div(length, target_splits)), longest_chunk)
    return cutlass.max(GRANULE, cutlass.max(even, granules(ceil_div(length, max_splits))))


@cute.jit
def ceil_div(value: Int32, divisor: Int32) -> Int32:
    """The quotient rounded up, for a value of at least 0."""
    return (value + (divisor - 1)) // divisor


@cute.jit
def granules(tokens: Int32) -> Int32:
    """Tokens rounded up to whole granules."""
    return ceil_div(tokens, Int32(GRANULE)) * GRANULE


@cute.jit
def local_len(length: Int32, rank: Int32, size: Int32, interleave: Int32) -> Int32:
    """How many of the first `length` tokens lie on `rank`: token i is on `(i // interleave) % size`."""
    result = length
    if size > 1:
        block = interleave * size
        whole = length // block
        rest = length - whole * block - rank * interleave
        result = whole * interleave + cutlass.max(0, cutlass.min(rest, interleave))
    return result
