"""Settings that Python code reads, declares or sets."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from harness.facts.python_effects.program import Program
from harness.facts.python_effects.resolve import Resolver
from harness.facts.python_effects.scopes import Module, Site
from harness.facts.python_effects.values import Imported, Items, Shared, dotted_names, texts
from harness.facts.surface.documents import top_keys
from harness.facts.surface.places import readings, text_at
from harness.model.surface import FLAG_OF_THE_ENGINE, SettingKind, SettingUse

_ENVIRON = frozenset({"os.environ", "os.environb"})
_READERS = frozenset({"os.getenv", "os.environ.get", "os.environ.pop", "os.environ.__getitem__"})
_SETTERS = frozenset({"os.putenv", "os.environ.setdefault", "os.environ.__setitem__"})
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
_CONFIG_CLASS = re.compile(r"\w*(Config|Settings|Options)")
_LONG_FLAG = re.compile(r"--[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_BY_ACTION = {"store_true": "False", "store_false": "True"}
"""What a flag gives that is not given, by its action."""
_DUMPERS = frozenset(
    {"fields", "asdict", "astuple", "vars", "model_dump", "model_dump_json", "dict", "replace"}
)


class SettingReader:
    """Uses of settings in a program; on command lines that it hands to calls, those of the programs `commands`."""

    def __init__(self, program: Program, commands: Collection[str] = ()) -> None:
        self.modules = program.modules
        self.resolver = program.resolver
        self._commands = frozenset(commands)

    def uses(self) -> Iterator[SettingUse]:
        """Every use, file by file."""
        for module in self.modules:
            for node, site in readings(module):
                match node:
                    case ast.Call():
                        yield from self._call(module, node, site)
                    case ast.Subscript():
                        yield from self._subscript(module, node, site)
                    case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[container]):
                        yield from self._membership(module, node, left, container, site)
                    case ast.List(elts=words) | ast.Tuple(elts=words):
                        yield from self._keys_in_words(module, words, site)
                    case ast.Attribute(value=value, attr=name) if _VARIABLE.fullmatch(name):
                        if "vllm.envs" in dotted_names(self.resolver.evaluate(value, site)):
                            yield _use(module, node, SettingKind.ENVIRONMENT, name, "reads")
            for statement, site in module.sites.items():
                match statement:
                    case ast.AugAssign(target=target, op=ast.BitOr(), value=value) if (
                        "os.environ" in dotted_names(self.resolver.evaluate(target, site))
                    ):
                        for key, name in self._keys(value, site):
                            yield _use(module, key, SettingKind.ENVIRONMENT, name, "sets")
            yield from self._fields(module)

    def is_additional_config(self, node: ast.expr, site: Site) -> bool:
        """Whether an expression is the engine's additional config, by its name or an alias of it."""
        if _last_name(node) == "additional_config":
            return True
        if isinstance(node, ast.Name):
            for scope in site.scope.chain():
                for binding in scope.bindings.get(node.id, ()):
                    value = binding.node
                    if binding.kind == "value" and isinstance(value, ast.expr) and value is not node:
                        return _leads_to_config(value)
        values = self.resolver.evaluate(node, site)
        return any(isinstance(v, Shared) and v.name.endswith(".additional_config") for v in values)

    def _call(self, module: Module, node: ast.Call, site: Site) -> Iterator[SettingUse]:
        callee = set(dotted_names(self.resolver.evaluate(node.func, site)))
        named = next((k.value for k in node.keywords if k.arg == "name" and _is_method(node, "setenv")), None)
        given_first = node.args[0] if node.args else named
        first = texts(self.resolver.evaluate(given_first, site)) if given_first is not None else ()
        default = ast.unparse(node.args[1]) if len(node.args) > 1 else None
        if callee & _READERS:
            for name in first:
                yield _use(module, node, SettingKind.ENVIRONMENT, name, "reads", default=default)
        elif callee & _SETTERS or _is_method(node, "setenv"):
            for name in first or self._parametrized(node, site):
                yield _use(module, node, SettingKind.ENVIRONMENT, name, "sets")
        elif _is_method(node, "get", "pop") and isinstance(node.func, ast.Attribute):
            if self.is_additional_config(node.func.value, site):
                for name in first:
                    yield _use(module, node, SettingKind.CONFIG_KEY, name, "reads", default=default)
        elif _is_method(node, "add_argument") or callee & {"click.option", "typer.Option"}:
            yield from self._flag(module, node, site)
        yield from self._environment_of_child(module, node, callee, site)
        for argument in node.args[:1]:
            if isinstance(argument, (ast.List, ast.Tuple)):
                yield from self._command_line(module, argument.elts, site)
        for given in node.keywords:
            if given.arg == "additional_config":
                for key, name in self._keys(given.value, site):
                    yield _use(module, key, SettingKind.CONFIG_KEY, name, "sets")

    def _command_line(self, module: Module, words: Sequence[ast.expr], site: Site) -> Iterator[SettingUse]:
        """Flags that a list of words gives one of the programs."""
        plain = [next(iter(texts(self.resolver.evaluate(word, site))), "") for word in words]
        if any(name.partition(".")[0] in self._commands for name in plain[:3]):
            for word, name in zip(words, (text.partition("=")[0] for text in plain), strict=True):
                if _LONG_FLAG.fullmatch(name) and name != FLAG_OF_THE_ENGINE:
                    yield _use(module, word, SettingKind.FLAG, name, "sets")

    def _keys_in_words(self, module: Module, words: Sequence[ast.expr], site: Site) -> Iterator[SettingUse]:
        """Keys that a list of words gives the engine behind its flag, whichever call gets the list."""
        for word, after in itertools.zip_longest(words, words[1:]):
            if not (isinstance(word, ast.Constant) and str(word.value).startswith(FLAG_OF_THE_ENGINE)):
                continue
            _, _, value = str(word.value).partition("=")
            given = [value] if value else texts(self.resolver.evaluate(after, site)) if after else ()
            for key in (key for text in given for key in top_keys(text)):
                yield _use(module, word, SettingKind.CONFIG_KEY, key, "sets")
            if isinstance(after, ast.Call) and _last_name(after.func) == "dumps" and after.args:
                for place, key in self._keys(after.args[0], site):
                    yield _use(module, place, SettingKind.CONFIG_KEY, key, "sets")

    def _parametrized(self, node: ast.Call, site: Site) -> list[str]:
        """The names that `pytest.mark.parametrize` gives the parameter that a call's first argument is."""
        parameter = node.args[0].id if node.args and isinstance(node.args[0], ast.Name) else ""
        found: list[str] = []
        for decorator in getattr(site.scope.node, "decorator_list", ()):
            match decorator:
                case ast.Call(func=ast.Attribute(attr="parametrize"), args=[names, rows, *_]) if parameter:
                    given = [
                        n.strip()
                        for text in texts(self.resolver.evaluate(names, site))
                        for n in text.split(",")
                    ]
                    place = given.index(parameter) if parameter in given else None
                    if place is not None:
                        each = self.resolver.elements(self.resolver.evaluate(rows, site))
                        found += texts(each if len(given) == 1 else self.resolver.elements(each, place))
        return found

    def _flag(self, module: Module, node: ast.Call, site: Site) -> Iterator[SettingUse]:
        names = [n for a in node.args for n in texts(self.resolver.evaluate(a, site)) if n.startswith("--")]
        given = {k.arg: k.value for k in node.keywords if k.arg}
        default = ast.unparse(given["default"]) if "default" in given else None
        action = texts(self.resolver.evaluate(given["action"], site)) if "action" in given else ()
        if default is None:
            default = next((value for name, value in _BY_ACTION.items() if name in action), None)
        for name in names:
            flag = name.partition("/")[0]
            yield _use(module, node, SettingKind.FLAG, flag, "declares", default=default)
        for name in texts(self.resolver.evaluate(given["envvar"], site)) if "envvar" in given else ():
            yield _use(module, node, SettingKind.ENVIRONMENT, name, "reads", default=default)

    def _environment_of_child(
        self, module: Module, node: ast.Call, callee: set[str], site: Site
    ) -> Iterator[SettingUse]:
        """Keys of `env={...}`, of `os.environ.update({...})` and of `patch.dict(os.environ, {...})`."""
        dictionaries = [k.value for k in node.keywords if k.arg in ("env", "environ", "env_vars", "env_dict")]
        is_patch = any(name.endswith("patch.dict") for name in callee) and "os.environ" in (
            self._dotted_or_text(node.args[0], site) if node.args else ()
        )
        if is_patch or "os.environ.update" in callee:
            dictionaries += node.args[is_patch:][:1]
            for given in (k for k in node.keywords if k.arg and _VARIABLE.fullmatch(k.arg)):
                yield _use(module, given.value, SettingKind.ENVIRONMENT, given.arg or "", "sets")
        for dictionary in dictionaries:
            for key, name in (*self._keys(dictionary, site), *self._added(module, dictionary, site)):
                if _VARIABLE.fullmatch(name):
                    yield _use(module, key, SettingKind.ENVIRONMENT, name, "sets")

    def _dotted_or_text(self, node: ast.expr, site: Site) -> tuple[str, ...]:
        values = self.resolver.evaluate(node, site)
        return (*dotted_names(values), *texts(values))

    def _added(self, module: Module, dictionary: ast.expr, site: Site) -> Iterator[tuple[ast.expr, str]]:
        """Keys that the function puts into a dictionary: by `env[KEY] = ...`, `update` or `setdefault`."""
        if not isinstance(dictionary, ast.Name):
            return
        for node, place in module.visits:
            if place.scope is not site.scope:
                continue
            match node:
                case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name), slice=key)]) if (
                    name == dictionary.id
                ):
                    yield from ((key, text) for text in texts(self.resolver.evaluate(key, place)))
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id=name), attr="setdefault"), args=[key, *_]
                ) if name == dictionary.id:
                    yield from ((key, text) for text in texts(self.resolver.evaluate(key, place)))
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="update")) if (
                    name == dictionary.id
                ):
                    yield from ((k.value, k.arg) for k in node.keywords if k.arg)
                    for given in node.args:
                        yield from self._keys(given, place)

    def _keys(self, dictionary: ast.expr, site: Site) -> Iterator[tuple[ast.expr, str]]:
        """Where a key of a dictionary stands, and its text: of displays, of `dict(..., KEY=...)` and of `a | {...}`."""
        if isinstance(dictionary, ast.BinOp) and isinstance(dictionary.op, ast.BitOr):
            yield from self._keys(dictionary.left, site)
            yield from self._keys(dictionary.right, site)
        elif isinstance(dictionary, ast.Call) and getattr(dictionary.func, "id", "") == "dict":
            yield from ((k.value, k.arg) for k in dictionary.keywords if k.arg)
            for argument in dictionary.args:
                yield from self._keys(argument, site)
        else:
            found = [v for v in self.resolver.evaluate(dictionary, site) if isinstance(v, Items)]
            for value in found:
                for key in (k for k in value.keys or () if k is not None):
                    yield from ((key, name) for name in texts(self.resolver.evaluate(key, value.site)))

    def _subscript(self, module: Module, node: ast.Subscript, site: Site) -> Iterator[SettingUse]:
        if isinstance(node.slice, (ast.Slice, ast.Tuple, ast.BinOp)):
            return
        names = texts(self.resolver.evaluate(node.slice, site))
        if not names:
            return
        if _ENVIRON & set(dotted_names(self.resolver.evaluate(node.value, site))):
            kind = SettingKind.ENVIRONMENT
        elif self.is_additional_config(node.value, site):
            kind = SettingKind.CONFIG_KEY
        else:
            return
        role = "reads" if isinstance(node.ctx, ast.Load) else "sets"
        if not isinstance(node.ctx, ast.Del):
            for name in names:
                yield _use(module, node, kind, name, role)

    def _membership(
        self, module: Module, node: ast.expr, left: ast.expr, container: ast.expr, site: Site
    ) -> Iterator[SettingUse]:
        if self.is_additional_config(container, site):
            kind = SettingKind.CONFIG_KEY
        elif Imported("os.environ") in self.resolver.evaluate(container, site):
            kind = SettingKind.ENVIRONMENT
        else:
            return
        for name in texts(self.resolver.evaluate(left, site)):
            yield _use(module, node, kind, name, "reads")

    def _fields(self, module: Module) -> Iterator[SettingUse]:
        """Fields of configuration classes that are built from what a user gives."""
        for node, site in module.sites.items():
            if isinstance(node, ast.ClassDef) and _CONFIG_CLASS.fullmatch(node.name):
                bases = {n.rpartition(".")[2] for b in node.bases for n in _names(self.resolver, b, site)}
                is_dataclass = any("dataclass" in ast.unparse(d) for d in node.decorator_list)
                if not (bases & {"BaseModel", "BaseSettings"} or is_dataclass):
                    continue
                for statement in node.body:
                    match statement:
                        case ast.AnnAssign(target=ast.Name(id=name), value=value):
                            default = ast.unparse(value) if value is not None else None
                            full = f"{node.name}.{name}"
                            yield _use(
                                module, statement, SettingKind.FIELD, full, "declares", default=default
                            )


def attribute_reads(modules: Sequence[Module]) -> tuple[frozenset[str], bool]:
    """Names of all attributes that code reads, and whether some code reads all fields of an object at once."""
    names: set[str] = set()
    reads_all = False
    for module in modules:
        for node, _ in readings(module):
            match node:
                case ast.Attribute(attr=name, ctx=ast.Load()):
                    names.add(name)
                    reads_all |= name in ("__dict__", "model_dump", "model_dump_json", "model_fields")
                case ast.Call(func=func, args=arguments):
                    called = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
                    reads_all |= called in _DUMPERS and bool(arguments)
                    if called == "getattr" and len(arguments) > 1:
                        constant = arguments[1]
                        if isinstance(constant, ast.Constant):
                            names.add(str(constant.value))
                        else:
                            reads_all = True
    return frozenset(names), reads_all


def _leads_to_config(value: ast.expr) -> bool:
    parts = value.values if isinstance(value, ast.BoolOp) else [value]
    return any(_last_name(part) == "additional_config" for part in parts)


def _last_name(node: ast.expr) -> object:
    """The name of a variable or attribute, `getattr(x, "name")` among them."""
    match node:
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=name), *_]):
            return name
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def _names(resolver: Resolver, node: ast.expr, site: Site) -> tuple[str, ...]:
    return dotted_names(resolver.evaluate(node, site))


def _is_method(node: ast.Call, *names: str) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr in names


def _use(
    module: Module, node: ast.AST, kind: SettingKind, name: str, role: Any, *, default: str | None = None
) -> SettingUse:
    return SettingUse(
        kind=kind,
        name=name,
        role=role,
        path=module.path,
        line=getattr(node, "lineno", 1),
        default=default,
        text=text_at(module, node),
    )
