"""Which statements of two versions of a block are the same one, in order."""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Iterator, Sequence
from difflib import SequenceMatcher

from harness.facts.python_source.off_path.bindings import FunctionNode

Definition = FunctionNode | ast.ClassDef
Pair = tuple[ast.stmt | None, ast.stmt | None, bool]
"""A statement before and after, None on the side that has none, and whether both are the same."""
_COMPOUND = (
    *(ast.If, ast.While, ast.For, ast.AsyncFor, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match),
)


def aligned(old: Sequence[ast.stmt], new: Sequence[ast.stmt]) -> Iterator[Pair]:
    """Pairs in the order of the statements, none crossing another: what moved is gone at one place and new at another.

    The same statements first, then definitions of one name and compound statements with one header, then compound
    statements of one kind.
    """
    yield from _aligned(old, new, (_whole, _header, _kind))


def shell(statement: ast.AST) -> str:
    """All of a compound statement but its blocks: conditions, targets, handlers' types, patterns and their guards."""
    parts = []
    for name, value in ast.iter_fields(statement):
        if name in ("body", "orelse", "finalbody"):
            continue
        if name in ("handlers", "cases"):
            parts += [name, *map(shell, value)]
        else:
            parts += [name, *(ast.dump(v) if isinstance(v, ast.AST) else repr(v) for v in _listed(value))]
    return repr((type(statement).__name__, parts))


def blocks_of(statement: ast.AST) -> list[list[ast.stmt]]:
    """The blocks of a statement, empty ones included."""
    named = [getattr(statement, name) for name in ("body", "orelse", "finalbody") if hasattr(statement, name)]
    parts = (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ()))
    return [*named, *(part.body for part in parts)]


def _aligned(
    old: Sequence[ast.stmt], new: Sequence[ast.stmt], keys: Sequence[Callable[[ast.stmt], Hashable]]
) -> Iterator[Pair]:
    if not keys or not old or not new:
        yield from ((statement, None, False) for statement in old)
        yield from ((None, statement, False) for statement in new)
        return
    key, *rest = keys
    matcher = SequenceMatcher(None, [key(s) for s in old], [key(s) for s in new], autojunk=False)
    for kind, i1, i2, j1, j2 in matcher.get_opcodes():
        if kind == "equal":
            pairs = zip(old[i1:i2], new[j1:j2], strict=True)
            yield from ((before, after, key is _whole) for before, after in pairs)
        else:
            yield from _aligned(old[i1:i2], new[j1:j2], rest)


def _whole(statement: ast.stmt) -> Hashable:
    return ast.dump(statement)


def _header(statement: ast.stmt) -> Hashable:
    if isinstance(statement, Definition):
        return type(statement).__name__, statement.name
    return shell(statement) if isinstance(statement, _COMPOUND) else id(statement)


def _kind(statement: ast.stmt) -> Hashable:
    return type(statement).__name__ if isinstance(statement, _COMPOUND) else id(statement)


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else [value]
