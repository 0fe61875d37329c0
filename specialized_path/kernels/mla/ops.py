"""Single PTX instructions on raw addresses: matrix fragments, bulk copies, packed conversions.

Shared addresses are Int32 (the shared window), global ones Int64. Every operand is a register; nothing here
synchronises unless its name says so.
"""

from __future__ import annotations

from typing import Any

from cutlass import BFloat16, Float16, Float32, Int32, Int64, Uint32
from cutlass.cute.arch import inline_ptx

LOG2_E = 1.4426950408889634
NEG_INF = float("-inf")
EMPTY_LSE = -3e38
"""LSE of a shard without tokens: finite, so that differences of two stay numbers."""


def ldmatrix_x4(address: Int32, *, trans: bool = False) -> tuple[Any, ...]:
    """Four 8x8 matrices of 16-bit units; lane l gives the row address `l % 8` of matrix `l // 8`."""
    suffix = ".trans" if trans else ""
    return inline_ptx(
        f"ldmatrix.sync.aligned.m8n8.x4{suffix}.shared.b16 {{{{$w0}},{{$w1}},{{$w2}},{{$w3}}}}, [{{$r0}}];",
        write_only_types=[Uint32] * 4,
        read_only_args=[address],
    )


def mma_16816(a: Any, b: Any, acc: Any, dtype: type) -> tuple[Any, ...]:
    """One m16n8k16 product of 16-bit operands added to four float32 accumulators.

    Lane l holds rows `l // 4` (acc 0, 1) and `l // 4 + 8` (acc 2, 3), columns `2 (l % 4)` and the next.

    Args:
        a: four registers, rows x k.
        b: two registers, k x columns.
        acc: four Float32.
        dtype: BFloat16 or Float16, of both operands.
    """
    name = {BFloat16: "bf16", Float16: "f16"}[dtype]
    return inline_ptx(
        f"mma.sync.aligned.m16n8k16.row.col.f32.{name}.{name}.f32 "
        "{{$w0},{$w1},{$w2},{$w3}}, {{$r0},{$r1},{$r2},{$r3}}, {{$r4},{$r5}}, {{$r6},{$r7},{$r8},{$r9}};",
        write_only_types=[Float32] * 4,
        read_only_args=[*a, *b, *acc],
    )


def e4m3x4_to_f16x2(word: Uint32) -> tuple[Any, Any]:
    """Four e4m3 bytes as two registers of two float16: bytes 0, 1 and bytes 2, 3. Exact."""
    return inline_ptx(
        "{ .reg .b16 lo, hi; mov.b32 {lo, hi}, {$r0}; "
        "cvt.rn.f16x2.e4m3x2 {$w0}, lo; cvt.rn.f16x2.e4m3x2 {$w1}, hi; }",
        write_only_types=[Uint32, Uint32],
        read_only_args=[word],
    )


def e4m3x4_interleaved_to_f16x2(word: Uint32) -> tuple[Any, Any]:
    """Bytes 0, 2 in the first register of two float16, bytes 1, 3 in the second."""
    return inline_ptx(
        "{ .reg .b32 t; .reg .b16 lo, hi; prmt.b32 t, {$r0}, 0, 0x3120; mov.b32 {lo, hi}, t; "
        "cvt.rn.f16x2.e4m3x2 {$w0}, lo; cvt.rn.f16x2.e4m3x2 {$w1}, hi; }",
        write_only_types=[Uint32, Uint32],
        read_only_args=[word],
    )


def pack_e4m3x4(values: Any) -> Uint32:
    """Four Float32, first in the lowest byte, to nearest even and pinned to +-448; NaN stays NaN."""
    return inline_ptx(
        "{ .reg .b16 lo, hi; cvt.rn.satfinite.e4m3x2.f32 lo, {$r1}, {$r0}; "
        "cvt.rn.satfinite.e4m3x2.f32 hi, {$r3}, {$r2}; mov.b32 {$w0}, {lo, hi}; }",
        write_only_types=[Uint32],
        read_only_args=list(values),
    )


def pack_x2(low: Float32, high: Float32, dtype: type) -> Uint32:
    """Two Float32 rounded to nearest even BFloat16 or Float16, `low` in the lower half."""
    name = {BFloat16: "bf16x2", Float16: "f16x2"}[dtype]
    return inline_ptx(
        f"cvt.rn.{name}.f32 {{$w0}}, {{$r1}}, {{$r0}};",
        write_only_types=[Uint32],
        read_only_args=[low, high],
    )


def unpack_x2(word: Uint32, dtype: type) -> tuple[Any, Any]:
    """The two halves of a register of BFloat16 or Float16 as Float32, lower half first."""
    if dtype is BFloat16:
        code = "{ shl.b32 {$w0}, {$r0}, 16; and.b32 {$w1}, {$r0}, 0xffff0000; }"
        low, high = inline_ptx(code, write_only_types=[Uint32, Uint32], read_only_args=[word])
        return low.bitcast(Float32), high.bitcast(Float32)
    return inline_ptx(
        "{ .reg .b16 lo, hi; mov.b32 {lo, hi}, {$r0}; cvt.f32.f16 {$w0}, lo; cvt.f32.f16 {$w1}, hi; }",
        write_only_types=[Float32, Float32],
        read_only_args=[word],
    )


def exp2(x: Float32) -> Float32:
    """2^x to 2 ulp; subnormal results are flushed; -inf gives 0."""
    return inline_ptx("ex2.approx.ftz.f32 {$w0}, {$r0};", write_only_types=[Float32], read_only_args=[x])


def log2(x: Float32) -> Float32:
    """Base-2 logarithm, absolute error about 2^-22."""
    return inline_ptx("lg2.approx.f32 {$w0}, {$r0};", write_only_types=[Float32], read_only_args=[x])


def rsqrt(x: Float32) -> Float32:
    """x^-1/2 to 2 ulp."""
    return inline_ptx("rsqrt.approx.f32 {$w0}, {$r0};", write_only_types=[Float32], read_only_args=[x])


def divide(x: Float32, y: Float32) -> Float32:
    """x / y correctly rounded."""
    return inline_ptx("div.rn.f32 {$w0}, {$r0}, {$r1};", write_only_types=[Float32], read_only_args=[x, y])


def maximum(x: Float32, y: Float32) -> Float32:
    """The larger one, NaN when either is."""
    return inline_ptx("max.NaN.f32 {$w0}, {$r0}, {$r1};", write_only_types=[Float32], read_only_args=[x, y])


def shared_load(address: Int32, dtype: type, count: int = 1) -> Any:
    """`count` (1, 2 or 4) 32-bit values of type `dtype`; one value is not a tuple."""
    return _load("ld.shared", address, dtype, count)


def global_load(address: Int64, dtype: type, count: int = 1) -> Any:
    """`count` 32-bit values of memory that other grids or CTAs write."""
    return _load("ld.global", address, dtype, count)


def weight_load(address: Int64, dtype: type, count: int = 1) -> Any:
    """`count` 32-bit values of memory that nobody writes while the grid runs."""
    return _load("ld.global.nc", address, dtype, count)


def shared_store(address: Int32, *values: Any) -> None:
    """1, 2 or 4 32-bit values of one type."""
    _store("st.shared", address, values)


def cluster_store(address: Int32, *values: Any) -> None:
    """1, 2 or 4 32-bit values to the shared memory of a CTA of the cluster; address from `map_to_cta`."""
    _store("st.shared::cluster", address, values)


def global_store(address: Int64, *values: Any) -> None:
    """1, 2 or 4 32-bit values of one type."""
    _store("st.global", address, values)


def map_to_cta(address: Int32, rank: Int32) -> Int32:
    """The cluster-window address of the same place in the shared memory of CTA `rank` of the cluster."""
    return inline_ptx(
        "mapa.shared::cluster.u32 {$w0}, {$r0}, {$r1};",
        write_only_types=[Int32],
        read_only_args=[address, rank],
    )


def copy_async_16(shared: Int32, source: Int64) -> None:
    """16 bytes of global memory to shared memory, past L1; completes with the thread's cp.async group."""
    inline_ptx("cp.async.cg.shared.global [{$r0}], [{$r1}], 16;", read_only_args=[shared, source])


def bulk_copy(shared: Int32, source: Int64, num_bytes: int, mbarrier: Int32) -> None:
    """`num_bytes` (a multiple of 16) to shared memory by the copy engine; `mbarrier` counts the bytes."""
    inline_ptx(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{$r0}], [{$r1}], {$r2}, [{$r3}];",
        read_only_args=[shared, source, Int32(num_bytes), mbarrier],
    )


def mbarrier_init(mbarrier: Int32, count: int) -> None:
    """Make ready for phases of `count` arrivals."""
    inline_ptx("mbarrier.init.shared.b64 [{$r0}], {$r1};", read_only_args=[mbarrier, Int32(count)])


def mbarrier_arrive(mbarrier: Int32) -> None:
    """One arrival; the thread's accesses before are ordered before the phase completes."""
    inline_ptx("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [{$r0}]; }", read_only_args=[mbarrier])


def mbarrier_arrive_expect(mbarrier: Int32, num_bytes: int) -> None:
    """One arrival that adds `num_bytes` to what the phase waits for."""
    inline_ptx(
        "{ .reg .b64 t; mbarrier.arrive.expect_tx.shared.b64 t, [{$r0}], {$r1}; }",
        read_only_args=[mbarrier, Int32(num_bytes)],
    )


def mbarrier_wait(mbarrier: Int32, parity: Int32) -> None:
    """Wait for the phase of that parity to complete."""
    inline_ptx(
        "{ .reg .pred p; WAIT: mbarrier.try_wait.parity.shared.b64 p, [{$r0}], {$r1}; @!p bra WAIT; }",
        read_only_args=[mbarrier, parity],
    )


def _vector(count: int) -> str:
    return {1: "", 2: ".v2", 4: ".v4"}[count]


def _letter(dtype: type) -> str:
    return {Float32: "f32", Uint32: "b32", Int32: "b32"}[dtype]


def _load(opcode: str, address: Any, dtype: type, count: int) -> Any:
    names = ",".join(f"{{$w{i}}}" for i in range(count))
    operand = f"{{{names}}}" if count > 1 else names
    return inline_ptx(
        f"{opcode}{_vector(count)}.{_letter(dtype)} {operand}, [{{$r0}}];",
        write_only_types=[dtype] * count,
        read_only_args=[address],
    )


def _store(opcode: str, address: Any, values: tuple[Any, ...]) -> None:
    names = ",".join(f"{{$r{i + 1}}}" for i in range(len(values)))
    operand = f"{{{names}}}" if len(values) > 1 else names
    inline_ptx(
        f"{opcode}{_vector(len(values))}.{_letter(type(values[0]))} [{{$r0}}], {operand};",
        read_only_args=[address, *values],
    )


def global_load_int64(address: Int64) -> Int64:
    """One 64-bit integer."""
    return inline_ptx("ld.global.b64 {$w0}, [{$r0}];", write_only_types=[Int64], read_only_args=[address])


def store_e4m3x2(address: Int64, low: Float32, high: Float32) -> None:
    """Two Float32 as e4m3, `low` first, to nearest even and pinned to +-448; NaN stays NaN."""
    inline_ptx(
        "{ .reg .b16 t; cvt.rn.satfinite.e4m3x2.f32 t, {$r2}, {$r1}; st.global.b16 [{$r0}], t; }",
        read_only_args=[address, low, high],
    )


def scale_pair(word: Any, weights: Any, factor: Float32) -> Uint32:
    """Two BFloat16 times `factor` times their BFloat16 weights, rounded once."""
    low, high = unpack_x2(word, BFloat16)
    first, second = unpack_x2(weights, BFloat16)
    return pack_x2(low * factor * first, high * factor * second, BFloat16)
