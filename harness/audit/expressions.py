"""Values as expressions over things that a thread cannot change: the keys under which conditions are remembered.

Two predicates with the same expression are equal as long as none of its leaves is defined again. Expressions are
numbers into one table, so that equal ones compare fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from harness.audit.integers import (
    Interval,
    Ranges,
    combine_intervals,
    compute,
    satisfying,
    to_signed,
    to_unsigned,
)
from harness.audit.program import AddressOf, Immediate, Op, Operand, ParamValue, Special
from harness.audit.values import Origin, Values

MAX_DEPTH = 48
MAX_CAUSES = 48
MAX_PARTS = 96
"""Parts of an expression in which others are put in the place of some."""
MAX_SUBSTITUTED = 40_000
"""Parts looked at for that in one kernel."""
_COMPARISONS = (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE)
_OPPOSITE = {Op.EQ: Op.NE, Op.NE: Op.EQ, Op.LT: Op.GE, Op.GE: Op.LT, Op.GT: Op.LE, Op.LE: Op.GT}
_MIRRORED = {Op.EQ: Op.EQ, Op.NE: Op.NE, Op.LT: Op.GT, Op.GT: Op.LT, Op.LE: Op.GE, Op.GE: Op.LE}
_OF_EQUALS = {Op.EQ: 1, Op.LE: 1, Op.GE: 1, Op.NE: 0, Op.LT: 0, Op.GT: 0, Op.SUB: 0, Op.XOR: 0}
"""What an operation gives on two operands that are the same."""
_CHANGING = ("clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi", "smid")
_IMPURE = (Op.LOAD, Op.OPAQUE, Op.PACK, Op.PART)

TRUE: Ranges = ((1, 1),)
FALSE: Ranges = ((0, 0),)


class Expression(NamedTuple):
    """One entry of the table."""

    op: Op | None
    """None for a leaf, a constant or a special register."""
    bits: int = 32
    signed: bool = False
    args: tuple[int, ...] = ()
    leaf: int | None = None
    """A value that nothing more is known about."""
    constant: int | None = None
    special: str = ""
    param: tuple[int, int, int] | None = None
    name: str = ""


Literal = tuple[tuple[int, Ranges], ...]
"""A condition as a conjunction: each expression lies in its ranges."""


class Expressions:
    """The table of one kernel."""

    def __init__(self, values: Values, limits: Mapping[str, Interval] | None = None) -> None:
        self.limits = limits or {}
        """Smallest and largest values of special registers."""
        self._values = values
        self._intervals: dict[int, Interval | None] = {}
        self._num_substituted = 0
        self._table: list[Expression] = []
        self._number: dict[Expression, int] = {}
        self._of_value: dict[int, int] = {}
        self._of_register: dict[tuple[int, str], int] = {}
        self._causes: dict[int, frozenset[int]] = {}
        self._parts: dict[int, frozenset[int]] = {}
        self._leaves: dict[int, frozenset[int]] = {}
        self._literals: dict[tuple[int, bool], Literal] = {}

    def __getitem__(self, number: int) -> Expression:
        return self._table[number]

    def of_register(self, instruction: int, register: str) -> int:
        """What `register` holds just before an instruction."""
        key = (instruction, register)
        found = self._of_register.get(key)
        if found is None:
            found = self._of_register[key] = self.of_value(self._values.use(instruction, register))
        return found

    def of_operand(self, instruction: int, operand: Operand) -> int:
        """What an operand of an instruction stands for."""
        value = self._values.operand(instruction, operand)
        return self.of_value(value) if isinstance(value, int) else self._of_constant(value)

    def of_value(self, value: int, depth: int = 0) -> int:
        """The expression of a value."""
        found = self._of_value.get(value)
        if found is None:
            found = self._of_value[value] = self._build(value, depth)
        return found

    def interval(self, number: int) -> Interval | None:
        """Smallest and largest value, for an expression of limited special registers and constants."""
        if number not in self._intervals:
            entry = self._table[number]
            found: Interval | None = None
            if entry.constant is not None:
                found = (entry.constant, entry.constant)
            elif entry.special:
                found = self.limits.get(entry.special)
            elif entry.op is not None and self.limits:
                found = combine_intervals(entry.op, [self.interval(a) for a in entry.args], entry.bits)
                if found is not None and not 0 <= found[0] <= found[1] < 1 << entry.bits:
                    found = None
            self._intervals[number] = found
        return self._intervals[number]

    def leaves(self, number: int) -> frozenset[int]:
        """Values whose redefinition makes the expression another one."""
        found = self._leaves.get(number)
        if found is None:
            entry = self._table[number]
            if entry.leaf is not None:
                found = frozenset((entry.leaf,))
            else:
                found = frozenset().union(*(self.leaves(a) for a in entry.args))
            self._leaves[number] = found
        return found

    def parts(self, number: int) -> frozenset[int]:
        """The expression and all expressions inside it."""
        found = self._parts.get(number)
        if found is None:
            inner = (self.parts(a) for a in self._table[number].args)
            found = self._parts[number] = frozenset((number,)).union(*inner)
        return found

    def causes(self, number: int) -> frozenset[int]:
        """Expressions to remember so that a contradiction about predicate `number` is seen."""
        found = self._causes.get(number)
        if found is None:
            found = self._causes[number] = self._find_causes(number)
        return found

    def _find_causes(self, number: int) -> frozenset[int]:
        found: set[int] = set()
        parts = [part for truth in (True, False) for part, _ in self.literal(number, truth)]
        stack = [number, *parts]
        while stack and len(found) < MAX_CAUSES:
            at = stack.pop()
            if at in found or self._table[at].constant is not None:
                continue
            found.add(at)
            for leaf in self.leaves(at):
                stack.append(self.of_value(leaf))
                node = self._values.node(leaf)
                if node.origin is Origin.PHI:
                    stack += [self.of_value(p) for p in node.parts]
        return frozenset(found)

    def literal(self, number: int, truth: bool) -> Literal:
        """The condition that predicate `number` is `truth`, as ranges of simpler expressions."""
        key = (number, truth)
        found = self._literals.get(key)
        if found is None:
            found = self._literals[key] = self._literal(number, truth)
        return found

    def _literal(self, number: int, truth: bool) -> Literal:
        entry = self._table[number]
        if entry.op is Op.NOT and entry.bits == 1:
            return self.literal(entry.args[0], not truth)
        if entry.bits == 1 and entry.op is (Op.AND if truth else Op.OR):
            return tuple(p for a in entry.args for p in self.literal(a, truth))
        if entry.op in _COMPARISONS and entry.op is not None:
            left, right = entry.args
            op = entry.op if truth else _OPPOSITE[entry.op]
            if self._table[left].constant is not None:
                left, right, op = right, left, _MIRRORED[op]
            return self._comparison(op, left, right, entry.bits, entry.signed)
        return ((number, TRUE if truth else FALSE),)

    def difference(self, left: int, right: int) -> tuple[int, bool] | None:
        """The signed difference of two expressions where something was said of it, and whether it is `right - left`."""
        entry = Expression(None, signed=True, args=(min(left, right), max(left, right)), name="difference")
        number = self._number.get(entry)
        return None if number is None else (number, left > right)

    def _comparison(self, op: Op, left: int, right: int, bits: int, signed: bool) -> Literal:
        """`left op right` about the expressions without their constant summands.

        Signed sums are taken not to overflow, as compilers take them.
        """
        is_equality = op in (Op.EQ, Op.NE)
        base, shift = self.summand(left) if signed or is_equality else (left, 0)
        constant = self._table[right].constant
        if constant is not None:
            moved = to_signed(constant, bits) - shift
            sides = self._minuend(base) if signed or is_equality else None
            if sides is not None:
                return (self._difference(op, *sides, moved, signed=True),)
            if is_equality or -(1 << (bits - 1)) <= moved < 1 << (bits - 1):
                return ((base, satisfying(op, moved if shift else constant, bits, signed)),)
            return ((left, satisfying(op, constant, bits, signed)),)
        other, other_shift = self.summand(right) if signed or is_equality else (right, 0)
        found = []
        if signed or is_equality:
            found.append(self._difference(op, base, other, other_shift - shift, signed=True))
        if not signed or is_equality:
            found.append(self._difference(op, left, right, 0, signed=False))
        return tuple(found)

    def summand(self, number: int) -> tuple[int, int]:
        """An expression as another one plus a constant."""
        shift = 0
        while True:
            entry = self._table[number]
            if entry.op not in (Op.ADD, Op.SUB) or len(entry.args) != 2:
                return number, shift
            left, right = (self._table[a].constant for a in entry.args)
            if right is not None:
                step = to_signed(right, entry.bits)
                number, shift = entry.args[0], shift + (step if entry.op is Op.ADD else -step)
            elif left is not None and entry.op is Op.ADD:
                number, shift = entry.args[1], shift + to_signed(left, entry.bits)
            else:
                return number, shift

    def _minuend(self, number: int) -> tuple[int, int] | None:
        """The two sides of a difference, written as one or as a sum with a negated value."""
        entry = self._table[number]
        if len(entry.args) != 2:
            return None
        left, right = entry.args
        if entry.op is Op.SUB:
            return (left, right) if self._table[left].constant is None else None
        if entry.op is not Op.ADD:
            return None
        for first, second in ((left, right), (right, left)):
            negated = self._table[second]
            if negated.op is Op.SUB and self._table[negated.args[0]].constant == 0:
                return first, negated.args[1]
        return None

    def _difference(self, op: Op, left: int, right: int, bound: int, *, signed: bool) -> tuple[int, Ranges]:
        """`left - right op bound`, the difference taken without wrapping."""
        if left > right:
            left, right, bound, op = right, left, -bound, _MIRRORED[op]
        number = self._intern(Expression(None, signed=signed, args=(left, right), name="difference"))
        return number, satisfying(op, bound, 64, True)

    def _intern(self, entry: Expression) -> int:
        found = self._number.get(entry)
        if found is None:
            found = self._number[entry] = len(self._table)
            self._table.append(entry)
        return found

    def number_of(self, value: int) -> int:
        """The expression of a constant."""
        return self._intern(Expression(None, constant=value))

    def _of_constant(self, operand: Operand) -> int:
        if isinstance(operand, Immediate):
            return self._intern(Expression(None, constant=operand.value))
        if isinstance(operand, Special):
            low, high = self.limits.get(operand.name, (0, 1))
            if low == high:
                return self.number_of(low)
            return self._intern(Expression(None, special=operand.name))
        if isinstance(operand, ParamValue):
            place = (operand.param, operand.offset, operand.num_bytes)
            return self._intern(Expression(None, param=place))
        if isinstance(operand, AddressOf):
            return self._intern(Expression(None, name=operand.name))
        return self._intern(Expression(None, name=f"unknown {operand}"))

    def substitute(self, number: int, replaced: Mapping[int, int]) -> int | None:
        """The expression with others in the place of some of its parts; None when that takes too long."""
        size = len(self.parts(number))
        self._num_substituted += size
        if size > MAX_PARTS or self._num_substituted > MAX_SUBSTITUTED:
            return None
        return self._substitute(number, replaced, dict(replaced))

    def _substitute(self, number: int, replaced: Mapping[int, int], done: dict[int, int]) -> int:
        if number not in done:
            entry = self._table[number]
            if entry.op is None or self.parts(number).isdisjoint(replaced):
                return number
            args = tuple(self._substitute(a, replaced, done) for a in entry.args)
            same = args == entry.args
            done[number] = number if same else self._simplify(entry.op, entry.bits, entry.signed, args)
        return done[number]

    def constant(self, instruction: int, operand: Operand | None) -> int | None:
        """The number that an operand surely is."""
        return None if operand is None else self._table[self.of_operand(instruction, operand)].constant

    def _build(self, value: int, depth: int) -> int:
        leaf = Expression(None, leaf=value)
        node = self._values.node(value)
        if node.origin is not Origin.ASSIGN or node.assign is None or depth > MAX_DEPTH:
            return self._intern(leaf)
        assign = node.assign
        args = self._values.args(value)
        if assign.op in _IMPURE or any(isinstance(a, Special) and a.name in _CHANGING for a in args):
            return self._intern(leaf)
        numbers = tuple(
            self.of_value(a, depth + 1) if isinstance(a, int) else self._of_constant(a) for a in args
        )
        return self._simplify(assign.op, assign.bits, assign.signed, numbers)

    def _simplify(self, op: Op, bits: int, signed: bool, args: tuple[int, ...]) -> int:
        if op is Op.MOVE:
            constant = self._table[args[0]].constant
            return args[0] if constant is None else self.number_of(to_unsigned(constant, bits))
        known = [self._table[a].constant for a in args]
        if op is Op.UNIFORM and known[0] is not None:
            return args[0]
        if op is not Op.ELECT and all(k is not None for k in known):
            value = compute(op, bits, signed, [k for k in known if k is not None])
            if value is not None:
                return self._intern(Expression(None, constant=value))
        if len(args) == 2 and args[0] == args[1] and op in _OF_EQUALS:
            return self.number_of(_OF_EQUALS[op])
        masked = self._mask(op, bits, args, known)
        if masked is None and len(args) == 2:
            masked = self._choose(op, bits, signed, args)
        if masked is not None:
            return masked
        if op is Op.MAD and known[0] is not None and known[1] is not None:
            product = self._intern(Expression(None, constant=known[0] * known[1]))
            return self._simplify(Op.ADD, bits, signed, (args[2], product))
        if op in (Op.ADD, Op.SUB, Op.OR, Op.XOR) and bits > 1 and known[1] == 0:
            return args[0]
        if op is Op.ADD and known[0] == 0:
            return args[1]
        if bits == 1 and op in (Op.AND, Op.OR, Op.XOR) and len(args) == 2:
            shorter = self._simplify_boolean(op, args, known)
            if shorter is not None:
                return shorter
        if op is Op.NOT and bits == 1:
            inner = self._table[args[0]]
            if inner.op is Op.NOT and inner.bits == 1:
                return inner.args[0]
        if op is Op.SELECT and known[2] is not None:
            return args[0] if known[2] else args[1]
        if op in _COMPARISONS:
            sides = self._compare_union(op, bits, args)
            if sides is not None:
                return sides
        return self._intern(Expression(op, bits, signed, args))

    def _mask(self, op: Op, bits: int, args: tuple[int, ...], known: list[int | None]) -> int | None:
        """`(x & 6) & 3` is `x & 2`; a mask of a choice of which it leaves the same is that."""
        if op is not Op.AND or bits == 1 or known[1] is None or known[0] is not None:
            return None
        mask, inner = to_unsigned(known[1], bits), self._table[args[0]]
        if (
            inner.op is Op.AND
            and inner.bits == bits
            and (other := self._table[inner.args[1]].constant) is not None
        ):
            both = to_unsigned(other, bits) & mask
            return (
                self._simplify(op, bits, False, (inner.args[0], self.number_of(both)))
                if both
                else self.number_of(0)
            )
        if inner.op is not Op.SELECT:
            return None
        first, second = (self._simplify(op, bits, False, (a, self.number_of(mask))) for a in inner.args[:2])
        return first if first == second else None

    def _simplify_boolean(self, op: Op, args: tuple[int, ...], known: list[int | None]) -> int | None:
        for mine, other in ((0, 1), (1, 0)):
            constant = known[mine]
            if constant is None:
                continue
            is_true = bool(constant & 1)
            if op is Op.XOR:
                return self._simplify(Op.NOT, 1, False, (args[other],)) if is_true else args[other]
            if is_true == (op is Op.AND):
                return args[other]
            return self._intern(Expression(None, constant=int(is_true)))
        return None

    def _compare_union(self, op: Op, bits: int, args: tuple[int, ...]) -> int | None:
        """`(a | b) == 0` is `a == 0` and `b == 0`."""
        union = self._table[args[0]]
        if op not in (Op.EQ, Op.NE) or union.op is not Op.OR or union.bits == 1:
            return None
        if self._table[args[1]].constant != 0:
            return None
        sides = tuple(self._simplify(op, bits, False, (side, args[1])) for side in union.args)
        return self._simplify(Op.AND if op is Op.EQ else Op.OR, 1, False, sides)

    def _choose(self, op: Op, bits: int, signed: bool, args: tuple[int, ...]) -> int | None:
        """An operation on a choice between constants and a constant is a choice between results. `(p ? 1 : 0) != 0` is
        `p`, as inline assembly hands predicates to its surroundings."""
        for side in (0, 1):
            entry, other = self._table[args[side]], self._table[args[1 - side]].constant
            if entry.op is not Op.SELECT or other is None:
                continue
            ways = [self._table[a].constant for a in entry.args[:2]]
            if ways[0] is None or ways[1] is None:
                continue
            results = [
                compute(op, bits, signed, (w, other) if side == 0 else (other, w)) for w in (ways[0], ways[1])
            ]
            if results[0] is None or results[1] is None:
                continue
            if results[0] == results[1]:
                return self.number_of(results[0])
            predicate = entry.args[2]
            if op not in _COMPARISONS:
                chosen = (self.number_of(results[0]), self.number_of(results[1]), predicate)
                return self._intern(Expression(Op.SELECT, bits, False, chosen))
            return predicate if results[0] else self._simplify(Op.NOT, 1, False, (predicate,))
        return None
