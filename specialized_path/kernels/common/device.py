"""Device functions on raw addresses: wide loads and stores, asynchronous copies, matrix products, BF16 pairs.

Addresses are integers: 64-bit in global memory, 32-bit in shared memory (`Pointer.toint()` gives either).
"""

from __future__ import annotations

from typing import Any

import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint32
from cutlass.cute.arch import inline_ptx
from cutlass.cutlass_dsl import select_

wait_for_dependencies = cute.arch.griddepcontrol_wait
"""Nothing that a grid before wrote, and that is not static or settled, may be read or overwritten above this."""
release_dependents = cute.arch.griddepcontrol_launch_dependents
"""Call after `wait_for_dependencies`: what lies two launches back is then complete for the grids behind."""

EVICT_FIRST = 0x12F0000000000000
"""L2 policy for data that is read once, e.g. streamed weights (the encoding that `createpolicy` gives for it)."""


def load_words(address: Any, count: int = 4, modifier: str = "") -> tuple[Any, ...]:
    """`count` (2 or 4) 32-bit words of global memory; `modifier` e.g. ".nc.L1::no_allocate" for read-only data."""
    names = ",".join(f"{{$w{i}}}" for i in range(count))
    code = f"ld.global{modifier}.v{count}.b32 {{{names}}}, [{{$r0}}];"
    return tuple(inline_ptx(code, write_only_types=[Uint32] * count, read_only_args=[Int64(address)]))


def load_address(address: Any) -> Any:
    """One 64-bit address of a table that no grid writes."""
    return inline_ptx(
        "ld.global.nc.b64 {$w0}, [{$r0}];", write_only_types=[Int64], read_only_args=[Int64(address)]
    )


def store_words(address: Any, words: tuple[Any, ...]) -> None:
    """2 or 4 32-bit words to global memory."""
    names = ",".join(f"{{$r{i + 1}}}" for i in range(len(words)))
    code = f"st.global.v{len(words)}.b32 [{{$r0}}], {{{names}}};"
    inline_ptx(code, read_only_args=[Int64(address), *words])


def store_word(address: Any, word: Any) -> None:
    """One 32-bit word to global memory."""
    inline_ptx("st.global.b32 [{$r0}], {$r1};", read_only_args=[Int64(address), word])


def load_shared_f32(address: Any) -> Any:
    """One FP32 value of this CTA's shared memory."""
    return inline_ptx(
        "ld.shared.f32 {$w0}, [{$r0}];", write_only_types=[Float32], read_only_args=[Int32(address)]
    )


def load_shared_f32x2(address: Any) -> tuple[Any, Any]:
    """Two neighbouring FP32 values of this CTA's shared memory, 8-byte aligned."""
    low, high = inline_ptx(
        "ld.shared.v2.f32 {{$w0},{$w1}}, [{$r0}];",
        write_only_types=[Float32] * 2,
        read_only_args=[Int32(address)],
    )
    return low, high


def store_shared_f32(address: Any, value: Any) -> None:
    """One FP32 value to this CTA's shared memory."""
    inline_ptx("st.shared.f32 [{$r0}], {$r1};", read_only_args=[Int32(address), Float32(value)])


def peer_address(address: Any, cta_rank: Any) -> Any:
    """The address, in the cluster's window, of the same shared-memory place in another CTA of the cluster."""
    return inline_ptx(
        "mapa.shared::cluster.u32 {$w0}, {$r0}, {$r1};",
        write_only_types=[Int32],
        read_only_args=[Int32(address), Int32(cta_rank)],
    )


def load_peer_f32x2(address: Any) -> tuple[Any, Any]:
    """Two neighbouring FP32 values of a peer's shared memory, 8-byte aligned; `address` from `peer_address`."""
    low, high = inline_ptx(
        "ld.shared::cluster.v2.f32 {{$w0},{$w1}}, [{$r0}];",
        write_only_types=[Float32] * 2,
        read_only_args=[Int32(address)],
    )
    return low, high


def cluster_barrier() -> None:
    """All threads of the cluster meet, and see what the others wrote before."""
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()


def release_reads() -> None:
    """Orders this thread's shared-memory reads before bulk copies that its next arrival lets in.

    Without it a copy may overtake a read that has been issued: an arrival does not order the two proxies (PTX ISA,
    "async proxy"), and ptxas lets it follow the load without waiting for the data.
    """
    inline_ptx("fence.proxy.async.shared::cta;")


def load_matrices(address: Any, count: int) -> tuple[Any, ...]:
    """`count` (2 or 4) matrices of 8 x 8 BF16 of shared memory (`ldmatrix`): lane i gives the address of row i % 8 of
    matrix i // 8, and gets words (l // 4, 2 (l % 4)) of each."""
    names = ",".join(f"{{$w{i}}}" for i in range(count))
    return tuple(
        inline_ptx(
            f"ldmatrix.sync.aligned.m8n8.x{count}.shared.b16 {{{names}}}, [{{$r0}}];",
            write_only_types=[Uint32] * count,
            read_only_args=[Int32(address)],
        )
    )


def mma_bf16(acc: tuple[Any, ...], a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    """`acc + A B` for one 16 x 8 tile over 16 of K: `mma.sync.m16n8k16`, BF16 in, FP32 sums.

    Lane l holds, with g = l // 4 and t = l % 4: of A words (g, 2t), (g+8, 2t), (g, 2t+8), (g+8, 2t+8), of B words
    (2t, g), (2t+8, g), of the sums (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1).
    """
    return tuple(
        inline_ptx(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {{$w0},{$w1},{$w2},{$w3}}, "
            "{{$r0},{$r1},{$r2},{$r3}}, {{$r4},{$r5}}, {{$r6},{$r7},{$r8},{$r9}};",
            write_only_types=[Float32] * 4,
            read_only_args=[*a, *b, *acc],
        )
    )


def unpack_bf16(word: Any) -> tuple[Any, Any]:
    """The low and the high BF16 of a word, as FP32."""
    low = inline_ptx("shl.b32 {$w0}, {$r0}, 16;", write_only_types=[Float32], read_only_args=[word])
    high = inline_ptx("and.b32 {$w0}, {$r0}, 0xffff0000;", write_only_types=[Float32], read_only_args=[word])
    return low, high


def pack_bf16(low: Any, high: Any) -> Any:
    """Two FP32 values, each rounded once to BF16 (nearest, ties to even), as one word."""
    return inline_ptx(
        "cvt.rn.bf16x2.f32 {$w0}, {$r1}, {$r0};",
        write_only_types=[Uint32],
        read_only_args=[Float32(low), Float32(high)],
    )


def warp_sum(value: Any, lanes: int = 32) -> Any:
    """The sum over each group of `lanes` neighbouring lanes, the same bits in every lane."""
    return cute.arch.warp_reduction_sum(value, threads_in_group=lanes)


def select(condition: Any, if_true: Any, if_false: Any) -> Any:
    """One of two FP32 values, without a branch."""
    return Float32(select_(condition, Float32(if_true), Float32(if_false)))


def rsqrt(value: Any) -> Any:
    """`1 / sqrt(value)`, relative error below 2^-22.9 (PTX ISA)."""
    return inline_ptx(
        "rsqrt.approx.f32 {$w0}, {$r0};", write_only_types=[Float32], read_only_args=[Float32(value)]
    )


def exp(value: Any) -> Any:
    """`e^value`, relative error about 2^-22 plus 2^-24 |value|; 0 at -infinity."""
    scaled = Float32(value) * Float32(1.4426950408889634)
    return inline_ptx("ex2.approx.f32 {$w0}, {$r0};", write_only_types=[Float32], read_only_args=[scaled])


def warp_sums(values: list[Any], lane: Any) -> Any:
    """The sums over the warp of up to 32 values (a power of two), value i in lanes `32 i / n ... 32 (i + 1) / n - 1`.

    Each step halves the values a lane carries, so that n values take n + 4 - log2(n) shuffles at most.
    """
    offset = 16
    while len(values) > 1:
        half, upper = len(values) // 2, (lane & offset) != 0
        kept = [select(upper, values[half + i], values[i]) for i in range(half)]
        sent = [select(upper, values[i], values[half + i]) for i in range(half)]
        values = [k + cute.arch.shuffle_sync_bfly(s, offset=offset) for k, s in zip(kept, sent, strict=True)]
        offset //= 2
    return warp_sum(values[0], lanes=2 * offset) if offset else values[0]
