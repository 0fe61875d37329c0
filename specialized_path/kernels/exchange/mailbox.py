"""Device functions on boxes: store a fragment so that it never looks empty, and take one out when it has come.

A fragment is four 32-bit words, each a pair of BF16. Relaxed accesses at system scope keep each word whole; no word
waits for another, so a reader looks at every one.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint32
from cutlass.cute.arch import inline_ptx

from specialized_path.kernels.common import device
from specialized_path.kernels.exchange.protocol import EMPTY_WORD

_NAN_WORD = 0x7FC07FC0
"""What a reader that gave up goes on with: no result of it can pass for one."""


def without_negative_zero(word: Any) -> Any:
    """Both BF16 of a word, -0 as +0; NaN stays NaN."""
    return inline_ptx(
        "{{ .reg .b32 one, zero; mov.b32 one, 0x3f803f80; mov.b32 zero, 0; "
        "fma.rn.bf16x2 {$w0}, {$r0}, one, zero; }}",
        write_only_types=[Uint32],
        read_only_args=[word],
    )


def put_fragment(address: Any, words: tuple[Any, ...]) -> None:
    """Stores four words, none of them empty, into a box of this or another GPU."""
    inline_ptx(
        "st.relaxed.sys.global.v4.b32 [{$r0}], {{$r1},{$r2},{$r3},{$r4}};",
        read_only_args=[Int64(address), *words],
    )


def put_into_every_box(
    table: Any, num_ranks: int, place: Any, words: tuple[Any, ...], *, is_multicast: bool = False
) -> None:
    """Stores four words `place` bytes behind each of the `num_ranks` addresses of a table.

    By multicast the table holds one address, at which one store reaches the boxes of all.
    """
    if is_multicast:
        inline_ptx(
            "multimem.st.relaxed.sys.global.v4.bf16x2 [{$r0}], {{$r1},{$r2},{$r3},{$r4}};",
            read_only_args=[Int64(device.load_address(table) + place), *words],
        )
        return
    for rank in range(num_ranks):
        put_fragment(device.load_address(table + rank * 8) + place, words)


def look_at_fragment(address: Any) -> tuple[Any, ...]:
    """Four words of a box, as they are now."""
    return tuple(
        inline_ptx(
            "ld.relaxed.sys.global.v4.b32 {{$w0},{$w1},{$w2},{$w3}}, [{$r0}];",
            write_only_types=[Uint32] * 4,
            read_only_args=[Int64(address)],
        )
    )


def empty_fragment(address: Any) -> None:
    """Empties a fragment for its next use; the wait of the rank's next kernel orders it before what that publishes."""
    put_fragment(address, (Uint32(EMPTY_WORD),) * 4)


@cute.jit
def take_fragment(
    address: Int64, seen: tuple[Any, ...], polls: Int32, error: Int64, code: Int32
) -> tuple[Any, ...]:
    """The words of a fragment when all four have come, and the polls that are left; the fragment is empty again.

    `seen` is a first look. Without polls left the words are NaN and `code` (not 0) stands at `error`; nothing is
    emptied then, since the words may still come.
    """
    a, b, c, d = seen[0], seen[1], seen[2], seen[3]
    empty = Uint32(EMPTY_WORD)
    while (a == empty or b == empty or c == empty or d == empty) and polls > 0:
        a, b, c, d = look_at_fragment(address)
        polls -= 1
    if a == empty or b == empty or c == empty or d == empty:
        device.store_word(error, code)
        a = b = c = d = Uint32(_NAN_WORD)
    else:
        empty_fragment(address)
    return a, b, c, d, polls


@cute.jit
def take_sum(
    first: Int64,
    step: Int64,
    count: cutlass.Constexpr[int],
    polls: Int32,
    error: Int64,
    source: Int32,
) -> list[Any]:
    """The sum of the fragments at `first + i step` for i below `count`, added in this order, as eight FP32 values.

    The first looks at all of them are under way at once. Error code `1 + source + i` says which never came.
    """
    looks = [look_at_fragment(first + i * step) for i in range(count)]
    total = [cutlass.Float32(0.0) for _ in range(8)]
    for i in cutlass.range_constexpr(count):
        a, b, c, d, polls = take_fragment(first + i * step, looks[i], polls, error, source + (1 + i))
        values = [v for word in (a, b, c, d) for v in device.unpack_bf16(word)]
        total = [t + v for t, v in zip(total, values, strict=True)]
    return total
