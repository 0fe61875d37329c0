"""Objects of Python's own types that give back what they were made of: named tuples, namespaces, weak references."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from harness.facts.python_effects.scopes import Site
from harness.facts.python_effects.values import CALL, RECORD, UNSPELT, Constant, Holder, Items, Made, spelt

if TYPE_CHECKING:
    from harness.facts.python_effects.resolve import Resolver

_REFERENCES = ("weakref.ref", "weakref.ReferenceType", "weakref.WeakMethod")
_NAMESPACES = ("types.SimpleNamespace", "argparse.Namespace")
_RECORD_TYPES = ("collections.namedtuple", "typing.NamedTuple", "dataclasses.make_dataclass")
_DEFAULT = ast.Name("", ast.Load())
"""Stands for what the call does not say."""


def made_to_hold(resolver: Resolver, name: str, node: ast.Call, site: Site) -> Holder | Made | None:
    """The weak reference, namespace or class of records that a call of `name` makes; None for any other function."""
    if name in _REFERENCES:
        return Holder(tuple(node.args[:1]), (CALL,) * len(node.args[:1]), site)
    if name in _NAMESPACES:
        return record_of(node, [], site)
    if name in _RECORD_TYPES:
        fields = [*node.args[1:2], *(k.value for k in node.keywords if k.arg in ("field_names", "fields"))]
        return Made(RECORD + " ".join(n for f in fields for n in _field_names(resolver, f, site)))
    return None


def record_of(node: ast.Call, fields: list[str], site: Site) -> Holder:
    """What a class of these fields, or of any where none is known, makes of a call's arguments."""
    given = dict(zip(fields, node.args, strict=False)) | {k.arg: k.value for k in node.keywords if k.arg}
    is_plain = all(k.arg for k in node.keywords) and not any(isinstance(a, ast.Starred) for a in node.args)
    if is_plain and UNSPELT not in fields and len(node.args) <= len(fields):
        named = dict.fromkeys(fields, _DEFAULT) | given
        return Holder(tuple(named.values()), tuple(map(str, named)), site)
    anywhere = [a.value if isinstance(a, ast.Starred) else ast.List([a], ast.Load()) for a in node.args]
    anywhere += [k.value if k.arg is None else ast.List([k.value], ast.Load()) for k in node.keywords]
    return Holder(tuple(_any_of(a) for a in anywhere), (UNSPELT,) * len(anywhere), site)


def _any_of(node: ast.expr) -> ast.expr:
    """Any element of a container."""
    return ast.Subscript(node, _DEFAULT, ast.Load())


def _field_names(resolver: Resolver, node: ast.expr, site: Site) -> list[str]:
    """The names that a description of fields gives: words of a text, or a list of names or of pairs with them."""
    values = resolver.evaluate(node, site)
    match next(iter(values)):
        case Items(elements=elements, site=inside) if len(values) == 1:
            firsts = (e.elts[0] if isinstance(e, ast.Tuple) and e.elts else e for e in elements)
            return [spelt(resolver.evaluate(first, inside))[0] for first in firsts]
        case Constant(value=str(text)) if len(values) == 1:
            return text.replace(",", " ").split()
    return [UNSPELT]
