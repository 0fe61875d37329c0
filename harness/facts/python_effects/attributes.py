"""Attributes of values."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from harness.facts.python_effects.records import NOT_SAID, fields_of, record_of
from harness.facts.python_effects.values import (
    NOTHING_KNOWN,
    UNSPELT,
    Bases,
    Builtin,
    Constant,
    Holder,
    Imported,
    Items,
    Made,
    Namespace,
    OwnClass,
    OwnFunction,
    OwnInstance,
    OwnModule,
    Shared,
    Unknown,
    Value,
    Values,
    paths,
    union,
)

if TYPE_CHECKING:
    from harness.facts.python_effects.resolve import Resolver

_DICTIONARIES = ("__dict__", "__globals__", "f_globals", "f_locals", "f_builtins")
_CLASSES = ("__class__", "__base__", "__bases__", "__mro__", "__thisclass__")
"""What leads from an object, whatever it is, to classes that may be others'."""
_SAME = ("__wrapped__", "__func__")


def attribute_of(resolver: Resolver, value: Value, name: str) -> Values:
    """What the attribute `name` of `value` may be."""
    match value:
        case Imported() | Shared():
            return _of_foreign(resolver, value, name)
        case Builtin(name=owner):
            return frozenset({Imported(f"builtins.{owner}.{name}")})
        case OwnModule(module=module):
            return frozenset({value}) if name == "__dict__" else resolver.module_attribute(module, name)
        case OwnInstance(node=node, module=module) if name == "__class__":
            return frozenset({OwnClass(node, module)})
        case OwnClass() | OwnInstance():
            own = OwnClass(value.node, value.module)
            if name in ("__bases__", "__mro__", "mro", "__base__"):
                return resolver.bases(own) if name == "__base__" else frozenset({Bases(own)})
            found = _of_class(resolver, own, name)
            return _read_properties(resolver, found) if isinstance(value, OwnInstance) else found
        case Bases() if name == "mro":
            return frozenset({value})
        case Made() if name == "parent" and paths(frozenset({value})):
            return frozenset({value})
        case OwnFunction(module=module) if name == "__globals__":
            return frozenset({OwnModule(module)})
        case Holder(elements=elements, names=names, site=site) if name == "__dict__":
            keys = tuple(None if n == UNSPELT else ast.Constant(n) for n in names)
            return frozenset({Items(elements, site, keys=keys)})
        case Holder(elements=elements, names=names, site=site):
            named = [e for e, n in zip(elements, names, strict=True) if n in (name, UNSPELT)]
            return union(resolver.evaluate(e, site) for e in named)
        case Unknown() if name in _CLASSES:
            return frozenset({Shared(f"….{name}")})
    return NOTHING_KNOWN


def _read_properties(resolver: Resolver, values: Values) -> Values:
    """The values, properties replaced by what they return."""
    found: set[Value] = set()
    for value in values:
        if isinstance(value, OwnFunction) and _is_property(value.node):
            found |= resolver.returned(value)
        else:
            found.add(value)
    return frozenset(found)


def _is_property(node: ast.AST) -> bool:
    """Whether reading the attribute calls the function."""
    return isinstance(node, ast.FunctionDef) and any(
        (d.attr if isinstance(d, ast.Attribute) else getattr(d, "id", "")) in ("property", "cached_property")
        for d in node.decorator_list
    )


def _of_foreign(resolver: Resolver, value: Imported | Shared, name: str) -> Values:
    if name in _DICTIONARIES:
        return frozenset({Namespace(value)})
    if name in _SAME:
        return frozenset({value})
    if isinstance(value, Shared):
        return frozenset({Shared(f"{value.name}.{name}")})
    return resolver.named(f"{value.name}.{name}")


def _of_class(resolver: Resolver, own: OwnClass, name: str) -> Values:
    """What the class body, `self.name = ...` in its methods, or its own bases say."""
    scope = own.module.inner[own.node]
    found: set[Value] = set()
    for binding in scope.bindings.get(name, ()):
        found |= resolver.bound(binding)
    for node, site in resolver.instance_writes(scope, name):
        found |= resolver.evaluate(node, site)
    fields = fields_of(own.node)
    for call, at in resolver.callers(own.node) if name in fields else ():
        record = record_of(call, fields, at)
        given = [e for e, n in zip(record.elements, record.names, strict=True) if n in (name, UNSPELT)]
        found |= {v for e in given if e is not NOT_SAID for v in resolver.evaluate(e, at)}
    found |= resolver.additions(scope, name, found)
    if found:
        return frozenset(found)
    if name != "__getattr__":
        for getter in _of_class(resolver, own, "__getattr__"):
            found |= resolver.returned(getter) if isinstance(getter, OwnFunction) else frozenset()
    if found:
        return frozenset(found)
    bases = resolver.bases(own) if own.node.bases else frozenset()
    for base in bases:
        if isinstance(base, OwnClass) and base != own:
            found |= attribute_of(resolver, base, name)
    return frozenset(found) if found - {Constant(None)} else NOTHING_KNOWN
