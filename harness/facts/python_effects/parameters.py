"""What a parameter may hold: what the calls in the judged files give it, its default, and what its type says."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from harness.facts.python_effects.containers import item_values
from harness.facts.python_effects.scopes import Binding, FunctionNode, Module, Scope, Site, all_arguments
from harness.facts.python_effects.values import (
    NOTHING_KNOWN,
    UNKNOWN,
    Builtin,
    Constant,
    Imported,
    Items,
    OwnClass,
    OwnInstance,
    Shared,
    Values,
    union,
)

if TYPE_CHECKING:
    from harness.facts.python_effects.resolve import Resolver

_METACLASS = re.compile(r"^type$|(Meta|Type|metaclass)$")


def parameter_values(resolver: Resolver, name: str, binding: Binding) -> Values:
    """The values that the calls in the judged files give a parameter, its default, and what its type says."""
    node, site = binding.node, binding.site
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        return NOTHING_KNOWN
    own = _receiver(node, name, site.scope)
    if own is not None:
        return frozenset({own})
    if _is_bases(resolver, node, name, site.scope):
        return frozenset({Shared("the base classes of a class")})
    declared = _declared(resolver, node, name, site)
    if not resolver.parameters_count:
        return declared or NOTHING_KNOWN
    given = [_argument(resolver, call, at, node, name) for call, at in resolver.callers(node)]
    if _is_first(node, name):
        given += [resolver.elements(resolver.evaluate(items, at)) for items, at in resolver.mapped(node)]
    return union(given or [_default(resolver, node, name)]) - ({UNKNOWN} if declared else set()) | declared


def _declared(resolver: Resolver, node: FunctionNode, name: str, site: Site) -> Values:
    """An object of the engine's configuration, where the annotation says so."""
    for argument in all_arguments(node.args):
        if argument.arg == name and argument.annotation is not None and site.scope.parent is not None:
            outer = Site(site.scope.parent, site.block, site.position)
            for dotted in _annotation(resolver, argument.annotation, outer):
                if dotted.startswith("vllm.") and dotted.endswith("Config"):
                    return frozenset({Shared(f"{name}: {dotted.rpartition('.')[2]}")})
    return frozenset()


def _annotation(resolver: Resolver, node: ast.expr, site: Site) -> list[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            node = ast.parse(node.value, mode="eval").body
        except (SyntaxError, ValueError):
            return []
    if isinstance(node, ast.BinOp):
        return _annotation(resolver, node.left, site) + _annotation(resolver, node.right, site)
    return [v.name for v in resolver.evaluate(node, site) if isinstance(v, Imported)]


def _argument(resolver: Resolver, call: ast.Call, at: Site, node: FunctionNode, name: str) -> Values:
    positional = [*node.args.posonlyargs, *node.args.args]
    names = [argument.arg for argument in positional]
    is_method = bool(names) and _receiver(node, names[0], resolver.scopes.get(node)) is not None
    for keyword in call.keywords:
        if keyword.arg == name:
            return resolver.evaluate(keyword.value, at)
        if keyword.arg is None:
            unpacked = [v for v in resolver.evaluate(keyword.value, at) if isinstance(v, Items) and v.keys]
            if unpacked:
                return union(item_values(resolver, v, frozenset({Constant(name)})) for v in unpacked)
    place = names.index(name) - is_method if name in names else -1
    plain = not any(isinstance(a, ast.Starred) for a in call.args)
    if plain and 0 <= place < len(call.args):
        return resolver.evaluate(call.args[place], at)
    if node.args.vararg is not None and node.args.vararg.arg == name and plain:
        rest = call.args[len(names) - is_method :]
        return frozenset({Items(tuple(rest), at)})
    return _default(resolver, node, name)


def _default(resolver: Resolver, node: FunctionNode, name: str) -> Values:
    positional = [*node.args.posonlyargs, *node.args.args]
    pairs = list(zip(reversed(positional), reversed(node.args.defaults), strict=False))
    pairs += [(a, d) for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if d]
    for argument, default in pairs:
        if argument.arg == name:
            return resolver.evaluate(default, resolver.scopes[node].module.sites[node])
    return NOTHING_KNOWN


def _is_first(node: FunctionNode, name: str) -> bool:
    return [a.arg for a in (*node.args.posonlyargs, *node.args.args)][:1] == [name]


def _is_bases(resolver: Resolver, node: FunctionNode, name: str, scope: Scope) -> bool:
    """Whether a metaclass is given the base classes of what it makes by a parameter."""
    owner = scope.parent.node if scope.parent is not None else None
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
    if not isinstance(owner, ast.ClassDef) or names[2:3] != [name] or isinstance(node, ast.Lambda):
        return False
    bases = resolver.bases(OwnClass(owner, scope.module)) if owner.bases else frozenset()
    is_made = node.name in ("__new__", "__init__", "__prepare__")
    return is_made and any(isinstance(b, (Builtin, Imported)) and _METACLASS.search(b.name) for b in bases)


def _receiver(node: FunctionNode, name: str, scope: Scope | None) -> OwnInstance | OwnClass | None:
    """What the first parameter of a method is."""
    if scope is None or isinstance(node, ast.Lambda) or scope.parent is None or scope.parent.kind != "class":
        return None
    first = [*node.args.posonlyargs, *node.args.args]
    decorators = {d.id for d in node.decorator_list if isinstance(d, ast.Name)}
    own = scope.parent.node
    if not first or first[0].arg != name or "staticmethod" in decorators or not isinstance(own, ast.ClassDef):
        return None
    is_class = "classmethod" in decorators or node.name in (
        "__new__",
        "__init_subclass__",
        "__class_getitem__",
    )
    kind: Callable[[ast.ClassDef, Module], OwnInstance | OwnClass] = OwnClass if is_class else OwnInstance
    return kind(own, scope.module)
