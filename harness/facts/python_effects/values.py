"""What an expression may stand for, as far as its text says."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from harness.facts.python_effects.scopes import FunctionNode, Module, Site


@dataclass(frozen=True, slots=True)
class Imported:
    """Something of another package, by its dotted name."""

    name: str


@dataclass(frozen=True, slots=True)
class Builtin:
    """A built-in function or type."""

    name: str


@dataclass(frozen=True, slots=True)
class Made:
    """A new object that a call of `name` returned: nobody else holds it yet."""

    name: str


@dataclass(frozen=True, slots=True)
class Shared:
    """An object that others hold as well: what a getter returned, an element of another module's container, the
    engine's configuration."""

    name: str


@dataclass(frozen=True, slots=True)
class Namespace:
    """The dictionary of attributes of a value: `vars(x)`, `x.__dict__`, `f.__globals__`."""

    of: Imported | Shared


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal."""

    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Items:
    """A display of elements: list, tuple or set, or the values of a dictionary with their keys."""

    elements: tuple[ast.expr, ...]
    site: Site
    keys: tuple[ast.expr | None, ...] | None = None
    """None for what is no dictionary; a key is None where another dictionary is unpacked."""


@dataclass(frozen=True, slots=True)
class Holder:
    """An object that gives back what it was made of: a record by attribute or index, a weak reference by a call."""

    elements: tuple[ast.expr, ...]
    names: tuple[str, ...]
    """Attributes by which the elements are read, in their order; `…` where the text does not say, `()` for a call."""
    site: Site


@dataclass(frozen=True, slots=True)
class OwnFunction:
    """A function of the judged files."""

    node: FunctionNode
    module: Module


@dataclass(frozen=True, slots=True)
class OwnClass:
    """A class of the judged files."""

    node: ast.ClassDef
    module: Module


@dataclass(frozen=True, slots=True)
class OwnInstance:
    """An instance of a class of the judged files."""

    node: ast.ClassDef
    module: Module


@dataclass(frozen=True, slots=True)
class Bases:
    """The base classes of a class of the judged files."""

    of: OwnClass


@dataclass(frozen=True, slots=True)
class OwnModule:
    """One of the subject's own modules."""

    module: Module


@dataclass(frozen=True, slots=True)
class Unknown:
    """Anything."""


UNKNOWN = Unknown()
COPY_OF = "copy of "
"""How a new container is called that holds the elements of another."""
UNSPELT = "…"
"""Stands for a name that the text does not say."""
CALL = "()"
"""Stands for what a call gives."""
RECORD = "record of "
"""How a class is called that `namedtuple` or its like makes of the names of its fields."""
Value = (
    Imported
    | Builtin
    | Made
    | Shared
    | Namespace
    | Constant
    | Items
    | Holder
    | OwnFunction
    | OwnClass
    | OwnInstance
    | Bases
    | OwnModule
    | Unknown
)
Values = frozenset[Value]
NOTHING_KNOWN: Values = frozenset({UNKNOWN})


def dotted_names(values: Values) -> tuple[str, ...]:
    """Names of the imported things among the values, sorted."""
    return tuple(sorted(v.name for v in values if isinstance(v, Imported)))


def paths(values: Values) -> frozenset[Made]:
    """The `pathlib` paths among the values."""
    return frozenset(v for v in values if isinstance(v, Made) and v.name.startswith("pathlib."))


def texts(values: Values) -> tuple[str, ...]:
    """The strings among the values, sorted."""
    return tuple(sorted(v.value for v in values if isinstance(v, Constant) and isinstance(v.value, str)))


def spelt(values: Values) -> tuple[str, ...]:
    """The strings among the values, sorted, and `…` where it may be another one."""
    found = texts(values)
    return found if found and len(found) == len(values) else (*found, UNSPELT)


def union(many: Iterable[Values]) -> Values:
    """All values together; no value at all means that nothing is known."""
    found: set[Value] = set()
    for values in many:
        found |= values
    return frozenset(found) or NOTHING_KNOWN
