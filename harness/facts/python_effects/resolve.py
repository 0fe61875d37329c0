"""Evaluates expressions over the judged files: names, imports, aliases, simple local flows and calls between them."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable

from harness.facts.python_effects.attributes import attribute_of
from harness.facts.python_effects.calls import call_values, entered_values, returned_values
from harness.facts.python_effects.containers import element_values, joined, subscript_values
from harness.facts.python_effects.flow import (
    index_additions,
    index_instance_writes,
    is_on_every_way,
    is_same_run,
    reaching_bindings,
)
from harness.facts.python_effects.parameters import parameter_values
from harness.facts.python_effects.records import change_of_record
from harness.facts.python_effects.scopes import (
    Binding,
    Module,
    Scope,
    Site,
)
from harness.facts.python_effects.values import (
    NOTHING_KNOWN,
    Builtin,
    Constant,
    Holder,
    Imported,
    Items,
    OwnClass,
    OwnFunction,
    OwnInstance,
    OwnModule,
    Shared,
    Value,
    Values,
    paths,
    texts,
    union,
)

_MAX_DEPTH = 40
_MAX_VALUES = 12
_MAX_STEPS = 1000
"""Expressions that one question may look at; beyond them the answer is that anything is possible."""
_MAPPING = (Builtin("map"), Builtin("filter"))


class Resolver:
    """The values of expressions in a set of modules."""

    def __init__(self, modules: Iterable[Module]) -> None:
        """A resolver over the judged modules; only owned ones count as the subject's own."""
        self.modules = tuple(modules)
        self.owned = {m.name: m for m in self.modules if m.is_owned}
        self.scopes = {node: scope for m in self.modules for node, scope in m.inner.items()}
        self._known: dict[ast.expr, Values] = {}
        self._open: set[ast.expr] = set()
        self._asked: set[tuple[Module, str]] = set()
        self._depth = self._steps = self._cuts = 0
        self._containers: set[Items] = set()
        self._instance_writes = index_instance_writes(self.modules)
        self._additions = index_additions(self.modules)
        self._calls: dict[ast.AST, list[tuple[ast.Call, Site]]] = {}
        self._mapped: dict[ast.AST, list[tuple[ast.expr, Site]]] = {}
        self.parameters_count = False
        self._index_calls()
        self._known.clear()
        self.parameters_count = True

    def callers(self, function: ast.AST) -> list[tuple[ast.Call, Site]]:
        """Calls of a function (for a class: of its constructor) in the judged files."""
        return self._calls.get(function, [])

    def evaluate(self, node: ast.expr, site: Site) -> Values:
        """What `node` may stand for at `site`; holds `UNKNOWN` where something else is possible."""
        if node in self._known:
            return self._known[node]
        if self._depth == 0 and not self._containers:
            self._steps = self._cuts = 0
        self._steps += 1
        if node in self._open:
            return NOTHING_KNOWN
        if self._depth > _MAX_DEPTH or self._steps > _MAX_STEPS:
            self._cuts += 1
            return NOTHING_KNOWN
        self._open.add(node)
        self._depth += 1
        cuts = self._cuts
        try:
            values = self._bounded(self._evaluate(node, site))
        finally:
            self._open.discard(node)
            self._depth -= 1
        if self._depth == 0 or self._cuts == cuts:
            self._known[node] = values
        return values

    def within(self, container: Items, read: Callable[[Items], Values]) -> Values:
        """What reading a container gives; nothing more where it is read already, since it holds itself."""
        if self._depth == 0 and not self._containers:
            self._steps = self._cuts = 0
        self._steps += 1
        if container in self._containers:
            return frozenset()
        if self._steps > _MAX_STEPS:
            self._cuts += 1
            return NOTHING_KNOWN
        self._containers.add(container)
        try:
            return read(container)
        finally:
            self._containers.discard(container)

    def mapped(self, function: ast.AST) -> list[tuple[ast.expr, Site]]:
        """Containers whose elements `map` or `filter` give a judged function."""
        return self._mapped.get(function, [])

    def instance_writes(self, scope: Scope, name: str) -> list[tuple[ast.expr, Site]]:
        """What methods of a class assign to `self.name`."""
        return self._instance_writes.get((scope, name), [])

    def additions(self, scope: Scope, name: str, values: Iterable[Value]) -> frozenset[Items | Holder]:
        """What code puts into the subject's own objects that a name of a scope stands for."""
        is_foreign = any(isinstance(v, (Imported, Shared)) for v in values)
        return frozenset() if is_foreign else frozenset(self._additions.get((scope, name), ()))

    def named(self, dotted: str) -> Values:
        """What a dotted name of an import stands for: a module of the subject, something in one, or another's."""
        parts = dotted.split(".")
        for length in range(len(parts), 0, -1):
            module = self.owned.get(".".join(parts[:length]))
            if module is not None:
                values: Values = frozenset({OwnModule(module)})
                for name in parts[length:]:
                    values = self.attribute(values, name)
                return values
        return frozenset({Imported(dotted)})

    def attribute(self, values: Values, name: str) -> Values:
        """An attribute of each value."""
        return union(attribute_of(self, value, name) for value in values)

    def elements(self, values: Values, index: int | None = None) -> Values:
        """What an iteration over the values gives, or the item at one index."""
        return union(element_values(self, value, index) for value in values)

    def module_attribute(self, module: Module, name: str) -> Values:
        """A global of a judged module; nothing is known of one that modules have from each other in a circle."""
        if (module, name) in self._asked:
            return NOTHING_KNOWN
        self._asked.add((module, name))
        try:
            return self._module_attribute(module, name)
        finally:
            self._asked.discard((module, name))

    def _module_attribute(self, module: Module, name: str) -> Values:
        bindings = module.root.bindings.get(name)
        if bindings:
            return union(self.bound(b) for b in bindings)
        inside = self.owned.get(f"{module.name}.{name}")
        if inside is not None:
            return frozenset({OwnModule(inside)})
        if module.star_imports:
            return union(self.attribute(self.named(star), name) for star in module.star_imports)
        return NOTHING_KNOWN

    def bound(self, binding: Binding) -> Values:
        """What a binding gives its name."""
        match binding.kind:
            case "import":
                return self.named(binding.dotted)
            case "value" if isinstance(binding.node, ast.expr):
                values = self.evaluate(binding.node, binding.site)
                return values if binding.index is None else self.elements(values, binding.index)
            case "entered" if isinstance(binding.node, ast.expr):
                return entered_values(self, binding.node, binding.site)
            case "element" if isinstance(binding.node, ast.expr):
                each = self.elements(self.evaluate(binding.node, binding.site))
                return each if binding.index is None else self.elements(each, binding.index)
            case "definition" if isinstance(binding.node, ast.ClassDef):
                return frozenset({OwnClass(binding.node, binding.site.scope.module)})
            case "definition" if isinstance(binding.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                return frozenset({OwnFunction(binding.node, binding.site.scope.module)})
        return NOTHING_KNOWN

    def lookup(self, name: str, site: Site) -> Values:
        """What a name stands for at a place.

        The names of functions are theirs wherever they are bound; where a class or module binds one on some ways
        only, the others find it further out.
        """
        values: set[Value] = set()
        for number, scope in enumerate(site.scope.chain()):
            if number and scope.kind == "class":
                continue
            if name in site.scope.global_names and scope.kind != "module":
                continue
            if found := scope.bindings.get(name):
                reaching, is_bound = found, is_on_every_way(found)
                if scope.kind != "comprehension" and is_same_run(scope, site.scope):
                    reaching, is_bound = reaching_bindings(found, site)
                for binding in reaching:
                    is_parameter = binding.kind == "parameter"
                    is_bound &= binding.kind != "deleted"
                    if binding.kind != "deleted":
                        values |= (
                            parameter_values(self, name, binding) if is_parameter else self.bound(binding)
                        )
                values |= self.additions(scope, name, values)
                if is_bound or scope.kind in ("function", "comprehension"):
                    return frozenset(values) or NOTHING_KNOWN
        stars = site.scope.module.star_imports
        if name == "__builtins__":
            values.add(Imported("builtins"))
        elif hasattr(builtins, name):
            values.add(Builtin(name))
        elif stars and not values:
            values |= union(self.attribute(self.named(star), name) for star in stars) | NOTHING_KNOWN
        return frozenset(values) or NOTHING_KNOWN

    def returned(self, function: OwnFunction) -> Values:
        """What a call of a judged function returns."""
        return returned_values(self, function)

    def _index_calls(self) -> None:
        """Which judged function each call may reach; parameters count as unknown meanwhile."""
        for module in self.modules:
            for node, site in module.visits:
                if not isinstance(node, ast.Call):
                    continue
                callee = self.evaluate(node.func, site)
                if (change := change_of_record(node, callee)) is not None:
                    for value in self.evaluate(change.record, site):
                        if isinstance(value, (OwnClass, OwnInstance)):
                            self._calls.setdefault(value.node, []).append((change.call, site))
                for value in callee:
                    if value in _MAPPING and len(node.args) > 1:
                        for mapped in self.evaluate(node.args[0], site):
                            if isinstance(mapped, OwnFunction):
                                self._mapped.setdefault(mapped.node, []).append((node.args[1], site))
                    if isinstance(value, OwnFunction):
                        self._calls.setdefault(value.node, []).append((node, site))
                    elif isinstance(value, (OwnClass, OwnInstance)):
                        name = "__init__" if isinstance(value, OwnClass) else "__call__"
                        self._calls.setdefault(value.node, []).append((node, site))
                        for called in attribute_of(self, value, name):
                            if isinstance(called, OwnFunction):
                                self._calls.setdefault(called.node, []).append((node, site))

    def _evaluate(self, node: ast.expr, site: Site) -> Values:
        match node:
            case ast.Name(id=name):
                return self.lookup(name, site)
            case ast.Attribute(value=value, attr=name):
                return self.attribute(self.evaluate(value, site), name)
            case ast.Constant(value=str() | int() | float() | None as literal):
                return frozenset({Constant(literal)})
            case ast.Call():
                return call_values(self, node, site)
            case ast.Subscript(value=value, slice=index):
                return subscript_values(self, self.evaluate(value, site), self.evaluate(index, site))
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                return frozenset({Items(tuple(elements), site)})
            case ast.Dict(keys=keys, values=elements):
                return frozenset({Items(tuple(elements), site, keys=tuple(keys))})
            case ast.BoolOp(values=parts):
                return union(self.evaluate(part, site) for part in parts)
            case ast.IfExp(body=body, orelse=other):
                return self.evaluate(body, site) | self.evaluate(other, site)
            case ast.NamedExpr(value=value) | ast.Await(value=value) | ast.Starred(value=value):
                return self.evaluate(value, site)
            case ast.Lambda():
                return frozenset({OwnFunction(node, site.scope.module)})
            case ast.BinOp(left=left, op=ast.Add() | ast.BitOr() as sign, right=right):
                first, second = self.evaluate(left, site), self.evaluate(right, site)
                if any(isinstance(v, Items) for v in first | second):
                    return frozenset({joined(left, right, site, as_dictionary=isinstance(sign, ast.BitOr))})
                return _concatenated(first, second)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                both = self.evaluate(left, site) | self.evaluate(right, site)
                return frozenset(v for v in both if isinstance(v, Items)) or NOTHING_KNOWN
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return paths(self.evaluate(left, site) | self.evaluate(right, site)) or NOTHING_KNOWN
            case ast.JoinedStr(values=parts):
                return self._formatted(parts, site)
            case ast.ListComp(elt=element) | ast.SetComp(elt=element) | ast.GeneratorExp(elt=element):
                inner = Site(site.scope.module.inner[node], site.block, site.position)
                return frozenset({Items((element,), inner)})
            case ast.DictComp(key=key, value=element):
                inner = Site(site.scope.module.inner[node], site.block, site.position)
                return frozenset({Items((element,), inner, keys=(key,))})
        return NOTHING_KNOWN

    def _formatted(self, parts: list[ast.expr], site: Site) -> Values:
        text: Values = frozenset({Constant("")})
        for part in parts:
            value = part.value if isinstance(part, ast.FormattedValue) else part
            text = _concatenated(text, self.evaluate(value, site))
        return text

    def bases(self, own: OwnClass) -> Values:
        """The base classes that a class names."""
        site = own.module.sites[own.node]
        return union(self.evaluate(base, site) for base in own.node.bases)

    def _bounded(self, values: Values) -> Values:
        """At most a dozen values; of more, those that lead outside are kept."""
        if len(values) <= _MAX_VALUES:
            return values
        foreign = sorted((v for v in values if isinstance(v, (Imported, Shared))), key=lambda v: v.name)
        return frozenset(foreign[:_MAX_VALUES]) | NOTHING_KNOWN


def _concatenated(left: Values, right: Values) -> Values:
    known = frozenset(Constant(a + b) for a in texts(left) for b in texts(right))
    is_whole = len(texts(left)) == len(left) and len(texts(right)) == len(right)
    return known if known and is_whole else known | NOTHING_KNOWN
