"""Finds every reach outside in the judged modules."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence

from harness.facts.python_effects.at_import import done_at_import
from harness.facts.python_effects.guards import is_guarded
from harness.facts.python_effects.import_conditions import done_for_its_effect, refusal
from harness.facts.python_effects.named_setters import set_by_name
from harness.facts.python_effects.operators import EntryReader, is_builtin
from harness.facts.python_effects.program import Program
from harness.facts.python_effects.scopes import Site
from harness.facts.python_effects.tables import (
    AT_IMPORT_ONLY,
    called_kind,
    unpickles,
)
from harness.facts.python_effects.values import (
    NOTHING_KNOWN,
    UNKNOWN,
    UNSPELT,
    Imported,
    Items,
    Made,
    OwnClass,
    OwnFunction,
    OwnInstance,
    OwnModule,
    Shared,
    Values,
    dotted_names,
    spelt,
    texts,
)
from harness.facts.python_effects.writes import Place, Writes, owners_of
from harness.facts.python_source.imports import type_checking_names
from harness.facts.python_source.names import dotted
from harness.model.effects import Effect, EffectKind

_ADDING = frozenset(
    {
        "append",
        "add",
        "insert",
        "appendleft",
        "extend",
        "update",
        "setdefault",
        "__setitem__",
        "__ior__",
        "register",
    }
)
_REMOVING = frozenset(
    {"pop", "popitem", "clear", "remove", "discard", "__delitem__", "popleft", "sort", "reverse"}
)
_COMPUTING = (
    "torch",
    "numpy",
    "triton",
    "operator",
    "math",
    "heapq",
    "bisect",
    "cutlass",
    "jax",
    "tvm",
    "scipy",
)
_CHANGES_FIRST = re.compile(
    r"operator\.(setitem|delitem|i[a-z]+)|heapq\._?heap\w+|bisect\.insort\w*|random\.shuffle"
    rf"|builtins\.\w+\.({'|'.join(sorted(_ADDING | _REMOVING))})"
)
"""Functions that change the container that they are given first."""
_IN_PLACE = re.compile(r"[a-z]\w*[a-z0-9]_")
"""Methods of tensors that write into them."""
_IDENTITY = ("__class__", "__bases__", "__code__")
"""Attributes that make an object another one, whoever handed it over."""
_SETTERS = frozenset({"__setattr__", "__delattr__"})
_LOGGER_METHODS = frozenset({"setLevel", "addHandler", "removeHandler", "addFilter", "removeFilter"})
_OWN = (OwnClass, OwnFunction, OwnInstance, OwnModule)
_HANDED_ON = ("setattr", "delattr", "getattr", "exec", "eval", "__import__")
_NOT_CALLED = ("isinstance", "issubclass", "hasattr")


class EffectFinder(Writes):
    """The effects of a program."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.modules = program.modules
        self._entries = EntryReader(self.resolver)

    def effects(self) -> Iterator[Effect]:
        """Every effect, file by file in the order of the text; what only a type checker reads is left out."""
        for module in self.modules:
            types_only = type_checking_names(module.tree)
            for node, site in module.visits:
                if not _is_type_checking(site, types_only):
                    yield from self._visit(Place(module=module, site=site, node=node))

    def _visit(self, place: Place) -> Iterator[Effect]:
        match place.node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield from self._written(place, target, value)
            case (
                ast.AnnAssign(target=target, value=ast.expr() as value)
                | ast.AugAssign(target=target, value=value)
            ):
                yield from self._written(place, target, value)
            case ast.Delete(targets=targets):
                for target in targets:
                    yield from self._written(place, target, None)
            case ast.For(target=target) | ast.AsyncFor(target=target):
                yield from self._written(place, target, target)
            case ast.With(items=items) | ast.AsyncWith(items=items):
                for item in items:
                    if item.optional_vars is not None:
                        yield from self._written(place, item.optional_vars, item.context_expr)
            case ast.Call() as call:
                yield from self._call(place, call)
            case ast.Raise() | ast.Assert() as statement:
                if self._when(place) == "import" and (
                    refused := refusal(self.resolver, place.site, statement)
                ):
                    yield self._effect(place, EffectKind.AT_IMPORT, refused[0], is_sure=refused[1])
            case ast.Expr(value=ast.Call() as call):
                yield from self._statement_call(place, call)
            case ast.expr() as decorator:
                yield from self._decorator(place, decorator)

    def _written(self, place: Place, target: ast.expr, value: ast.expr | None) -> Iterator[Effect]:
        """An assignment to, or a deletion of (`value` None), one target."""
        match target:
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                for element in elements:
                    yield from self._written(place, element, value)
            case ast.Starred(value=inner):
                yield from self._written(place, inner, value)
            case ast.Attribute(value=owner, attr=name):
                values = self.resolver.evaluate(owner, place.site)
                if name in _IDENTITY and UNKNOWN in values and not _foreign(values):
                    values = frozenset({Shared(ast.unparse(owner))})
                yield from self._attribute(place, values, (name,), removes=value is None)
            case ast.Subscript(value=owner, slice=key):
                values = self.resolver.evaluate(owner, place.site)
                spaces = owners_of(values) | (values & {Imported("builtins")})
                if spaces:
                    names = spelt(self.resolver.evaluate(key, place.site))
                    yield from self._attribute(place, spaces, names, removes=value is None)
                else:
                    yield from self._container(
                        place, values, key, removes=value is None, on_duplicate="overwrites"
                    )
            case ast.Name(id=name) if isinstance(place.node, ast.AugAssign) and _may_hold_items(value):
                values = self.resolver.lookup(name, place.site)
                yield from self._container(place, values, None, removes=False, on_duplicate="overwrites")

    def _call(self, place: Place, call: ast.Call) -> Iterator[Effect]:
        callee = self.resolver.evaluate(call.func, place.site)
        known = False
        for value in callee:
            if isinstance(value, Imported):
                kind = called_kind(value.name)
                if kind is not None:
                    known = True
                    yield from self._known_call(place, call, kind, value.name, is_sure=len(callee) == 1)
        if isinstance(call.func, ast.Attribute):
            yield from self._method(place, call, call.func)
        yield from self._setattr(place, call, callee)
        if self._when(place) == "import":
            for kind, name in done_at_import(self.resolver, place.site, call, callee):
                yield self._effect(place, kind, name)
        unnamed = any(
            isinstance(v, Imported) and (v.name.endswith(f".{UNSPELT}") or unpickles(v.name, call))
            for v in callee
        )
        if unnamed or is_builtin(callee, "exec", "eval", "compile", "execfile"):
            yield self._effect(place, EffectKind.DYNAMIC_CODE, ast.unparse(call.func))
        if not known:
            yield from self._registrations(place, call, callee)
        yield from self._into(place, call, callee)
        if not is_builtin(callee, *_NOT_CALLED) and "typing.cast" not in dotted_names(callee):
            yield from self._passed_on(place, call, callee)

    def _into(self, place: Place, call: ast.Call, callee: Values) -> Iterator[Effect]:
        """What a function writes into that is given to it: by `out=`, or first to an in-place method by its class."""
        into = [k.value for k in call.keywords if k.arg == "out"]
        if any(re.fullmatch(rf"torch\.Tensor\.{_IN_PLACE.pattern}", name) for name in dotted_names(callee)):
            into += call.args[:1]
        for target in into:
            for value in self.resolver.evaluate(target, place.site):
                if isinstance(value, Imported) and "(" not in value.name:
                    yield self._effect(place, EffectKind.ATTRIBUTE, value.name)
                elif isinstance(value, Shared):
                    yield self._effect(place, EffectKind.SHARED_OBJECT, value.name, is_sure=False)

    def _statement_call(self, place: Place, call: ast.Call) -> Iterator[Effect]:
        """A call of others' code for nothing but its effect which no table knows: at a module's top, or by its name."""
        callee = self.resolver.evaluate(call.func, place.site)
        at_import = self._when(place) == "import" and done_for_its_effect(place.site, callee)
        setter = set_by_name(self.resolver, place.site, call, callee)
        if (at_import or setter) and not any(self._call(place, call)):
            kind = EffectKind.AT_IMPORT if at_import else EffectKind.GLOBAL_SETTING
            yield self._effect(place, kind, at_import or setter, is_sure=False)

    def _known_call(
        self, place: Place, call: ast.Call, kind: EffectKind, name: str, *, is_sure: bool
    ) -> Iterator[Effect]:
        """A call of a function whose effect is known by its name."""
        if kind in AT_IMPORT_ONLY and self._when(place) != "import":
            return
        first = self.resolver.evaluate(call.args[0], place.site) if call.args else NOTHING_KNOWN
        if kind is EffectKind.ENVIRONMENT:
            keys = (texts(first) and spelt(first)) or self._dictionary_keys(call, first) or (UNSPELT,)
            for key in keys:
                yield self._effect(place, kind, key, is_sure=is_sure and UNSPELT not in keys, key=key)
            return
        if kind is EffectKind.ATTRIBUTE:
            yield from self._patched(place, call, name, first)
        else:
            yield self._effect(place, kind, name, is_sure=is_sure)

    def _patched(self, place: Place, call: ast.Call, patcher: str, first: Values) -> Iterator[Effect]:
        """What `mock.patch` and its like replace: a dotted name, or an attribute of an object."""
        dotted = texts(first)
        if dotted and "." in dotted[0]:
            owner = self.resolver.named(dotted[0].rpartition(".")[0])
            yield from self._attribute(place, owner, (dotted[0].rpartition(".")[2],))
            return
        second = self.resolver.evaluate(call.args[1], place.site) if len(call.args) > 1 else NOTHING_KNOWN
        if spaces := owners_of(first):
            yield from self._attribute(place, spaces, self._dictionary_keys(call, second) or (UNSPELT,))
            return
        found = list(self._attribute(place, first, spelt(second)))
        yield from found
        if not found and not any(isinstance(v, _OWN) for v in first):
            yield self._effect(place, EffectKind.ATTRIBUTE, f"{patcher}: …", is_sure=False)

    def _dictionary_keys(self, call: ast.Call, first: Values) -> tuple[str, ...]:
        """The keys of `update({...}, name=...)`, where the text shows them."""
        keys = [k.arg for k in call.keywords if k.arg]
        for value in first:
            if isinstance(value, Items):
                keys += [t for k in _keys(value) for t in texts(self.resolver.evaluate(k, value.site))]
        return tuple(keys)

    def _method(self, place: Place, call: ast.Call, func: ast.Attribute) -> Iterator[Effect]:
        """A method that changes the object it is called on."""
        owner = self.resolver.evaluate(func.value, place.site)
        for entry in self._entries.library_method(call, place.site, owner, func.attr):
            yield self._effect(
                place, entry.kind, entry.target, is_sure=entry.is_sure, on_duplicate=entry.on_duplicate
            )
        spaces = owners_of(owner)
        if spaces and func.attr in _ADDING | _REMOVING:
            first = self.resolver.evaluate(call.args[0], place.site) if call.args else NOTHING_KNOWN
            names = texts(first) or self._dictionary_keys(call, first) or (UNSPELT,)
            yield from self._attribute(place, spaces, names, removes=func.attr in _REMOVING)
            return
        if func.attr in _LOGGER_METHODS:
            for value in owner:
                if isinstance(value, Shared) and value.name.startswith("logging.getLogger("):
                    target = f"{value.name}.{func.attr}"
                    yield self._effect(place, EffectKind.SHARED_OBJECT, target, is_sure=False)
        if _IN_PLACE.fullmatch(func.attr):
            for value in owner:
                root = value.name.partition(".")[0] if isinstance(value, Imported) else "torch"
                if isinstance(value, Imported) and root not in _COMPUTING and "(" not in value.name:
                    yield self._effect(place, EffectKind.ATTRIBUTE, f"{value.name}.{func.attr}")
        if func.attr not in _ADDING | _REMOVING:
            return
        holders = frozenset(v for v in owner if isinstance(v, Shared) or _is_container(v))
        if not holders or (func.attr == "register"):
            return
        if called_kind(f"{next(iter(holders)).name}.{func.attr}"):  # type: ignore[union-attr]
            return
        removes = func.attr in _REMOVING
        if func.attr in ("update", "extend") and call.args:
            first = self.resolver.evaluate(call.args[0], place.site)
            keys: list[ast.expr | None] = [k for v in first if isinstance(v, Items) for k in _keys(v)]
        else:
            keys = list(call.args[1:2] if func.attr == "insert" else call.args[:1])
        keeps = func.attr in ("append", "add", "insert", "extend", "setdefault", "appendleft")
        for key in keys or [None]:
            yield from self._container(
                place, holders, key, removes=removes, on_duplicate="keeps" if keeps else "overwrites"
            )

    def _setattr(self, place: Place, call: ast.Call, callee: Values) -> Iterator[Effect]:
        """`setattr` and its relatives: bound, unbound, by `partial`, `operator.setitem` or `methodcaller`."""
        arguments = self._unpacked(call.args, place.site)
        if Made("operator.methodcaller") in callee and arguments and isinstance(call.func, ast.Call):
            name, *rest = call.func.args or arguments
            method = spelt(self.resolver.evaluate(name, place.site))
            if set(method) & {*_SETTERS, *_ADDING, *_REMOVING, UNSPELT}:
                owner = self.resolver.evaluate(arguments[0], place.site)
                written = self.resolver.evaluate(rest[0], place.site) if rest else NOTHING_KNOWN
                yield from self._attribute(place, owners_of(owner) or owner, spelt(written))
            return
        names = {v.name for v in callee if isinstance(v, Imported)}
        if "functools.partial" in names and arguments:
            callee = self.resolver.evaluate(arguments[0], place.site)
            names = {v.name for v in callee if isinstance(v, Imported)}
            arguments = arguments[1:]
        last = {name.rpartition(".")[2] for name in names}
        is_set = is_builtin(callee, "setattr", "delattr") or any(
            n.startswith("builtins.") and n.rpartition(".")[2] in _SETTERS for n in names
        )
        if is_set and arguments:
            owner = self.resolver.evaluate(arguments[0], place.site)
            written = (
                self.resolver.evaluate(arguments[1], place.site) if len(arguments) > 1 else NOTHING_KNOWN
            )
            yield from self._attribute(place, owner, spelt(written))
        elif "functools.update_wrapper" in names and arguments:
            owner = self.resolver.evaluate(arguments[0], place.site)
            yield from self._attribute(place, owner, ("__dict__",))
        elif last & _SETTERS and isinstance(call.func, ast.Attribute):
            owner = self.resolver.evaluate(call.func.value, place.site)
            written = self.resolver.evaluate(arguments[0], place.site) if arguments else NOTHING_KNOWN
            yield from self._attribute(place, owner, spelt(written))
        elif any(map(_CHANGES_FIRST.fullmatch, names)):
            owner = self.resolver.evaluate(arguments[0], place.site) if arguments else NOTHING_KNOWN
            if spaces := owners_of(owner):
                written = (
                    self.resolver.evaluate(arguments[1], place.site) if len(arguments) > 1 else NOTHING_KNOWN
                )
                yield from self._attribute(place, spaces, spelt(written))
            else:
                key = arguments[1] if len(arguments) > 1 else None
                yield from self._container(place, owner, key, removes=False, on_duplicate="overwrites")

    def _unpacked(self, arguments: Sequence[ast.expr], site: Site) -> list[ast.expr]:
        """The arguments, a starred display replaced by its elements."""
        plain: list[ast.expr] = []
        for argument in arguments:
            if isinstance(argument, ast.Starred):
                for value in self.resolver.evaluate(argument.value, site):
                    plain += value.elements if isinstance(value, Items) else ()
            else:
                plain.append(argument)
        return plain

    def _registrations(self, place: Place, node: ast.expr, callee: Values) -> Iterator[Effect]:
        for value in callee:
            for entry in self._entries.entries(node, place.site, value):
                key_node = node.args[0] if isinstance(node, ast.Call) and node.args else None
                yield self._effect(
                    place,
                    entry.kind,
                    entry.target,
                    is_sure=entry.is_sure and len(callee) == 1,
                    key=entry.key,
                    key_is_own=entry.key_is_own,
                    key_is_foreign=entry.key_is_foreign,
                    on_duplicate=entry.on_duplicate,
                    is_guarded=key_node is not None
                    and is_guarded(self.resolver, place.site, key_node, entry.key),
                )

    def _decorator(self, place: Place, node: ast.expr) -> Iterator[Effect]:
        callee = self.resolver.evaluate(node, place.site)
        for value in callee:
            kind = called_kind(value.name) if isinstance(value, Imported) else None
            if kind is not None and isinstance(value, Imported):
                yield self._effect(place, kind, value.name)
        yield from self._registrations(place, node, callee)

    def _passed_on(self, place: Place, call: ast.Call, callee: Values) -> Iterator[Effect]:
        """A function with a known effect that is handed to something else, which may call it."""
        for argument in (*call.args, *(k.value for k in call.keywords)):
            if isinstance(argument, ast.Name) and argument.id in _HANDED_ON:
                builtin = is_builtin(self.resolver.evaluate(argument, place.site), argument.id)
                if builtin and "functools.partial" not in dotted_names(callee):
                    yield self._effect(place, EffectKind.DYNAMIC_CODE, argument.id, is_sure=False)
            if self._may_be_imported(argument, place.site):
                for value in self.resolver.evaluate(argument, place.site):
                    kind = called_kind(value.name) if isinstance(value, Imported) else None
                    if kind is not None and kind not in AT_IMPORT_ONLY and isinstance(value, Imported):
                        yield self._effect(place, kind, value.name, is_sure=False)

    def _may_be_imported(self, node: ast.expr, site: Site) -> bool:
        """Whether an expression is a name, or attributes of one, that an import or an alias binds."""
        while isinstance(node, ast.Attribute):
            node = node.value
        if not isinstance(node, ast.Name):
            return False
        for scope in site.scope.chain():
            if found := scope.bindings.get(node.id):
                return any(
                    b.kind == "import"
                    or (b.kind == "value" and isinstance(b.node, (ast.Attribute, ast.Name)))
                    for b in found
                )
        return False


def _may_hold_items(value: ast.expr | None) -> bool:
    """Whether `+=` or `|=` with this value can change a list, set or dictionary in place."""
    return isinstance(value, (ast.List, ast.Set, ast.Dict, ast.Tuple, ast.ListComp, ast.Name, ast.Call))


def _foreign(values: Values) -> bool:
    return any(isinstance(v, (Imported, Shared)) for v in values)


def _keys(items: Items) -> list[ast.expr]:
    return list(items.elements) if items.keys is None else [key for key in items.keys if key is not None]


def _is_container(value: object) -> bool:
    """Whether an imported name may be a list, set or dictionary, and not a module of functions."""
    if not isinstance(value, Imported) or "." not in value.name:
        return False
    root, last = value.name.partition(".")[0], value.name.rpartition(".")[2].lstrip("_")
    return root not in _COMPUTING or last.isupper()


def _is_type_checking(site: Site, names: Collection[str]) -> bool:
    """Whether a block runs for type checkers only; `names` are what the file calls `typing.TYPE_CHECKING`."""
    return any(
        block.holds and block.test is not None and dotted(block.test) in names for block in site.block.chain()
    )
