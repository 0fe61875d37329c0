"""The functions of the analysed files, by name and by place, and what names mean in each file."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from harness.facts.python_source.names import dotted, resolve_relative
from harness.facts.python_source.off_path.bindings import (
    Bindings,
    FunctionNode,
    evaluated_around,
    names_bound,
    why_class_not_plain,
    why_not_plain,
)
from harness.facts.python_source.tree import SourceTree
from harness.facts.python_source.walk import children, walk
from harness.facts.python_source.words import names_in

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_OVERLOADS = ("overload", "typing.overload")
Key = tuple[str, str]
"""Path and qualified name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One function or method of an analysed file."""

    path: str
    qualname: str
    node: FunctionNode
    class_name: str
    """Name of the class it is a method of; empty for functions."""
    outer: str
    """Qualified name of the function that it is defined in; empty when in none."""

    @property
    def key(self) -> Key:
        """Path and qualified name."""
        return self.path, self.qualname

    @property
    def parameters(self) -> tuple[str, ...]:
        """Positional parameters in order, without `self` and `cls` of a method, then keyword-only ones."""
        arguments = self.node.args
        positional = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
        is_static = any(dotted(d) == "staticmethod" for d in self.node.decorator_list)
        if self.class_name and not is_static:
            positional = positional[1:]
        return (*positional, *(a.arg for a in arguments.kwonlyargs))

    def default(self, name: str) -> ast.expr | None:
        """The default of a parameter."""
        arguments = self.node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        pairs = list(zip(reversed(positional), reversed(arguments.defaults), strict=False))
        pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d]
        return next((default for argument, default in pairs if argument.arg == name), None)


@dataclass(slots=True)
class Scopes:
    """Functions and names of the analysed files of one tree."""

    tree: SourceTree
    paths: tuple[str, ...]
    functions: dict[Key, Function] = field(default_factory=dict)
    by_name: dict[str, list[Function]] = field(default_factory=lambda: defaultdict(list))
    classes: dict[str, list[tuple[str, ast.ClassDef]]] = field(default_factory=lambda: defaultdict(list))
    imports: dict[str, dict[str, str]] = field(default_factory=dict)
    """By path: local name to the dotted name that it was imported as."""
    roots: frozenset[str] = frozenset()
    """Top-level packages of the analysed files."""
    stored_of: dict[Key, tuple[dict[str, int], frozenset[str]]] = field(default_factory=dict)
    """By function that was read: how often it stores each name, and which it declares global."""
    _names: dict[Key, frozenset[str]] = field(default_factory=dict)
    _rebound: dict[str, frozenset[str]] = field(default_factory=dict)
    _bindings: Bindings = field(default_factory=Bindings)
    _plain: dict[Key, str] = field(default_factory=dict)
    _unsure: dict[tuple[str, str], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.roots = frozenset(self.tree.module_of(path).partition(".")[0] for path in self.paths)
        for path in self.paths:
            module = self.tree.parse(path)
            if module is None:
                continue
            self.imports[path] = dict(imported_names(module, self.tree.package_of(path)))
            self._index(path, module.body, prefix="", class_name="", outer="")
            self._rebound[path] = rebound_names(module, self.tree.package_of(path))
            name = self.tree.module_of(path)
            self._bindings.add(path, module, name, partial(self._absolute_from, path, name))

    def is_rebound(self, path: str, name: str) -> bool:
        """Whether a file binds a name at its top to an import or function and to something else as well."""
        return name in self._rebound.get(path, ())

    def binds(self, path: str, name: str) -> bool:
        """Whether a file itself gives a name at its top a value, so that no built-in is meant by it."""
        return self._bindings.binds(path, name)

    def why_unsure(self, path: str, node: ast.expr) -> str:
        """Why an expression may mean something else than the one definition of its names; empty when it does not."""
        place = path, dotted(node) or ""
        if place not in self._unsure:
            self._unsure[place] = self._why_unsure(path, node)
        return self._unsure[place]

    def _why_unsure(self, path: str, node: ast.expr) -> str:
        first = (dotted(node) or "").partition(".")[0]
        parts = (self.absolute(path, node) or "").split(".") if self.is_import(path, node) else []
        pairs = [(path, first)] if first else []
        for index in range(1, len(parts)):
            owner = self.tree.path_of(".".join(parts[:index])) or ""
            full = ".".join(parts[: index + 1])
            if owner in self.imports and (inner := self.tree.path_of(full)) is not None:
                if (
                    self._bindings.binds(owner, parts[index])
                    and self.imports[owner].get(parts[index]) != full
                ):
                    return f"{parts[index]} of {owner} may be something else than {inner}"
            elif owner in self.imports:
                pairs.append((owner, parts[index]))
        return next((reason for pair in pairs if (reason := self._why_name_unsure(*pair))), "")

    def why_not_plain(self, function: Function) -> str:
        """Why a call of a function may give something else than it returns; empty when it does not."""
        if function.key not in self._plain:
            found = [c for path, c in self.classes.get(function.class_name, ()) if path == function.path]
            absolute = partial(self._surely, function.path)
            reasons = (
                why_not_plain(function.node, absolute),
                *(why_class_not_plain(c, absolute) for c in found),
            )
            self._plain[function.key] = next(filter(None, reasons), "")
        return self._plain[function.key]

    def wrapper_by(self, path: str, decorator: ast.expr) -> Function | None:
        """The function that a decorator puts in the place of another, where putting it there is all that it does."""
        absolute = self.absolute(path, decorator) or ""
        made_by = self.function_of(absolute) or self.functions.get((path, absolute))
        if (
            made_by is None
            or made_by.class_name
            or made_by.node.decorator_list
            or self.why_unsure(path, decorator)
        ):
            return None
        parameters = [a.arg for a in walk(made_by.node.args) if isinstance(a, ast.arg)]
        match [s for s in made_by.node.body if not _is_text(s)]:
            case [
                ast.FunctionDef(name=name, decorator_list=on_it, args=given),
                ast.Return(value=ast.Name(id=back)),
            ]:
                is_plain = (
                    len(parameters) == 1 and back == name and not given.defaults and not given.kw_defaults
                )
                wraps = [d for d in on_it if isinstance(d, ast.Call) and len(d.args) == 1 and not d.keywords]
                is_wrapper = len(wraps) == len(on_it) == 1 and all(
                    self._surely(made_by.path, d.func) == "functools.wraps"
                    and dotted(d.args[0]) == parameters[0]
                    for d in wraps
                )
                if is_plain and is_wrapper:
                    return self.functions.get((made_by.path, f"{made_by.qualname}.<locals>.{name}"))
        return None

    def _why_name_unsure(self, path: str, name: str) -> str:
        if self.is_rebound(path, name):
            return f"{name} is bound more than once in {path}"
        if rival := self.tree.rival(path):
            return f"{path} and {rival} are two files of one module"
        is_definition = (path, name) in self.functions or name in self.imports.get(path, {})
        declared = self._bindings.why_declared(path, name) if is_definition else ""
        return declared or self._bindings.why_unsure(path, self.tree.module_of(path), name)

    def _surely(self, path: str, node: ast.expr) -> str | None:
        """As `absolute`; None where the file may give the name another meaning than its import or the built-in."""
        first = (dotted(node) or "").partition(".")[0]
        is_open = not self.is_import(path, node) and self.binds(path, first)
        return None if is_open or self.why_unsure(path, node) else self.absolute(path, node)

    def _absolute_from(self, path: str, module: str, node: ast.expr) -> str | None:
        """As `absolute`, with the module's name before names of its own."""
        name = self.absolute(path, node)
        return name if name is None or self.is_import(path, node) else f"{module}.{name}"

    def is_nested(self, path: str, name: str) -> bool:
        """Whether a function inside another has the name."""
        return any(f.path == path and f.outer for f in self.by_name.get(name, ()))

    def absolute(self, path: str, node: ast.expr) -> str | None:
        """The dotted name that an expression means, imports of its file resolved."""
        name = dotted(node)
        if name is None:
            return None
        first, _, rest = name.partition(".")
        imported = self.imports.get(path, {}).get(first)
        if imported is None:
            return name
        return f"{imported}.{rest}" if rest else imported

    def is_import(self, path: str, node: ast.expr) -> bool:
        """Whether an expression begins with a name that its file imports."""
        return (dotted(node) or "").partition(".")[0] in self.imports.get(path, {})

    def function_of(self, absolute: str) -> Function | None:
        """The analysed function of a dotted name."""
        module, _, name = absolute.rpartition(".")
        path = self.tree.path_of(module)
        if path is not None and (path, name) in self.functions:
            return self.functions[path, name]
        return None

    def names_of(self, key: Key, node: ast.AST) -> frozenset[str]:
        """The names that a function uses, or with an empty name what a module does."""
        if key not in self._names:
            self._names[key] = frozenset(name for inner in walk(node) for name in names_in(inner))
        return self._names[key]

    def _index(
        self, path: str, body: Iterable[ast.stmt], *, prefix: str, class_name: str, outer: str
    ) -> None:
        for node in definitions(body):
            qualname = prefix + node.name
            if isinstance(node, ast.ClassDef):
                self.classes[node.name].append((path, node))
                self._index(path, node.body, prefix=f"{qualname}.", class_name=node.name, outer=outer)
                continue
            function = Function(path=path, qualname=qualname, node=node, class_name=class_name, outer=outer)
            self.functions[function.key] = function
            self.by_name[node.name].append(function)
            inner = f"{qualname}.<locals>."
            self._index(path, node.body, prefix=inner, class_name="", outer=qualname)


def definitions(body: Iterable[ast.stmt]) -> Iterator[FunctionNode | ast.ClassDef]:
    """Functions and classes of a body, also those below its conditions, loops and handlers."""
    for statement in body:
        if isinstance(statement, FunctionNode | ast.ClassDef):
            yield statement
        else:
            for inner in nested_bodies(statement):
                yield from definitions(inner)


def rebound_names(module: ast.Module, package: str) -> frozenset[str]:
    """Names that a file binds at its top to an import or a function and to something else as well.

    A name that stands for nothing where an import fails (`except ImportError: f = None`) is not one.
    """
    bound: dict[str, set[str]] = defaultdict(set)
    pending: list[tuple[ast.stmt, bool]] = [(statement, False) for statement in module.body]
    while pending:
        node, is_fallback = pending.pop()
        match node:
            case ast.Import() | ast.ImportFrom():
                for name, target in imported_names(ast.Module(body=[node], type_ignores=[]), package):
                    bound[name].add(target)
                continue
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                is_overload = any(dotted(d) in _OVERLOADS for d in node.decorator_list)
                bound[name] |= set() if is_overload else {f"line {node.lineno}"}
            case ast.Assign(targets=targets, value=value):
                if is_fallback and _is_none(value):
                    continue
                for inner in (n for target in targets for n in walk(target) if isinstance(n, ast.Name)):
                    bound[inner.id].add("an assignment")
            case _:
                handled = {id(s) for h in getattr(node, "handlers", ()) for s in h.body}
                blocks = nested_bodies(node)
                pending += [(s, is_fallback or id(s) in handled) for block in blocks for s in block]
        for name in _names_of_parts(node):
            bound[name].add("an assignment")
    return frozenset(name for name, what in bound.items() if len(what) > 1)


def _names_of_parts(statement: ast.stmt) -> Iterator[str]:
    """Names that a statement binds besides its own and those of the statements below it.

    Targets, patterns, `except as`, and `:=` wherever the scope around it gets the name.
    """
    if isinstance(statement, ast.AnnAssign) and statement.value is None:
        return
    pending: list[tuple[ast.AST, bool]] = [(statement, False)]
    while pending:
        node, in_comprehension = pending.pop()
        if isinstance(node, _DEFINITIONS):
            pending += [(part, in_comprehension) for part in evaluated_around(node)]
            continue
        if not in_comprehension or isinstance(node, ast.NamedExpr):
            yield from names_bound(node)
        in_comprehension |= isinstance(node, _COMPREHENSIONS)
        pending += [(child, in_comprehension) for child in children(node) if not isinstance(child, ast.stmt)]


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def nested_bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The blocks of a compound statement or definition."""
    for name in ("body", "orelse", "finalbody"):
        if block := getattr(statement, name, None):
            yield block
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body


def imported_names(module: ast.Module, package: str) -> Iterator[tuple[str, str]]:
    """Local name and dotted name of everything that a file imports by a statement, at any level."""
    pending: list[ast.stmt] = list(module.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (first, first)
        elif isinstance(node, ast.ImportFrom):
            source = resolve_relative(package, node.level, node.module)
            if source is not None:
                for alias in node.names:
                    yield alias.asname or alias.name, f"{source}.{alias.name}"
        else:
            for block in nested_bodies(node):
                pending += block
