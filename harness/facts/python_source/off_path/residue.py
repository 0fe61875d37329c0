"""What is left of a function, tidied: stores that nothing reads are gone, and what it does is named."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from harness.facts.python_source.names import dotted
from harness.facts.python_source.walk import walk

_QUERIES = frozenset(
    (
        *("isinstance", "issubclass", "len", "getattr", "hasattr", "bool", "int", "str", "float", "tuple"),
        *("list", "dict", "set", "frozenset", "min", "max", "any", "all", "type", "callable", "id", "repr"),
        *("super", "range", "zip", "enumerate", "sorted", "sum", "abs", "round"),
    )
)
"""Built-ins whose call changes nothing."""
_ASKING = ("is_", "has_", "supports_")
_TELLING = frozenset(
    ("numel", "size", "dim", "stride", "get", "keys", "values", "items", "startswith", "endswith")
)
_TOTAL_QUERIES = frozenset(("isinstance", "hasattr", "callable", "id", "type", "super"))
"""Those of them that cost next to nothing and do not fail, for what has no odd methods of its own."""
_LOGGING = frozenset(("debug", "info", "warning", "error", "exception", "critical", "log"))
_LOGGING_ONCE = tuple(f"{level}_once" for level in ("debug", "info", "warning"))
_BUILTINS = frozenset(dir(builtins))


@dataclass(frozen=True, slots=True)
class Effect:
    """What code does besides giving a value."""

    text: str
    is_sure: bool
    """Whether it surely does something; else it calls what cannot be read, for its value."""


_COMPOUND = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try)


def tidy(body: list[ast.stmt]) -> list[ast.stmt]:
    """A function's statements without stores of locals that nothing reads and without a bare return at the end."""
    while True:
        loaded: set[str] = set()
        for statement in body:
            for node in walk(statement):
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


def effect_of(body: Sequence[ast.stmt]) -> Effect | None:
    """What statements do besides binding locals and returning: the first that is sure, else the first that may be."""
    found = [effect for statement in body if (effect := _effect(statement))]
    return next((effect for effect in found if effect.is_sure), found[0] if found else None)


def inner_blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The blocks of a compound statement, those of a definition too."""
    for name in ("body", "orelse", "finalbody"):
        if block := getattr(statement, name, None):
            yield block
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body


def _effect(statement: ast.stmt) -> Effect | None:
    quiet = ast.FunctionDef | ast.AsyncFunctionDef | ast.Pass | ast.Break | ast.Continue
    if isinstance(statement, quiet | ast.Import | ast.ImportFrom | ast.Global | ast.Nonlocal):
        return None
    # Of a tensor or a list, `x += y` changes the object, whoever else holds it.
    is_loud = isinstance(statement, ast.Raise | ast.Assert | ast.Delete | ast.ClassDef | ast.AugAssign)
    if is_loud or (isinstance(statement, ast.Assign) and not all(_is_local(t) for t in statement.targets)):
        return Effect(_where(statement), is_sure=True)
    found = [effect for e in _own_expressions(statement) if (effect := effect_of_expression(e))]
    if found and isinstance(statement, ast.Expr) and not _only_logs(statement.value):
        return Effect(_where(statement), is_sure=found[0].is_sure or not hasattr(statement.value, "effect"))
    found += [effect for block in inner_blocks(statement) if (effect := effect_of(block))]
    return next((effect for effect in found if effect.is_sure), found[0] if found else None)


def effect_of_condition(condition: ast.expr) -> Effect | None:
    """As `effect_of_expression`, but a method that by its name only tells something of its object does nothing."""
    return effect_of_expression(condition, asking_is_quiet=True)


def effect_of_expression(
    expression: ast.AST, *, calls_are_sure: bool = False, asking_is_quiet: bool = False
) -> Effect | None:
    """What evaluating it does besides giving a value; None for built-ins that change nothing.

    With `calls_are_sure` a call of code that is not analysed counts as doing something.
    """
    found: list[Effect] = []
    for node in walk(expression):
        if isinstance(node, ast.Await | ast.Yield | ast.YieldFrom):
            return Effect("it waits or yields", is_sure=True)
        if not isinstance(node, ast.Call) or getattr(node, "is_quiet", False):
            continue
        name = dotted(node.func) or "a computed function"
        known: Effect | None = getattr(node, "effect", None)
        if known is not None:
            found.append(known)
        elif name not in _QUERIES and not (asking_is_quiet and _only_asks(name)):
            text = f"calls {name} in line {node.lineno}, and what that does cannot be told"
            found.append(Effect(text, is_sure=calls_are_sure or name in _BUILTINS))
    return next((effect for effect in found if effect.is_sure), found[0] if found else None)


def _only_asks(name: str) -> bool:
    """Whether a method is called as those are that tell something of their object and leave it as it is.

    By convention only. Where its definition is among the files that are read, what that does counts instead.
    """
    method = name.rpartition(".")[2]
    return "." in name and (method in _TELLING or method.startswith(_ASKING))


def is_total(expression: ast.AST) -> bool:
    """Whether evaluating it neither does anything nor fails, nor takes time or memory worth a thought.

    Names and attributes count where the reader found them bound before (`is_bound`).
    """
    match expression:
        case ast.Constant() | ast.Lambda():
            return True
        case ast.Name() | ast.Attribute():
            inner = is_total(expression.value) if isinstance(expression, ast.Attribute) else True
            return inner and getattr(expression, "is_bound", False)
        case ast.Call():
            is_query = dotted(expression.func) in _TOTAL_QUERIES or getattr(expression, "is_quiet", False)
            return is_query and all(
                map(is_total, (*expression.args, *(k.value for k in expression.keywords)))
            )
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return all(map(is_total, parts))
        case ast.BoolOp(values=parts):
            return all(map(is_total, parts)) and all(map(has_plain_truth, parts[:-1]))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return all(map(is_total, (test, body, orelse))) and has_plain_truth(test)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return is_total(operand) and has_plain_truth(operand)
        case ast.NamedExpr(value=operand):
            return is_total(operand)
        case ast.Compare(left=left, ops=ops, comparators=others):
            return all(isinstance(o, ast.Is | ast.IsNot) for o in ops) and all(map(is_total, (left, *others)))
        case ast.Dict(keys=keys, values=parts):
            return all(isinstance(key, ast.Constant) for key in keys) and all(map(is_total, parts))
    return _is_number(expression)


def has_plain_truth(expression: ast.AST) -> bool:
    """Whether asking for its truth is free: a tensor of several values has none, and one on a GPU waits for it."""
    is_variable = isinstance(expression, ast.Name | ast.Attribute)
    return not is_variable or getattr(expression, "is_mapping", False)


def _is_number(expression: ast.AST) -> bool:
    """Whether it is arithmetic of literal numbers whose result is about as long as they are."""
    match expression:
        case ast.Constant(value=int() | float()):
            return True
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _is_number(operand)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult(), right=right):
            return _is_number(left) and _is_number(right)
    return False


def _only_logs(expression: ast.expr) -> bool:
    called = expression.func if isinstance(expression, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr in {*_LOGGING, *_LOGGING_ONCE}


def _where(statement: ast.stmt) -> str:
    return f"does `{_short(statement)}` in line {statement.lineno}"


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
        if isinstance(statement, ast.Assign) and is_total(statement.value):
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
