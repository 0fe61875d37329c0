"""What is left of a function, tidied: stores that nothing reads are gone, and what it does is named."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from harness.facts.python_source.names import dotted

_QUERIES = frozenset(
    (
        *("isinstance", "issubclass", "len", "getattr", "hasattr", "bool", "int", "str", "float", "tuple"),
        *("list", "dict", "set", "frozenset", "min", "max", "any", "all", "type", "callable", "id", "repr"),
        *("super", "range", "zip", "enumerate", "sorted", "sum", "abs", "round"),
    )
)
"""Built-ins whose call changes nothing."""


_COMPOUND = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try)


def tidy(body: list[ast.stmt]) -> list[ast.stmt]:
    """A function's statements without stores of locals that nothing reads and without a bare return at the end."""
    while True:
        loaded: set[str] = set()
        for statement in body:
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
                    loaded.add(node.id)
                elif isinstance(node, ast.Global | ast.Nonlocal):
                    loaded.update(node.names)
        sweep = _Sweep(loaded)
        body = sweep.block(body)
        if not sweep.removed:
            break
    if body and isinstance(body[-1], ast.Return) and _is_none(body[-1].value):
        body = body[:-1]
    return body


def effect_of(body: Sequence[ast.stmt]) -> str:
    """The first thing that statements do besides binding locals and returning; empty when nothing."""
    for statement in body:
        if effect := _effect(statement):
            return effect
    return ""


def inner_blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The blocks of a compound statement, those of a definition too."""
    for name in ("body", "orelse", "finalbody"):
        if block := getattr(statement, name, None):
            yield block
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body


def _effect(statement: ast.stmt) -> str:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.Pass | ast.Break | ast.Continue):
        return ""
    if isinstance(statement, ast.Import | ast.ImportFrom | ast.Global | ast.Nonlocal):
        return ""
    if isinstance(statement, ast.Raise | ast.Assert | ast.Delete | ast.ClassDef):
        return f"`{_short(statement)}` in line {statement.lineno}"
    if isinstance(statement, ast.Assign) and not all(_is_local(t) for t in statement.targets):
        return f"`{_short(statement)}` in line {statement.lineno}"
    if isinstance(statement, ast.AugAssign):
        # Of a tensor or a list, `x += y` changes the object, whoever else holds it.
        return f"`{_short(statement)}` in line {statement.lineno}"
    for expression in _own_expressions(statement):
        if not is_pure(expression):
            return f"`{_short(statement)}` in line {statement.lineno}"
    return next((e for block in inner_blocks(statement) if (e := effect_of(block))), "")


def is_pure(expression: ast.AST) -> bool:
    """Whether evaluating it calls nothing but built-ins that change nothing."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Await | ast.Yield | ast.YieldFrom):
            return False
        is_loud = isinstance(node, ast.Call) and not getattr(node, "is_quiet", False)
        if is_loud and isinstance(node, ast.Call) and dotted(node.func) not in _QUERIES:
            return False
    return True


def _own_expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    for _, part in ast.iter_fields(statement):
        for item in part if isinstance(part, list) else [part]:
            if isinstance(item, ast.expr | ast.withitem):
                yield item


class _Sweep:
    """Takes out stores of unread locals, and conditions under which nothing is left."""

    def __init__(self, loaded: set[str]) -> None:
        self._loaded = loaded
        self.removed = False

    def block(self, body: Iterable[ast.stmt]) -> list[ast.stmt]:
        kept = []
        for statement in body:
            swept = self._swept(statement)
            if swept is None:
                self.removed = True
            else:
                kept.append(swept)
        return kept

    def _swept(self, statement: ast.stmt) -> ast.stmt | None:
        if isinstance(statement, ast.Assign) and is_pure(statement.value):
            names = [name for target in statement.targets for name in _names(target)]
            return None if all(names) and not set(names) & self._loaded else statement
        if not isinstance(statement, _COMPOUND):
            return statement
        fields = dict(ast.iter_fields(statement))
        for name in ("body", "orelse", "finalbody"):
            if fields.get(name):
                empty = [ast.Pass()] if name == "body" else []
                fields[name] = self.block(fields[name]) or empty
        if isinstance(statement, ast.Try):
            fields["handlers"] = [self._handler(handler) for handler in statement.handlers]
        swept = ast.copy_location(type(statement)(**fields), statement)
        swept.undecided = getattr(statement, "undecided", "")  # type: ignore[union-attr]
        if isinstance(swept, ast.Try) and getattr(statement, "may_raise", False):
            swept.may_raise = not all(map(has_no_effect, swept.handlers))  # type: ignore[attr-defined]
            if swept.may_raise:  # type: ignore[attr-defined]
                return swept
        if isinstance(swept, ast.If | ast.Try) and _is_empty(swept.body) and not swept.orelse:
            return None if isinstance(swept, ast.If) or not swept.finalbody else swept
        return swept

    def _handler(self, handler: ast.ExceptHandler) -> ast.ExceptHandler:
        body = self.block(handler.body) or [ast.Pass()]
        return ast.copy_location(ast.ExceptHandler(type=handler.type, name=handler.name, body=body), handler)


def has_no_effect(handler: ast.ExceptHandler) -> bool:
    """Whether nothing is left of a handler's body."""
    return _is_empty(handler.body)


def _is_empty(body: Sequence[ast.stmt]) -> bool:
    return all(isinstance(statement, ast.Pass) for statement in body)


def _names(target: ast.expr) -> list[str]:
    """The local names of a target; one empty string when it is something else."""
    if isinstance(target, ast.Name):
        return [target.id]
    if isinstance(target, ast.Tuple | ast.List):
        return [name for element in target.elts for name in _names(element)]
    return [""]


def _is_local(target: ast.expr) -> bool:
    return "" not in _names(target)


def _is_none(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)


def _short(statement: ast.stmt, limit: int = 60) -> str:
    text = ast.unparse(statement).split("\n", 1)[0]
    return text if len(text) <= limit else text[: limit - 1] + "…"
