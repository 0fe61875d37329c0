"""Every import in a file: at its top, below conditions, in functions, for types only, by name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from harness.facts.python_source.names import dotted, resolve_relative
from harness.model.reach import ImportForm

_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?::[\w.]+)?")
_IMPORTERS = ("import_module", "__import__", "find_spec", "resolve_name", "resolve_obj_by_qualname")


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
    """The local name that it binds at the top of the module; empty when it binds none there."""


def find_imports(tree: ast.Module, package: str) -> tuple[Import, ...]:
    """The imports of a file in the order of its lines.

    Args:
        tree: the file.
        package: what its relative imports start from.
    """
    finder = _Finder(package, _constants(tree))
    finder.walk(tree.body, ImportForm.STATIC, "")
    return tuple(sorted(finder.found, key=lambda i: (i.line, i.target)))


class _Finder:
    def __init__(self, package: str, constants: dict[str, str]) -> None:
        self._package = package
        self._constants = constants
        self.found: list[Import] = []

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
        if text.rpartition(".")[2] == "TYPE_CHECKING":
            self.walk(node.body, ImportForm.TYPES_ONLY, text)
            self.walk(node.orelse, form, condition)
        elif text.removeprefix("not ").rpartition(".")[2] == "TYPE_CHECKING":
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
            for inner in ast.walk(node):
                if isinstance(inner, ast.Call):
                    self._call(inner, condition)
                elif isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                    self._named(inner, inner.value, condition)

    def _call(self, node: ast.Call, condition: str) -> None:
        called = (dotted(node.func) or "").rpartition(".")[2]
        if called in _IMPORTERS and node.args:
            for target in self._spelt(node):
                self._add(node.lineno, target, target, ImportForm.DYNAMIC, condition, "")

    def _spelt(self, node: ast.Call) -> Iterator[str]:
        """The module that an import by name is given: whole, relative to a package, or as far as it is spelt."""
        name = self._text(node.args[0])
        if name is not None:
            level = len(name) - len(name.lstrip("."))
            package = self._package
            given = [k.value for k in node.keywords if k.arg == "package"] + node.args[1:2]
            if given and (spelt := self._text(given[0])):
                package = spelt
            resolved = resolve_relative(package, level, name[level:]) if level else name
            if resolved:
                yield resolved.partition(":")[0]
        elif isinstance(node.args[0], ast.JoinedStr | ast.BinOp):
            yield f"({ast.unparse(node.args[0])})"

    def _text(self, node: ast.expr) -> str | None:
        """A string that is spelt in the file: a literal, a constant of the module, or both joined."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.Name):
            return self._constants.get(node.id)
        parts: list[ast.expr] = []
        if isinstance(node, ast.JoinedStr):
            parts = [v.value if isinstance(v, ast.FormattedValue) else v for v in node.values]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            parts = [node.left, node.right]
        texts = [self._text(part) for part in parts]
        return "".join(t for t in texts if t is not None) if texts and None not in texts else None

    def _named(self, node: ast.Constant, text: str, condition: str) -> None:
        if _DOTTED.fullmatch(text):
            target = text.partition(":")[0]
            self._add(node.lineno, target, target, ImportForm.NAMED, condition, "")

    def _add(self, line: int, target: str, module: str, form: ImportForm, condition: str, bound: str) -> None:
        at_top = form in (ImportForm.STATIC, ImportForm.CONDITIONAL, ImportForm.TYPES_ONLY)
        self.found.append(
            Import(
                line=line,
                target=target,
                module=module,
                form=form,
                condition=condition,
                bound=bound if at_top else "",
            )
        )


def _constants(tree: ast.Module) -> dict[str, str]:
    """Names that the module's top assigns once, to a string."""
    found: dict[str, str | None] = {}
    for statement in tree.body:
        if not isinstance(statement, ast.Assign):
            continue
        for target in statement.targets:
            value = statement.value.value if isinstance(statement.value, ast.Constant) else None
            if isinstance(target, ast.Name):
                is_first = target.id not in found
                found[target.id] = value if is_first and isinstance(value, str) else None
    return {name: text for name, text in found.items() if text is not None}
