"""Integer arithmetic as a GPU does it, and sets of integers as ranges."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.audit.program import Op

Ranges = tuple[tuple[int, int], ...]
"""Disjoint inclusive ranges of unsigned values, ascending."""

Interval = tuple[int, int]
"""Smallest and largest value."""

MAX_RANGES = 8


def to_unsigned(value: int, bits: int) -> int:
    """`value` modulo 2**bits."""
    return value & ((1 << bits) - 1)


def to_signed(value: int, bits: int) -> int:
    """The two's complement reading of the low `bits` bits."""
    value = to_unsigned(value, bits)
    return value - (1 << bits) if bits > 1 and value >> (bits - 1) else value


def _divide(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _shift_left(a: int, b: int) -> int:
    return a << b if b < 128 else 0


_COMPUTE: dict[Op, Callable[[int, int], int]] = {
    Op.ADD: lambda a, b: a + b,
    Op.SUB: lambda a, b: a - b,
    Op.MUL: lambda a, b: a * b,
    Op.AND: lambda a, b: a & b,
    Op.OR: lambda a, b: a | b,
    Op.XOR: lambda a, b: a ^ b,
    Op.MIN: min,
    Op.MAX: max,
    Op.SHR: lambda a, b: a >> min(b, 128),
    Op.EQ: lambda a, b: int(a == b),
    Op.NE: lambda a, b: int(a != b),
    Op.LT: lambda a, b: int(a < b),
    Op.LE: lambda a, b: int(a <= b),
    Op.GT: lambda a, b: int(a > b),
    Op.GE: lambda a, b: int(a >= b),
}
_COMPARISONS = (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE)


def compute(op: Op, bits: int, signed: bool, args: Sequence[int]) -> int | None:
    """The result of `op` on known operands, unsigned; None when it is not modelled (or divides by zero)."""
    if op is Op.NOT:
        return to_unsigned(~args[0], bits)
    if op is Op.WIDEN:
        return to_signed(args[0], bits) if signed else to_unsigned(args[0], bits)
    if op in (Op.MOVE, Op.UNIFORM):
        return args[0]
    if op is Op.SELECT and len(args) == 3:
        return args[0] if args[2] else args[1]
    if op is Op.MAD and len(args) == 3:
        return to_unsigned(args[0] * args[1] + args[2], bits)
    if op is Op.SHL and len(args) == 2:
        return to_unsigned(_shift_left(args[0], to_unsigned(args[1], 32)), bits)
    if len(args) != 2:
        return None
    a, b = (to_signed(v, bits) if signed else to_unsigned(v, bits) for v in args)
    if op is Op.MUL_HIGH:
        return to_unsigned((a * b) >> bits, bits)
    if op is Op.SHR:
        return to_unsigned(_COMPUTE[op](a, to_unsigned(args[1], 32)), bits)
    if op in (Op.DIV, Op.REM):
        if b == 0:
            return None
        return to_unsigned(_divide(a, b) if op is Op.DIV else a - b * _divide(a, b), bits)
    found = _COMPUTE.get(op)
    if found is None:
        return None
    value = found(a, b)
    return value if op in _COMPARISONS else to_unsigned(value, bits)


def satisfying(op: Op, constant: int, bits: int, signed: bool) -> Ranges:
    """Values `x` with `x op constant`; `op` is a comparison."""
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    value = to_signed(constant, bits) if signed else to_unsigned(constant, bits)
    pieces = {
        Op.EQ: [(value, value)],
        Op.NE: [(low, value - 1), (value + 1, high)],
        Op.LT: [(low, value - 1)],
        Op.LE: [(low, value)],
        Op.GT: [(value + 1, high)],
        Op.GE: [(value, high)],
    }[op]
    unsigned: list[tuple[int, int]] = []
    for first, last in pieces:
        if first > last:
            continue
        if first < 0 <= last:
            unsigned += [(first + (1 << bits), (1 << bits) - 1), (0, last)]
        else:
            unsigned.append((to_unsigned(first, bits), to_unsigned(last, bits)))
    return _merge(unsigned)


def _merge(pieces: list[tuple[int, int]]) -> Ranges:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(pieces):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def intersect(first: Ranges, second: Ranges) -> Ranges:
    """Values in both sets."""
    found = [(max(a, c), min(b, d)) for a, b in first for c, d in second if max(a, c) <= min(b, d)]
    return _merge(found)


_NEAR = 64
"""A single value this close to zero may move on by steps."""
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1


def shifted(ranges: Ranges, delta: int, *, mirrored: bool = False, bits: int = 64) -> Ranges:
    """`x + delta`, or `delta - x`, for every signed `x` of the set, in 64 bits. Ends of the number line stay ends, and
    the end that would move inwards with every further step becomes one, so that steps in a loop come to rest."""
    found: list[tuple[int, int]] = []
    for first, last in ranges:
        low, high = to_signed(first, bits), to_signed(last, bits)
        is_open = (low == -(1 << (bits - 1)), high == (1 << (bits - 1)) - 1)
        if mirrored:
            low, high, is_open = -high, -low, is_open[::-1]
        moves = bits == 64 and not (low == high and abs(low) <= _NEAR)
        low = _LOWEST if is_open[0] or (moves and delta > 0) else low + delta
        high = _HIGHEST if is_open[1] or (moves and delta < 0) else high + delta
        if low < 0 <= high:
            found += [(to_unsigned(low, 64), (1 << 64) - 1), (0, high)]
        elif low <= high:
            found.append((to_unsigned(low, 64), to_unsigned(high, 64)))
    return _merge(found)


def is_within(inner: Ranges, outer: Ranges) -> bool:
    """Whether every value of `inner` is one of `outer`."""
    return intersect(inner, outer) == inner


def only_value(ranges: Ranges) -> int | None:
    """The value of a set of one."""
    return ranges[0][0] if len(ranges) == 1 and ranges[0][0] == ranges[0][1] else None


def combine_intervals(op: Op | None, args: Sequence[Interval | None], bits: int = 32) -> Interval | None:
    """The interval of `op` on operands in intervals; None where nothing is known, or where it may wrap."""
    first = args[0] if args else None
    second = args[1] if len(args) > 1 else None
    masks = [a[0] for a in args if a is not None and a[0] == a[1] and a[0] >= 0]
    if op is Op.AND and masks:
        return (0, min(masks))
    if op in (Op.MOVE, Op.UNIFORM, Op.WIDEN):
        return first if first is not None and first[0] >= 0 else None
    if first is None or second is None:
        return None
    if op is Op.ADD:
        return (first[0] + second[0], first[1] + second[1])
    if op is Op.SUB:
        return (first[0] - second[1], first[1] - second[0])
    if first[0] < 0 or second[0] < 0:
        return None
    if op is Op.MUL:
        return (first[0] * second[0], first[1] * second[1])
    if op is Op.MUL_HIGH:
        return (first[0] * second[0] >> bits, first[1] * second[1] >> bits)
    if op is Op.SHL and second[1] < 32:
        return (first[0] << second[0], first[1] << second[1])
    if op is Op.SHR and second[1] < 64:
        return (first[0] >> second[1], first[1] >> second[0])
    if op is Op.REM and second[0] > 0:
        return (0, second[1] - 1)
    if op is Op.OR and first[1] < 1 << 31 and second[1] < 1 << 31:
        return (0, (1 << max(first[1].bit_length(), second[1].bit_length())) - 1)
    if op is Op.MAD and len(args) == 3 and args[2] is not None and args[2][0] >= 0:
        return (first[0] * second[0] + args[2][0], first[1] * second[1] + args[2][1])
    return None
