"""What an expression can be while the switch is off: a few constants, or anything."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

_MAX_CONSTANTS = 4
_MUTABLE = "list or set"
Mapping = Literal["", "switches", "empty", "either"]


@dataclass(frozen=True, slots=True)
class Value:
    """The possible constants of an expression, and whether the switch may have a say in it."""

    constants: tuple[tuple[str, Hashable], ...] | None
    """Type name and value of each, since 1 == True; None: anything; none at all: not reached so far."""
    derived: bool = False
    """Whether it was worked out, so that it may stand for the expression; not so for a literal."""
    switched: bool = False
    """Whether it was read off the switch, or worked out of what was."""
    taint: str = ""
    """Why an unknown value may hang on the switch; empty when it does not."""
    mapping: Mapping = ""
    """Whether it is the mapping that holds the switch, an empty one, or either."""
    is_own: bool = False
    """Whether what it is besides the constants is an object that a class of the analysed files made."""

    @property
    def is_bottom(self) -> bool:
        """Whether no value has reached it."""
        return self.constants == ()

    @property
    def single(self) -> bool:
        """Whether it is one known constant."""
        return self.constants is not None and len(self.constants) == 1

    @property
    def constant(self) -> Any:
        """The constant of a `single` value."""
        assert self.constants is not None
        return self.constants[0][1]

    @property
    def truth(self) -> bool | None:
        """Whether it counts as true; None when that cannot be told."""
        if not self.constants:
            return None
        found = {bool(constant) for _, constant in self.constants}
        return found.pop() if len(found) == 1 else None

    @property
    def doubt(self) -> str:
        """Why a condition of this value may hang on the switch; empty when it does not."""
        if self.taint or self.constants is not None or not self.switched:
            return self.taint
        return "what is made of the switch there cannot be told"

    def derive(self) -> Value:
        """The same, worked out."""
        return replace(self, derived=True) if self.constants is not None else self


BOTTOM = Value(())
ANYTHING = Value(None)


def known(*constants: Any, derived: bool = False, switched: bool = False) -> Value:
    """A value that is one of the constants; anything when one of them cannot be hashed."""
    try:
        pairs = tuple(dict.fromkeys((type(c).__name__, c) for c in constants))
    except TypeError:
        return ANYTHING
    value = Value(pairs, derived=derived or switched, switched=switched)
    return value if len(pairs) <= _MAX_CONSTANTS else ANYTHING


def display(values: Sequence[Value], *, is_mutable: bool) -> Value:
    """The value of a tuple of known elements, or of a list or set, whose contents are known where it stands only."""
    derived, switched = any(v.derived for v in values), any(v.switched for v in values)
    value = known(tuple(v.constant for v in values), derived=derived, switched=switched)
    if is_mutable and value.single:
        return replace(value, constants=((_MUTABLE, value.constant),))
    return value


def kept(value: Value) -> Value:
    """What of a value outlives its expression: a list or set may hold something else by the time it is read."""
    if any(kind == _MUTABLE for kind, _ in value.constants or ()):
        return unknown("a list or set may hold something else by the time it is read")
    return value


def unknown(taint: str = "", *, of: Iterable[Value] = ()) -> Value:
    """A value that can be anything, worked out of others.

    Where several constants are known of one of them, what is not known is something other than the switch.
    """
    operands = tuple(of)
    taint = taint or next((operand.taint for operand in operands if operand.taint), "")
    is_switched = any(o.switched and (o.constants is None or o.single) for o in operands)
    return Value(None, taint=taint, switched=is_switched)


def join(left: Value, right: Value) -> Value:
    """What either can be."""
    if left.is_bottom or right.is_bottom:
        return right if left.is_bottom else left
    taint = left.taint or right.taint
    if left.mapping or right.mapping:
        if left.mapping and right.mapping:
            return replace(left, mapping=left.mapping if left.mapping == right.mapping else "either")
        return unknown(taint or "it may be the mapping that holds the switch")
    derived = left.derived or right.derived
    switched = left.switched or right.switched
    if left.constants is None or right.constants is None:
        one = left if left.constants is not None else right
        guess = "it depends on the switch in one of several ways" if one.switched else ""
        is_own = all(v.is_own or v.constants is not None for v in (left, right))
        return replace(unknown(taint or guess), switched=switched, is_own=is_own)
    pairs = tuple(dict.fromkeys(left.constants + right.constants))
    if len(pairs) > _MAX_CONSTANTS:
        return unknown("it depends on the switch in too many ways" if switched else "")
    return Value(pairs, derived=derived, switched=switched, taint=taint)


def join_all(values: Iterable[Value]) -> Value:
    """What any of them can be; not reached when there are none."""
    result = BOTTOM
    for value in values:
        result = join(result, value)
    return result


def combine(function: Callable[..., Any], *operands: Value) -> Value:
    """The function over all combinations of the operands' constants; anything when one is unknown."""
    if any(operand.is_bottom for operand in operands):
        return BOTTOM
    taint = next((operand.taint for operand in operands if operand.taint), "")
    derived = any(operand.derived for operand in operands)
    switched = any(operand.switched for operand in operands)
    if any(operand.constants is None for operand in operands):
        return unknown(of=operands)
    results = []
    for combination in product(*(operand.constants or () for operand in operands)):
        try:
            results.append(function(*(constant for _, constant in combination)))
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError):
            return unknown(taint or ("its evaluation fails while the switch is off" if switched else ""))
    return known(*results, derived=derived, switched=switched)


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "Is": lambda left, right: left is right or (type(left) is type(right) and left == right),
    "IsNot": lambda left, right: not (left is right or (type(left) is type(right) and left == right)),
    "In": lambda left, right: left in right,
    "NotIn": lambda left, right: left not in right,
}
"""By the name of the node; `is` between equal constants of one type counts as true."""
PURE_BUILTINS: dict[str, Callable[..., Any]] = {
    "bool": bool,
    "int": int,
    "str": str,
    "float": float,
    "len": len,
    "any": any,
    "all": all,
    "tuple": tuple,
    "frozenset": frozenset,
}
PURE_METHODS = frozenset(
    ("lower", "upper", "strip", "lstrip", "rstrip", "casefold", "startswith", "endswith", "removeprefix")
)
"""Methods of strings that are folded."""
