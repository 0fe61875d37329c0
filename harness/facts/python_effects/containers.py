"""Elements of containers: what an index, a key or an iteration gives."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from harness.facts.python_effects.attributes import attribute_of
from harness.facts.python_effects.records import fields_of
from harness.facts.python_effects.values import (
    COPY_OF,
    NOTHING_KNOWN,
    UNKNOWN,
    UNSPELT,
    Bases,
    Constant,
    Holder,
    Imported,
    Items,
    Made,
    Namespace,
    OwnFunction,
    OwnInstance,
    OwnModule,
    Shared,
    Value,
    Values,
    spelt,
    texts,
    union,
)

if TYPE_CHECKING:
    from harness.facts.python_effects.resolve import Resolver
    from harness.facts.python_effects.scopes import Site


def subscript_values(resolver: Resolver, values: Values, index: Values) -> Values:
    results = []
    for value in values:
        if value == Imported("builtins") and texts(index):
            results += [resolver.attribute(frozenset({value}), name) for name in texts(index)]
        elif isinstance(value, OwnModule):
            results += [
                frozenset({Shared(f"globals()[{UNSPELT}]")})
                if name == UNSPELT
                else resolver.module_attribute(value.module, name)
                for name in spelt(index)
            ]
        elif value == Imported("sys.modules"):
            results += [resolver.named(name) for name in texts(index)]
            owners = [v.name.removesuffix(".__module__") for v in index if isinstance(v, Imported)]
            results += [frozenset({Imported(owner.rpartition(".")[0])}) for owner in owners]
            if not texts(index) and not owners:
                results.append(frozenset({Shared("sys.modules[…]")}))
        elif isinstance(value, Namespace):
            results += [
                frozenset({type(value.of)(f"{value.of.name}.{UNSPELT}")})
                if name == UNSPELT
                else attribute_of(resolver, value.of, name)
                for name in spelt(index)
            ]
        elif isinstance(value, Items) and value.keys is not None:
            results.append(resolver.within(value, lambda held: item_values(resolver, held, index)))
        elif isinstance(value, Items):
            whole = [v.value for v in index if isinstance(v, Constant) and isinstance(v.value, int)]
            results.append(element_values(resolver, value, whole[0] if len(whole) == 1 else None))
        else:
            results.append(element_values(resolver, value, None))
    return union(results)


def item_values(resolver: Resolver, value: Items, index: Values) -> Values:
    """The value under a key of a dictionary; any of them where the key cannot be told."""
    pairs = list(zip(value.keys or (), value.elements, strict=True))
    same = [
        (key, element)
        for key, element in pairs
        if key is None or not index.isdisjoint(resolver.evaluate(key, value.site) - {UNKNOWN})
    ]
    return union(
        subscript_values(resolver, resolver.evaluate(element, value.site), index)
        if key is None
        else resolver.evaluate(element, value.site)
        for key, element in same or pairs
    )


def dictionary_of(resolver: Resolver, node: ast.Call, site: Site) -> Items:
    """What `dict` makes of pairs, of other dictionaries and of keywords."""
    made: list[tuple[ast.expr | None, ast.expr]] = []
    for argument in node.args:
        displays = [v for v in resolver.evaluate(argument, site) if isinstance(v, Items) and v.keys is None]
        for display in displays:
            for index in range(len(display.elements)):
                pair = ast.Subscript(argument, ast.Constant(index), ast.Load())
                key, value = (ast.Subscript(pair, ast.Constant(place), ast.Load()) for place in (0, 1))
                made.append((key, value))
        if not displays:
            made.append((None, argument))
    made += [(ast.Constant(k.arg) if k.arg else None, k.value) for k in node.keywords]
    return Items(tuple(value for _, value in made), site, keys=tuple(key for key, _ in made))


def pairs_of(dictionary: Items) -> Items:
    """The keys of a dictionary, each with its value."""
    unknown = ast.Name("", ast.Load())
    pairs = (
        ast.Tuple([key or unknown, value if key else ast.Subscript(value, unknown, ast.Load())], ast.Load())
        for key, value in zip(dictionary.keys or (), dictionary.elements, strict=True)
    )
    return Items(tuple(pairs), dictionary.site)


def joined(left: ast.expr, right: ast.expr, site: Site, *, as_dictionary: bool) -> Items:
    """What two lists, or two dictionaries or sets, are together."""
    if as_dictionary:
        return Items((left, right), site, keys=(None, None))
    return Items((ast.Starred(left, ast.Load()), ast.Starred(right, ast.Load())), site)


def element_values(resolver: Resolver, value: Value, index: int | None) -> Values:
    match value:
        case Items():
            return resolver.within(value, lambda held: _held_values(resolver, held, index))
        case Bases(of=own):
            return resolver.bases(own)
        case Made(name=name) if name.startswith(COPY_OF):
            return frozenset({Shared(f"{name.removeprefix(COPY_OF)}[…]")})
        case Namespace(of=of):
            return frozenset({Shared(f"{of.name}.{UNSPELT}")})
        case Holder(elements=elements, names=names, site=site):
            return element_values(resolver, Items(elements, site), None if UNSPELT in names else index)
        case OwnInstance(node=node):
            found = attribute_of(resolver, value, "__getitem__")
            given = [resolver.returned(f) for f in found if isinstance(f, OwnFunction)]
            fields = fields_of(node) if not given else []
            wanted = fields if index is None else fields[index:][:1]
            return union([*given, *(attribute_of(resolver, value, name) for name in wanted)])
        case Imported(name=name) if name.endswith("()"):
            return frozenset({Imported(f"{name}[…]")})
        case Imported(name=name) | Shared(name=name):
            return frozenset({Shared(f"{name}[…]")})
    return NOTHING_KNOWN


def _held_values(resolver: Resolver, container: Items, index: int | None) -> Values:
    """The element of a display at one index, or any of them."""
    elements, site, keys = container.elements, container.site, container.keys
    plain = keys is None and not any(isinstance(e, ast.Starred) for e in elements)
    if index is not None and plain and -len(elements) <= index < len(elements):
        return resolver.evaluate(elements[index], site)
    return union(
        resolver.elements(resolver.evaluate(e.value if isinstance(e, ast.Starred) else e, site))
        if isinstance(e, ast.Starred) or key is None
        else resolver.evaluate(e, site)
        for e, key in zip(elements, keys or elements, strict=True)
    )
