"""Three-input truth tables of `LOP3` and `PLOP3` as the operations that an address or a condition is made of."""

from __future__ import annotations

from itertools import product

from harness.audit.program import Immediate, Op, Operand
from harness.audit.sass.draft import Draft


def apply_table(draft: Draft, args: tuple[Operand, Operand, Operand], table: int, bits: int) -> Operand:
    """The value of the table's function: bit 4a + 2b + c of `table` is its result for inputs a, b, c.

    Constant inputs (all zeros, all ones) are folded first. Functions of up to two inputs, and the chains of
    three that compilers use, get their operation; any other is OPAQUE of its inputs.
    """
    free, rows = _fold(args, table, bits)
    if not free:
        return Immediate((1 << bits) - 1 if rows[()] else 0)
    if len(free) == 1:
        return _one(draft, free[0], rows[(0,)], rows[(1,)], bits)
    if len(free) == 2:
        return _two(draft, free, rows, bits)
    return _three(draft, free, table, bits)


def _fold(
    args: tuple[Operand, ...], table: int, bits: int
) -> tuple[list[Operand], dict[tuple[int, ...], int]]:
    """The inputs that are not constant and matter, and the result for each combination of theirs."""
    ones = (1 << bits) - 1
    fixed: dict[int, int] = {}
    for position, arg in enumerate(args):
        if isinstance(arg, Immediate) and arg.value & ones in (0, ones):
            fixed[position] = 1 if arg.value & ones else 0
    cases: list[tuple[int, ...]] = list(product(*((fixed[p],) if p in fixed else (0, 1) for p in range(3))))
    results = {case: table >> (4 * case[0] + 2 * case[1] + case[2]) & 1 for case in cases}
    used = [p for p in range(3) if any(results.get(_flipped(c, p), r) != r for c, r in results.items())]
    rows = {tuple(case[p] for p in used): result for case, result in results.items()}
    return [args[p] for p in used], rows


def _flipped(case: tuple[int, ...], position: int) -> tuple[int, ...]:
    return (*case[:position], 1 - case[position], *case[position + 1 :])


def _one(draft: Draft, arg: Operand, at_zero: int, at_one: int, bits: int) -> Operand:
    if at_zero == at_one:
        return Immediate((1 << bits) - 1 if at_one else 0)
    return arg if at_one else draft.compute(Op.NOT, (arg,), bits=bits)


def _two(draft: Draft, args: list[Operand], rows: dict[tuple[int, ...], int], bits: int) -> Operand:
    ones = sorted(values for values, result in rows.items() if result)
    a, b = args
    if ones in ([(0, 1), (1, 0)], [(0, 0), (1, 1)]):
        value = draft.compute(Op.XOR, (a, b), bits=bits)
        return value if (0, 1) in ones else draft.compute(Op.NOT, (value,), bits=bits)
    op = Op.AND if len(ones) == 1 else Op.OR
    wanted = ones[0] if op is Op.AND else next(v for v, result in rows.items() if not result)
    first = a if bool(wanted[0]) == (op is Op.AND) else draft.compute(Op.NOT, (a,), bits=bits)
    second = b if bool(wanted[1]) == (op is Op.AND) else draft.compute(Op.NOT, (b,), bits=bits)
    return draft.compute(op, (first, second), bits=bits)


_CHAINS = {
    0x80: (Op.AND, Op.AND),
    0xFE: (Op.OR, Op.OR),
    0x96: (Op.XOR, Op.XOR),
    0xEA: (Op.AND, Op.OR),
    0x6A: (Op.AND, Op.XOR),
    0xA8: (Op.OR, Op.AND),
}
"""Tables of (a first b) second c."""


def _three(draft: Draft, args: list[Operand], table: int, bits: int) -> Operand:
    chain = _CHAINS.get(table)
    if chain is not None:
        inner = draft.compute(chain[0], (args[0], args[1]), bits=bits)
        return draft.compute(chain[1], (inner, args[2]), bits=bits)
    if table == 0xF8:
        inner = draft.compute(Op.AND, (args[1], args[2]), bits=bits)
        return draft.compute(Op.OR, (args[0], inner), bits=bits)
    return draft.compute(Op.OPAQUE, tuple(args), bits=bits)
