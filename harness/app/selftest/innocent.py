"""Innocent edits of a Python file: what it computes stays as it is, and what a reader of its text sees does not."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

COMMENT = "# What stands here is as it was."
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.Lambda, ast.ClassDef, ast.Global, ast.Nonlocal, ast.Match, ast.JoinedStr)
"""What keeps a function's names from being renamed: scopes of its own, and texts whose positions Python 3.11 does not
give."""
_READ_NAMES = {"locals", "vars", "eval", "exec"}
"""What finds a variable by its name."""
_PURE = (
    *(ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Slice, ast.Tuple, ast.expr_context),
    *(ast.BinOp, ast.UnaryOp, ast.Compare, ast.operator, ast.unaryop, ast.cmpop),
)
"""What may be evaluated earlier or later without a difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Splice:
    """New text for the bytes from `start` to `end`."""

    start: int
    end: int
    text: bytes


Edit = tuple[Splice, ...]


@dataclass(slots=True)
class Source:
    """A file's text and tree, which counts columns in bytes."""

    data: bytes
    tree: ast.Module = field(init=False)
    _lines: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.data)
        self._lines = [0]
        for line in self.data.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        """Where a node begins and ends."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = self._lines[node.lineno - 1] + node.col_offset
        return start, self._lines[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.expr | ast.stmt | ast.keyword) -> bytes:
        """A node as it is written."""
        start, end = self.span(node)
        return self.data[start:end]

    def bodies(self) -> Iterator[list[ast.stmt]]:
        """The statements, docstrings aside, of every block of a function in which each has lines of its own."""
        for function in self.functions():
            for node in ast.walk(function):
                body = getattr(node, "body", None)
                if isinstance(body, list) and all(s.col_offset == self._indent(s) for s in body):
                    yield [statement for statement in body if not _is_text(statement)]

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Every function."""
        return (node for node in ast.walk(self.tree) if isinstance(node, _FUNCTIONS))

    def _indent(self, statement: ast.stmt) -> int:
        line = self.data[self._lines[statement.lineno - 1] : self._lines[statement.lineno]]
        return len(line) - len(line.lstrip(b" "))

    def fresh(self, name: str) -> str:
        """A name that stands nowhere in the file."""
        while name.encode() in self.data:
            name += "_"
        return name

    def exchanged(self, left: ast.stmt | ast.keyword, right: ast.stmt | ast.keyword) -> Edit:
        """Both nodes in each other's place."""
        places = ((self.span(left), self.text(right)), (self.span(right), self.text(left)))
        return tuple(Splice(start=start, end=end, text=text) for (start, end), text in places)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_pure(value: ast.expr) -> bool:
    return all(isinstance(node, _PURE) for node in ast.walk(value))


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _stored(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _bound_otherwise(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Names that stand for something else too: arguments, what is read outside the body, imports, caught errors."""
    found = {n.arg for n in ast.walk(function) if isinstance(n, ast.arg)}
    outside: list[ast.AST | None] = [function.args, function.returns, *function.decorator_list]
    found |= {name for node in outside if node is not None for name in _names(node)}
    for node in ast.walk(function):
        if isinstance(node, ast.ExceptHandler | ast.alias):
            found |= {node.name or "", getattr(node, "asname", None) or ""}
    return found


def comments(source: Source) -> Iterator[Edit]:
    """A comment above a statement."""
    for body in source.bodies():
        for statement in body:
            start, _ = source.span(statement)
            text = f"{COMMENT}\n{' ' * statement.col_offset}".encode()
            yield (Splice(start=start, end=start, text=text),)


def renamed_locals(source: Source) -> Iterator[Edit]:
    """Another name for a variable of one function."""
    for function in source.functions():
        if any(isinstance(node, _SCOPES) for node in ast.walk(function) if node is not function):
            continue
        names = [n for n in ast.walk(function) if isinstance(n, ast.Name)]
        if _READ_NAMES & _names(function):
            continue
        for name in sorted(_stored(function) - _bound_otherwise(function)):
            new = source.fresh(f"{name}_here").encode()
            spans = [source.span(n) for n in names if n.id == name]
            yield tuple(Splice(start=start, end=end, text=new) for start, end in spans)


def named_results(source: Source) -> Iterator[Edit]:
    """What is returned gets a name first."""
    for body in source.bodies():
        for statement in body:
            if not isinstance(statement, ast.Return) or statement.value is None:
                continue
            if isinstance(statement.value, ast.Name | ast.Constant):
                continue
            (start, end), name = source.span(statement), source.fresh("outcome")
            last = f"\n{' ' * statement.col_offset}return {name}".encode()
            yield (
                Splice(start=start, end=start + len("return"), text=f"{name} =".encode()),
                Splice(start=end, end=end, text=last),
            )


def reordered_keywords(source: Source) -> Iterator[Edit]:
    """Two keyword arguments of a call in the other order."""
    for call in (node for node in ast.walk(source.tree) if isinstance(node, ast.Call)):
        for left, right in pairwise(call.keywords):
            if left.arg and right.arg and _is_pure(left.value) and _is_pure(right.value):
                yield source.exchanged(left, right)


def reordered_lines(source: Source) -> Iterator[Edit]:
    """Two assignments, neither of which reads the other's, in the other order."""
    for body in source.bodies():
        for left, right in pairwise(body):
            if not isinstance(left, ast.Assign) or not isinstance(right, ast.Assign):
                continue
            targets = [node for target in (*left.targets, *right.targets) for node in ast.walk(target)]
            if not all(isinstance(node, ast.Name | ast.Tuple | ast.expr_context) for node in targets):
                continue
            is_free = not (_stored(left) & _names(right) or _stored(right) & _names(left))
            if is_free and _is_pure(left.value) and _is_pure(right.value):
                yield source.exchanged(left, right)


KINDS: Mapping[str, Callable[[Source], Iterator[Edit]]] = {
    "comment": comments,
    "rename": renamed_locals,
    "named-result": named_results,
    "keywords": reordered_keywords,
    "lines": reordered_lines,
}


def applied(data: bytes, edit: Edit) -> bytes:
    """The text with an edit in it."""
    for splice in sorted(edit, key=lambda s: s.start, reverse=True):
        data = data[: splice.start] + splice.text + data[splice.end :]
    return data


def edit_innocently(text: str, draw: Random, num_edits: int) -> tuple[str, tuple[str, ...]]:
    """The text with one edit each of up to `num_edits` kinds, and which; what no kind can edit stays as it is."""
    kinds: list[str] = []
    data = text.encode()
    for kind in draw.sample(sorted(KINDS), len(KINDS)):
        edits = list(KINDS[kind](Source(data)))
        if edits and len(kinds) < num_edits:
            data = applied(data, draw.choice(edits))
            kinds.append(kind)
    return data.decode(), tuple(kinds)


def repeat_a_test(text: str) -> str | None:
    """The test file with its shortest plain test once more under another name; None where it has none."""
    source = Source(text.encode())
    tests = [
        node
        for node in source.tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not node.decorator_list
    ]
    if not tests:
        return None
    shortest = min(tests, key=lambda node: len(source.text(node)))
    again = source.text(shortest).decode().replace(shortest.name, source.fresh(f"{shortest.name}_again"), 1)
    return f"{text.rstrip()}\n\n\n{again}\n"
