"""Every import in a file: at its top, below conditions, in functions, for types only, by name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from harness.facts.python_source.names import dotted, resolve_relative
from harness.facts.python_source.spelling import spelt_text, string_constants
from harness.facts.python_source.walk import statements, walk
from harness.model.reach import ImportForm

_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?::[\w.]+)?")
_IMPORTERS = ("import_module", "__import__", "find_spec", "resolve_name", "resolve_obj_by_qualname")
_LOCATE = "pydoc.locate"
_LOADED = ("sys.modules", "modules")
_RUN_TEXT = ("exec", "eval", "run_path", "run_module", "spec_from_file_location", "SourceFileLoader")
"""Functions that run a file or a text that they are given."""
_TYPING = ("typing", "typing_extensions")
_AT_TOP = (ImportForm.STATIC, ImportForm.CONDITIONAL, ImportForm.TYPES_ONLY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One name that a file imports, or one module that it names."""

    line: int
    target: str
    """Absolute dotted name; of `from m import a` it is `m.a`."""
    module: str
    """The part that is surely a module: `m`; for `import m` and by name, all of it."""
    form: ImportForm
    condition: str
    bound: str
    """The name that it binds where it stands; empty when it binds none."""

    @property
    def bound_at_top(self) -> str:
        """The name that it binds for the whole file; empty when it binds none there."""
        return self.bound if self.form in _AT_TOP else ""


def find_imports(tree: ast.Module, package: str) -> tuple[Import, ...]:
    """The imports of a file in the order of its lines.

    Args:
        tree: the file.
        package: what its relative imports start from.
    """
    finder = _Finder(package, tree)
    finder.walk(tree.body, ImportForm.STATIC, "")
    return tuple(sorted(finder.found, key=lambda i: (i.line, i.target)))


class _Finder:
    def __init__(self, package: str, tree: ast.Module) -> None:
        self._package = package
        self._constants = string_constants(tree)
        self._tree = tree
        self._importers = set(_IMPORTERS)
        self.found: list[Import] = []

    @cached_property
    def _types_only(self) -> frozenset[str]:
        return type_checking_names(self._tree)

    def walk(self, body: list[ast.stmt], form: ImportForm, condition: str) -> None:
        for statement in body:
            self._statement(statement, form, condition)

    def _statement(self, node: ast.stmt, form: ImportForm, condition: str) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.partition(".")[0]
                self._add(node.lineno, alias.name, alias.name, form, condition, bound)
        elif isinstance(node, ast.ImportFrom):
            source = resolve_relative(self._package, node.level, node.module)
            self._importers |= {a.asname for a in node.names if a.asname and a.name in _IMPORTERS}
            self._importers |= {a.asname or a.name for a in node.names if f"{source}.{a.name}" == _LOCATE}
            for alias in node.names if source is not None else ():
                target = source if alias.name == "*" else f"{source}.{alias.name}"
                self._add(node.lineno, str(target), str(source), form, condition, alias.asname or alias.name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._expressions([*node.decorator_list, node.args], condition)
            inner = form if form is ImportForm.TYPES_ONLY else ImportForm.LAZY
            self.walk(node.body, inner, f"{node.name}()")
        elif isinstance(node, ast.ClassDef):
            self._expressions([*node.decorator_list, *node.bases, *node.keywords], condition)
            self.walk(node.body, form, condition)
        elif isinstance(node, ast.If):
            self._if(node, form, condition)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return
        else:
            self._compound(node, form, condition)

    def _if(self, node: ast.If, form: ImportForm, condition: str) -> None:
        text = ast.unparse(node.test)
        self._expressions([node.test], condition)
        below = ImportForm.CONDITIONAL if form is ImportForm.STATIC else form
        where = condition if form is ImportForm.LAZY else text
        is_name = text.removeprefix("not ").replace(".", "").isidentifier()
        if is_name and text in self._types_only:
            self.walk(node.body, ImportForm.TYPES_ONLY, text)
            self.walk(node.orelse, form, condition)
        elif is_name and text.removeprefix("not ") in self._types_only:
            self.walk(node.body, form, condition)
            self.walk(node.orelse, ImportForm.TYPES_ONLY, text)
        else:
            self.walk(node.body, below, where)
            self.walk(node.orelse, below, where if form is ImportForm.LAZY else f"not ({text})")

    def _compound(self, node: ast.stmt, form: ImportForm, condition: str) -> None:
        below, where = form, condition
        if isinstance(node, ast.Try | ast.TryStar) and form is ImportForm.STATIC:
            below, where = ImportForm.CONDITIONAL, "try"
        for name, part in ast.iter_fields(node):
            items = part if isinstance(part, list) else [part]
            for item in items:
                if isinstance(item, ast.stmt):
                    self._statement(item, below, where)
                elif isinstance(item, ast.ExceptHandler | ast.match_case):
                    self.walk(item.body, below, where)
                elif isinstance(item, ast.AST) and name not in ("ctx", "op"):
                    self._expressions([item], condition)

    def _expressions(self, nodes: list[ast.AST] | list[ast.expr], condition: str) -> None:
        """Imports by name inside expressions."""
        for node in nodes:
            for inner in walk(node):
                if isinstance(inner, ast.Call):
                    self._call(inner, condition)
                elif isinstance(inner, ast.Subscript) and dotted(inner.value) in _LOADED:
                    self._by_name(inner, inner.slice, condition)
                elif isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                    self._named(inner, inner.value, condition)

    def _call(self, node: ast.Call, condition: str) -> None:
        name = dotted(node.func) or ""
        owner, _, called = name.rpartition(".")
        if (called in self._importers or name == _LOCATE) and node.args:
            for target in self._spelt(node):
                self._add(node.lineno, target, target, ImportForm.DYNAMIC, condition, "")
        elif owner in _LOADED and node.args:
            self._by_name(node, node.args[0], condition)
        elif called in _RUN_TEXT:
            for argument in node.args:
                given = spelt_text(argument, self._constants)
                target = f"({ast.unparse(argument) if given is None else given})"
                self._add(node.lineno, target, target, ImportForm.DYNAMIC, condition, "")

    def _by_name(self, node: ast.expr, key: ast.expr, condition: str) -> None:
        """A module that is taken out of the table of those that are loaded."""
        target = spelt_text(key, self._constants) or f"({ast.unparse(key)})"
        self._add(node.lineno, target, target, ImportForm.DYNAMIC, condition, "")

    def _spelt(self, node: ast.Call) -> Iterator[str]:
        """The module that an import by name is given: whole, relative to a package, or as far as it is spelt."""
        name = spelt_text(node.args[0], self._constants)
        if name is not None:
            level = len(name) - len(name.lstrip("."))
            package = self._package
            given = [k.value for k in node.keywords if k.arg == "package"] + node.args[1:2]
            if given and (spelt := spelt_text(given[0], self._constants)):
                package = spelt
            resolved = resolve_relative(package, level, name[level:]) if level else name
            if resolved:
                yield resolved.partition(":")[0]
        else:
            yield f"({ast.unparse(node.args[0])})"

    def _named(self, node: ast.Constant, text: str, condition: str) -> None:
        if _DOTTED.fullmatch(text):
            target = text.partition(":")[0]
            self._add(node.lineno, target, target, ImportForm.NAMED, condition, "")

    def _add(self, line: int, target: str, module: str, form: ImportForm, condition: str, bound: str) -> None:
        found = Import(line=line, target=target, module=module, form=form, condition=condition, bound=bound)
        self.found.append(found)


def type_checking_names(tree: ast.Module) -> frozenset[str]:
    """What a file calls `typing.TYPE_CHECKING`: names that it imports as that, and binds to nothing else."""
    names: set[str] = set()
    others: set[str] = set()
    for node in statements(tree):
        match node:
            case ast.ImportFrom(module=module, names=imported, level=0) if module in _TYPING:
                names |= {a.asname or a.name for a in imported if a.name == "TYPE_CHECKING"}
            case ast.Import(names=imported) | ast.ImportFrom(names=imported):
                from_typing = [a.asname or a.name for a in imported if a.name in _TYPING]
                is_plain = isinstance(node, ast.Import)
                names |= {f"{name}.TYPE_CHECKING" for name in from_typing if is_plain}
                others |= {a.asname or a.name for a in imported if not (is_plain and a.name in _TYPING)}
    for part in walk(tree) if names else ():
        match part:
            case ast.Name(id=name, ctx=ast.Store()):
                others.add(name)
            case ast.Attribute(attr="TYPE_CHECKING", ctx=ast.Store()):
                others.add(dotted(part) or "")
    return frozenset(n for n in names if n not in others and n.partition(".")[0] not in others)
