"""Objects of Python's own types that give back what they were made of: named tuples, namespaces, weak references."""

from __future__ import annotations

import ast
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.facts.python_effects.scopes import Site
from harness.facts.python_effects.values import (
    CALL,
    NOTHING_KNOWN,
    RECORD,
    UNSPELT,
    Constant,
    Holder,
    Imported,
    Items,
    Made,
    OwnClass,
    OwnFunction,
    OwnInstance,
    Value,
    Values,
    spelt,
)

if TYPE_CHECKING:
    from harness.facts.python_effects.resolve import Resolver

_REFERENCES = ("weakref.ref", "weakref.ReferenceType", "weakref.WeakMethod")
_NAMESPACES = ("types.SimpleNamespace", "argparse.Namespace")
_RECORD_TYPES = ("collections.namedtuple", "typing.NamedTuple", "dataclasses.make_dataclass")
_CHANGES = frozenset({"dataclasses.replace", "copy.replace"})
_READS = frozenset({"dataclasses.asdict", "dataclasses.astuple"})
NOT_SAID = ast.Name("", ast.Load())
"""Stands for what the call does not say."""


def made_to_hold(resolver: Resolver, name: str, node: ast.Call, site: Site) -> Holder | Made | None:
    """The weak reference, namespace or class of records that a call of `name` makes; None for any other function."""
    if name in _REFERENCES:
        return Holder(tuple(node.args[:1]), (CALL,) * len(node.args[:1]), site)
    if name in _NAMESPACES:
        mappings = [ast.Call(ast.Name("dict", ast.Load()), [argument], []) for argument in node.args]
        keywords = [*node.keywords, *(ast.keyword(None, mapping) for mapping in mappings)]
        return record_of(ast.Call(node.func, [], keywords), [], site)
    if name in _RECORD_TYPES:
        fields = [*node.args[1:2], *(k.value for k in node.keywords if k.arg in ("field_names", "fields"))]
        return Made(RECORD + " ".join(n for f in fields for n in _field_names(resolver, f, site)))
    return None


def fields_of(node: ast.ClassDef) -> list[str]:
    """The annotated names of a class without a constructor of its own, in order: what `dataclass` makes one of."""
    if any(isinstance(s, ast.FunctionDef) and s.name == "__init__" for s in node.body):
        return []
    return [s.target.id for s in node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]


def record_of(node: ast.Call, fields: list[str], site: Site) -> Holder:
    """What a class of these fields, or of any where none is known, makes of a call's arguments."""
    given = dict(zip(fields, node.args, strict=False)) | {k.arg: k.value for k in node.keywords if k.arg}
    is_plain = all(k.arg for k in node.keywords) and not any(isinstance(a, ast.Starred) for a in node.args)
    if is_plain and UNSPELT not in fields and len(node.args) <= len(fields):
        named = dict.fromkeys(fields, NOT_SAID) | given
        return Holder(tuple(named.values()), tuple(map(str, named)), site)
    anywhere = [a.value if isinstance(a, ast.Starred) else ast.List([a], ast.Load()) for a in node.args]
    anywhere += [k.value if k.arg is None else ast.List([k.value], ast.Load()) for k in node.keywords]
    return Holder(tuple(_any_of(a) for a in anywhere), (UNSPELT,) * len(anywhere), site)


def changed_record(record: Holder, owner: ast.expr, changes: Sequence[ast.keyword], site: Site) -> Holder:
    """What `_replace` makes of the record that `owner` gives: what it keeps, and what the call gives instead."""
    kept = {name: ast.Attribute(owner, name, ast.Load()) for name in record.names}
    if all(change.arg for change in changes):
        named = kept | {str(change.arg): change.value for change in changes}
        return Holder(tuple(named.values()), tuple(named), site)
    given = [_any_of(c.value) if c.arg is None else c.value for c in changes]
    return Holder((*kept.values(), *given), (UNSPELT,) * (len(kept) + len(given)), site)


def _by_name(names: Sequence[str], owner: ast.expr, site: Site, *, as_tuple: bool) -> Items:
    """The fields of the record that `owner` gives."""
    keys = None if as_tuple else tuple(None if n == UNSPELT else ast.Constant(n) for n in names)
    values = tuple(ast.Attribute(owner, name, ast.Load()) for name in names)
    return Items(values, site, keys=keys)


@dataclass(frozen=True, slots=True)
class RecordChange:
    """A call that makes a record after another, or of a sequence."""

    record: ast.expr
    """The record, or its class."""
    call: ast.Call
    """The call of the class that gives the same, but for what the record keeps."""


def change_of_record(node: ast.Call, callee: Values) -> RecordChange | None:
    """The change that a call makes of a record: `_replace`, `_make`, `dataclasses.replace` and their like."""
    match node:
        case ast.Call(func=ast.Attribute(attr="_replace" | "__replace__" | "_make")) if _is_own(callee):
            return None
        case ast.Call(func=ast.Attribute(value=record, attr="_replace" | "__replace__"), keywords=changes):
            return RecordChange(record, ast.Call(record, [], changes))
        case ast.Call(func=ast.Attribute(value=record, attr="_make"), args=[fields]):
            return RecordChange(record, ast.Call(record, [ast.Starred(fields, ast.Load())], []))
        case ast.Call(args=[record], keywords=changes) if changes and _is_one_of(callee, _CHANGES):
            return RecordChange(record, ast.Call(record, [], changes))
    return None


def changed_records(resolver: Resolver, change: RecordChange, site: Site) -> Values:
    """What such a call gives."""
    found: set[Value] = set()
    for value in resolver.evaluate(change.record, site):
        match value:
            case Holder():
                found.add(changed_record(value, change.record, change.call.keywords, site))
            case Made(name=name) if name.startswith(RECORD):
                found.add(record_of(change.call, name.removeprefix(RECORD).split(), site))
            case OwnClass(node=own, module=module) | OwnInstance(node=own, module=module):
                found.add(OwnInstance(own, module))
    return frozenset(found) or NOTHING_KNOWN


def fields_of_record(resolver: Resolver, node: ast.Call, callee: Values, site: Site) -> Values:
    """What `_asdict`, `dataclasses.asdict` and `astuple` give; nothing for another call."""
    match node:
        case ast.Call(func=ast.Attribute(value=record, attr="_asdict")) if not _is_own(callee):
            as_tuple = False
        case ast.Call(args=[record, *_]) if _is_one_of(callee, _READS):
            as_tuple = _is_one_of(callee, {"dataclasses.astuple"})
        case _:
            return frozenset()
    return frozenset(
        _by_name(names, record, site, as_tuple=as_tuple)
        for value in resolver.evaluate(record, site)
        if (names := _names_of_fields(value))
    )


def _names_of_fields(value: Value) -> Sequence[str]:
    match value:
        case Holder(names=names):
            return names
        case OwnInstance(node=own):
            return fields_of(own)
    return ()


def _is_one_of(callee: Values, names: Set[str]) -> bool:
    return any(isinstance(value, Imported) and value.name in names for value in callee)


def _is_own(callee: Values) -> bool:
    return any(isinstance(value, OwnFunction) for value in callee)


def _any_of(node: ast.expr) -> ast.expr:
    """Any element of a container."""
    return ast.Subscript(node, NOT_SAID, ast.Load())


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
