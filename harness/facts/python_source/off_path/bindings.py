"""Which names of a file may stand for something else than the one definition that is read.

What is read is a definition; what runs is whatever its name gives at that moment. A name that is bound again, here or
from another file, a function that is decorated, async or a generator, and a module that has two files are therefore
never settled.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from harness.facts.python_source.walk import children, walk

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_TRANSPARENT = frozenset(
    (
        *("staticmethod", "classmethod", "property", "cached_property", "functools.cached_property"),
        *("functools.cache", "functools.lru_cache", "torch.no_grad", "torch.inference_mode"),
        *("functools.wraps", "abc.abstractmethod", "typing.override", "typing.final", "typing.overload"),
        *("typing_extensions.override", "typing_extensions.final"),
    )
)
"""Decorators under which a call, or for properties a read, gives what the function returns."""
_PLAIN_CLASSES = frozenset(("dataclasses.dataclass", "typing.final"))
"""Decorators that leave the methods which a class writes out as they are."""
_NAMESPACES = ("globals", "vars", "locals")
_IMPORTERS = ("import_module", "__import__")
_EVERY_NAME = ""


def names_bound(node: ast.AST) -> list[str]:
    """The names that a node itself binds or takes away in its scope."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return [name]
        case ast.arg(arg=name) | ast.NamedExpr(target=ast.Name(id=name)):
            return [name]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return [name]
        case ast.MatchMapping(rest=str(name)):
            return [name]
        case ast.alias(name=target, asname=given):
            return [given or target.partition(".")[0]]
    return []


def evaluated_around(node: ast.AST) -> list[ast.expr]:
    """The expressions of a definition or `lambda` that run in the scope around it, where it is defined."""
    match node:
        case ast.ClassDef():
            return [*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)]
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            arguments = node.args
            annotations = [a.annotation for a in walk(arguments) if isinstance(a, ast.arg)]
            own = () if isinstance(node, ast.Lambda) else (*node.decorator_list, node.returns)
            found = (*own, *arguments.defaults, *arguments.kw_defaults, *annotations)
            return [part for part in found if part is not None]
    return []


def _module_bindings(module: ast.Module) -> Iterator[tuple[str, int, bool]]:
    """Name and line of everything that a file binds at its top, and whether a function does so by `global`."""
    pending: list[tuple[ast.AST, frozenset[str] | None]] = [(statement, None) for statement in module.body]
    while pending:
        node, declared = pending.pop()
        line = getattr(node, "lineno", 0)
        for name in names_bound(node):
            if declared is None or name in declared:
                yield name, line, declared is not None
        if isinstance(node, FunctionNode | ast.ClassDef | ast.Lambda):
            pending += [(part, declared) for part in evaluated_around(node)]
            inner = () if isinstance(node, ast.Lambda) else walk(node)
            declared = frozenset(name for n in inner if isinstance(n, ast.Global) for name in n.names)
        pending += [(child, declared) for child in children(node)]


def why_not_plain(function: FunctionNode, absolute: Callable[[ast.expr], str | None]) -> str:
    """Why a call of a function may give something else than it returns; empty when it does not.

    Args:
        function: as written.
        absolute: the dotted name of an expression of its file, imports resolved.
    """
    if isinstance(function, ast.AsyncFunctionDef):
        return f"{function.name} is async, so a call of it gives a coroutine"
    for decorator in function.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if absolute(called) not in _TRANSPARENT:
            return f"{function.name} is decorated by `@{ast.unparse(called)}`: what a call of it gives cannot be told"
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return f"{function.name} is a generator, so a call of it gives an iterator"
        if not isinstance(node, FunctionNode | ast.ClassDef | ast.Lambda):
            pending += children(node)
    return ""


def why_class_not_plain(node: ast.ClassDef, absolute: Callable[[ast.expr], str | None]) -> str:
    """Why the methods of a class may be others than those it writes out; empty when they are not."""
    called = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
    if node.keywords or any(absolute(c) not in _PLAIN_CLASSES for c in called):
        return (
            f"class {node.name} is decorated or made by a metaclass, so what its methods are cannot be told"
        )
    return ""


@dataclass(slots=True)
class Bindings:
    """Where the analysed files bind the names of their tops, and those of one another."""

    lines: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    """By path and name the lines that bind it; `*` for star imports."""
    _declared: dict[tuple[str, str], int] = field(default_factory=dict)
    """By path and name the line where a function binds it by `global`."""
    _reached: dict[tuple[str, str], str] = field(default_factory=dict)
    """By module and name `path:line` of code that sets it as an attribute; no name: any of them."""

    def add(
        self, path: str, module: ast.Module, module_name: str, absolute: Callable[[ast.expr], str | None]
    ) -> None:
        """Notes what a file binds.

        Args:
            path: the file.
            module: what it holds.
            module_name: the name under which it is imported.
            absolute: the dotted name of an expression of it, with the module's own name before names of its own.
        """
        lines: dict[str, list[int]] = defaultdict(list)
        for name, line, is_declared in _module_bindings(module):
            lines[name].append(line)
            if is_declared:
                self._declared[path, name] = line
        self.lines[path] = dict(lines)
        for node, target, name in _set_from_afar(module, module_name, absolute):
            self._reached.setdefault((target, name), f"{path}:{getattr(node, 'lineno', 1)}")

    def binds(self, path: str, name: str) -> bool:
        """Whether a file itself gives a name at its top a value, or may by a star import."""
        return name in self.lines.get(path, {}) or "*" in self.lines.get(path, {})

    def why_unsure(self, path: str, module: str, name: str) -> str:
        """Why a name of a file's top may be bound again; empty when nothing that can be read does so."""
        lines = self.lines.get(path, {})
        where = next((self._reached[m, n] for m, n in _ways_to(module, name) if (m, n) in self._reached), "")
        if where:
            return f"{name} of {path} may be set in {where}"
        if name in lines and any(line > min(lines[name]) for line in lines.get("*", ())):
            return f"a star import of {path} may give {name} another value"
        return ""

    def why_declared(self, path: str, name: str) -> str:
        """Why a definition is not all that its name stands for: a function of the file binds it by `global`."""
        line = self._declared.get((path, name))
        return f"{name} is bound again in {path}:{line} by `global`" if line else ""


def _ways_to(module: str, name: str) -> tuple[tuple[str, str], ...]:
    """A name of a module set by its name, by a computed one, and the insides of what it stands for."""
    computed = ("", name), ("", _EVERY_NAME)
    return (module, name), (module, _EVERY_NAME), (f"{module}.{name}", _EVERY_NAME), *computed


def _set_from_afar(
    module: ast.Module, own: str, absolute: Callable[[ast.expr], str | None]
) -> Iterator[tuple[ast.AST, str, str]]:
    """Node, module and name of what sets a module's name as an attribute or by its namespace.

    A module of no name is one that code computes; no name is any.
    """
    nodes = walk(module)
    aliases: dict[str, str] = {}

    def named(node: ast.expr) -> str | None:
        found = _absolute_name(node, absolute)
        return aliases.get(found, found) if found is not None else None

    for node in nodes:
        if isinstance(node, ast.Assign) and (found := named(node.value)) is not None:
            aliases |= {
                f"{own}.{target.id}": found for target in node.targets if isinstance(target, ast.Name)
            }
    read = {id(n.value) for n in nodes if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Load)}
    for node in nodes:
        match node:
            case ast.Attribute(value=owner, attr=name, ctx=ast.Store() | ast.Del()):
                target = named(owner)
                is_inside = name.startswith("__") and name.endswith("__")
                if target is not None:
                    yield node, target, _EVERY_NAME if is_inside else name
            case ast.Subscript(value=table, ctx=ast.Store() | ast.Del()) if absolute(table) == "sys.modules":
                yield node, "", _EVERY_NAME
            case ast.Attribute(value=owner, attr="__dict__"):
                target = named(owner)
                if target is not None:
                    yield node, target, _EVERY_NAME
            case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[owner, name_node, *_]):
                target = named(owner)
                is_text = isinstance(name_node, ast.Constant) and isinstance(name_node.value, str)
                if target is not None:
                    yield node, target, name_node.value if is_text else _EVERY_NAME  # type: ignore[attr-defined]
            case ast.Call(func=ast.Name(id=name), args=given) if name in _NAMESPACES and id(node) not in read:
                target = own if not given else named(given[0])
                if target is not None and (name == "globals" or given):
                    yield node, target, _EVERY_NAME


def _absolute_name(node: ast.expr, absolute: Callable[[ast.expr], str | None]) -> str | None:
    """The dotted name of a module or of what it holds.

    No text at all for a module that is looked up by `import_module` or in `sys.modules`; None for computed values.
    """
    match node:
        case ast.Call(func=called) if (absolute(called) or "").rpartition(".")[2] in _IMPORTERS:
            return ""
        case ast.Subscript(value=table) if absolute(table) == "sys.modules":
            return ""
    return absolute(node)
