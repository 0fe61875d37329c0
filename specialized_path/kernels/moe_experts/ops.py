"""Single instructions that only the kernels of the experts need. Shared addresses are Int32, global ones Int64."""

from __future__ import annotations

from typing import Any

from cutlass import Float32, Int32, Int64, Uint32
from cutlass.cute.arch import inline_ptx

from specialized_path.kernels.common import device

_LINEAR_BOUND = 0.5
_TANH = (-0.333331435918808, 0.13325878977775574, -0.05304549261927605, 0.01724148727953434)
"""tanh(x) = x + x^3 p(x^2) below `_LINEAR_BOUND`: a fit of ours for the smallest relative error, 7e-8 in FP32."""


def load_shared_word(address: Any) -> Any:
    """One word of shared memory."""
    return inline_ptx("ld.shared.b32 {$w0}, [{$r0}];", write_only_types=[Int32], read_only_args=[address])


def load_shared_unsigned(address: Any) -> Any:
    """One word of shared memory, as bits."""
    return inline_ptx("ld.shared.b32 {$w0}, [{$r0}];", write_only_types=[Uint32], read_only_args=[address])


def load_shared_words(address: Any) -> tuple[Any, ...]:
    """Four words of shared memory, 16-byte aligned."""
    return tuple(
        inline_ptx(
            "ld.shared.v4.b32 {{$w0},{$w1},{$w2},{$w3}}, [{$r0}];",
            write_only_types=[Uint32] * 4,
            read_only_args=[address],
        )
    )


def store_shared_word(address: Any, word: Any) -> None:
    """One word to shared memory."""
    inline_ptx("st.shared.b32 [{$r0}], {$r1};", read_only_args=[address, word])


def store_shared_words(address: Any, words: tuple[Any, ...]) -> None:
    """Four words to shared memory, 16-byte aligned."""
    inline_ptx("st.shared.v4.b32 [{$r0}], {{$r1},{$r2},{$r3},{$r4}};", read_only_args=[address, *words])


def load_shared_pair(address: Any) -> tuple[Any, ...]:
    """Two words of shared memory, 8-byte aligned."""
    return tuple(
        inline_ptx(
            "ld.shared.v2.b32 {{$w0},{$w1}}, [{$r0}];",
            write_only_types=[Uint32] * 2,
            read_only_args=[address],
        )
    )


def load_shared_sums(address: Any) -> tuple[Any, ...]:
    """Four FP32 values of shared memory, 16-byte aligned."""
    return tuple(
        inline_ptx(
            "ld.shared.v4.f32 {{$w0},{$w1},{$w2},{$w3}}, [{$r0}];",
            write_only_types=[Float32] * 4,
            read_only_args=[address],
        )
    )


def store_shared_sums(address: Any, values: Any) -> None:
    """Four FP32 values to shared memory, 16-byte aligned."""
    inline_ptx("st.shared.v4.f32 [{$r0}], {{$r1},{$r2},{$r3},{$r4}};", read_only_args=[address, *values])


def store_shared_bf16(address: Any, value: Any) -> None:
    """One FP32 value, rounded once to BF16, to shared memory."""
    inline_ptx(
        "{ .reg .b16 t; cvt.rn.bf16.f32 t, {$r1}; st.shared.b16 [{$r0}], t; }",
        read_only_args=[address, Float32(value)],
    )


def store_peer_bf16(address: Any, value: Any) -> None:
    """One FP32 value, rounded once to BF16, to shared memory of a CTA of the cluster (`device.peer_address`)."""
    inline_ptx(
        "{ .reg .b16 t; cvt.rn.bf16.f32 t, {$r1}; st.shared::cluster.b16 [{$r0}], t; }",
        read_only_args=[address, Float32(value)],
    )


def store_bf16(address: Any, value: Any) -> None:
    """One FP32 value, rounded once to BF16, to global memory."""
    inline_ptx(
        "{ .reg .b16 t; cvt.rn.bf16.f32 t, {$r1}; st.global.b16 [{$r0}], t; }",
        read_only_args=[Int64(address), Float32(value)],
    )


def add_shared(address: Any, value: Any) -> Any:
    """Adds to a word of shared memory; gives what it was."""
    return inline_ptx(
        "atom.shared.add.u32 {$w0}, [{$r0}], {$r1};",
        write_only_types=[Int32],
        read_only_args=[address, value],
    )


def load_word(address: Any) -> Any:
    """One word of global memory."""
    return inline_ptx(
        "ld.global.b32 {$w0}, [{$r0}];", write_only_types=[Int32], read_only_args=[Int64(address)]
    )


def load_unsigned(address: Any) -> Any:
    """One word of global memory, as bits."""
    return inline_ptx(
        "ld.global.b32 {$w0}, [{$r0}];", write_only_types=[Uint32], read_only_args=[Int64(address)]
    )


def load_float(address: Any) -> Any:
    """One FP32 value of global memory."""
    return inline_ptx(
        "ld.global.f32 {$w0}, [{$r0}];", write_only_types=[Float32], read_only_args=[Int64(address)]
    )


def store_floats(address: Any, low: Any, high: Any) -> None:
    """Two FP32 values to global memory, 8-byte aligned."""
    inline_ptx(
        "st.global.v2.f32 [{$r0}], {{$r1},{$r2}};",
        read_only_args=[Int64(address), Float32(low), Float32(high)],
    )


def divide(x: Any, y: Any) -> Any:
    """`x / y`, rounded once."""
    return inline_ptx("div.rn.f32 {$w0}, {$r0}, {$r1};", write_only_types=[Float32], read_only_args=[x, y])


def copy_weights_async(shared: Any, source: Any) -> None:
    """Sixteen bytes of weights, which are read once, to shared memory by this thread's asynchronous copies."""
    inline_ptx(
        "cp.async.cg.shared.global.L2::cache_hint [{$r0}], [{$r1}], 16, {$r2};",
        read_only_args=[shared, Int64(source), Int64(device.EVICT_FIRST)],
    )


def copy_async(shared: Any, source: Any, num_bytes: int) -> None:
    """Four or eight bytes to shared memory by this thread's asynchronous copies."""
    inline_ptx(
        f"cp.async.ca.shared.global [{{$r0}}], [{{$r1}}], {num_bytes};",
        read_only_args=[shared, Int64(source)],
    )


def load_weights(address: Any, count: int) -> tuple[Any, ...]:
    """Two or four words of weights, which are read once."""
    names = ",".join(f"{{$w{i}}}" for i in range(count))
    return tuple(
        inline_ptx(
            f"ld.global.nc.L1::no_allocate.L2::cache_hint.v{count}.b32 {{{names}}}, [{{$r0}}], {{$r1}};",
            write_only_types=[Uint32] * count,
            read_only_args=[Int64(address), Int64(device.EVICT_FIRST)],
        )
    )


def bring_to_l2(source: Any, num_bytes: int) -> None:
    """Asks for bytes, a multiple of 16, to come to L2 from memory; nothing waits for them."""
    inline_ptx(f"cp.async.bulk.prefetch.L2.global [{{$r0}}], {num_bytes};", read_only_args=[Int64(source)])


def bring_weights_to_l2(source: Any, num_bytes: int) -> None:
    """As `bring_to_l2`, for weights that are read once and soon: they give way first."""
    inline_ptx(
        f"cp.async.bulk.prefetch.L2.global.L2::cache_hint [{{$r0}}], {num_bytes}, {{$r1}};",
        read_only_args=[Int64(source), Int64(device.EVICT_FIRST)],
    )


def commit_copies() -> None:
    """Makes a group of this thread's copies since the last one."""
    inline_ptx("cp.async.commit_group;")


def wait_for_copies(pending: int) -> None:
    """Until at most this many of the youngest groups of this thread's copies are on the way."""
    inline_ptx(f"cp.async.wait_group {pending};")


def activations(word: Any) -> Any:
    """Two BF16 times 2^64, which makes up for what `weights` leaves out; exact below 2^64."""
    return inline_ptx(
        "{ .reg .b32 t; mov.b32 t, 0x5F805F80; mul.rn.bf16x2 {$w0}, {$r0}, t; }",
        write_only_types=[Uint32],
        read_only_args=[word],
    )


def weights(word: Any) -> tuple[Any, ...]:
    """The eight E2M1 codes of a word in Marlin's order as the four registers of a matrix operand, times 2^-126 each.

    The exponent and mantissa bits go where BF16 has the last two of its exponent and the first of its mantissa, so that
    0.5 becomes a subnormal: every code is exact, and the matrix unit takes subnormals as they are. One multiplication
    makes two copies of a code, which have the sign and the magnitude in their places.
    """
    high = word >> 8
    low_codes, high_codes, kept = Uint32(0x000F000F), Uint32(0x00F000F0), Uint32(0x81C081C0)
    return (
        ((word & low_codes) * Uint32(0x1040)) & kept,
        ((high & low_codes) * Uint32(0x1040)) & kept,
        ((word & high_codes) * Uint32(0x104)) & kept,
        ((high & high_codes) * Uint32(0x104)) & kept,
    )


def scales(word: Any) -> tuple[Any, ...]:
    """The four E8M0 scales of a word times 2^62, as FP32: what `weights` and `activations` leave out. Up to 2^65."""
    word = word + Uint32(0x3E3E3E3E)
    exponent = Uint32(0x7F800000)
    parts = ((word << 23) & exponent, (word << 15) & exponent, (word << 7) & exponent, (word >> 1) & exponent)
    return tuple(part.bitcast(Float32) for part in parts)


def fma(x: Any, y: Any, z: Any) -> Any:
    """`x y + z`, rounded once."""
    return inline_ptx(
        "fma.rn.f32 {$w0}, {$r0}, {$r1}, {$r2};", write_only_types=[Float32], read_only_args=[x, y, z]
    )


def situ(gate: Any, up: Any, beta: float, linear_beta: float) -> Any:
    """SiTU of two FP32 values, in FP32."""
    sigmoid = _sigmoid(gate)
    bounded = _tanh(gate * Float32(1.0 / beta)) * Float32(beta)
    return bounded * sigmoid * (_tanh(up * Float32(1.0 / linear_beta)) * Float32(linear_beta))


def _sigmoid(x: Any) -> Any:
    """Relative error below 1e-6 as far down as FP32 goes: no exponential overflows."""
    magnitude = inline_ptx("abs.f32 {$w0}, {$r0};", write_only_types=[Float32], read_only_args=[x])
    tail = device.exp(-magnitude)
    inverse = _reciprocal(tail + Float32(1.0))
    return device.select(x < Float32(0.0), tail * inverse, inverse)


def _tanh(x: Any) -> Any:
    """Relative error below 1e-6; +-1 at infinity."""
    square = x * x
    small = x + x * square * _polynomial(square)
    magnitude = inline_ptx("abs.f32 {$w0}, {$r0};", write_only_types=[Float32], read_only_args=[x])
    tail = Float32(1.0) - Float32(2.0) * _reciprocal(device.exp(magnitude + magnitude) + Float32(1.0))
    signed = inline_ptx(
        "copysign.f32 {$w0}, {$r0}, {$r1};", write_only_types=[Float32], read_only_args=[x, tail]
    )
    return device.select(magnitude < _LINEAR_BOUND, small, signed)


def _polynomial(x: Any) -> Any:
    total = Float32(_TANH[-1])
    for coefficient in reversed(_TANH[:-1]):
        total = total * x + Float32(coefficient)
    return total


def _reciprocal(x: Any) -> Any:
    """1 / x to 1 ulp (PTX ISA); 0 at infinity."""
    return inline_ptx("rcp.approx.f32 {$w0}, {$r0};", write_only_types=[Float32], read_only_args=[x])
