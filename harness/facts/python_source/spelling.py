"""Strings that a file spells out: literals, constants of its top, and what is put together of both."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence


def spelt_text(node: ast.expr, constants: Mapping[str, str]) -> str | None:
    """The string that an expression gives; None when the text does not say.

    Args:
        node: the expression.
        constants: names that stand for one string.
    """
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            return constants.get(name)
        case ast.JoinedStr(values=parts):
            plain = [part.value if isinstance(part, ast.FormattedValue) else part for part in parts]
            return _joined("", plain, constants)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _joined("", [left, right], constants)
        case ast.BinOp(left=left, op=ast.Mod(), right=right):
            parts = right.elts if isinstance(right, ast.Tuple) else [right]
            return _filled(left, parts, constants, str.__mod__)
        case ast.Call(func=ast.Attribute(value=left, attr="format"), args=parts, keywords=[]):
            return _filled(left, parts, constants, lambda text, given: text.format(*given))
        case ast.Call(func=ast.Attribute(value=left, attr="join"), args=[ast.List() | ast.Tuple() as parts]):
            separator = spelt_text(left, constants)
            return None if separator is None else _joined(separator, parts.elts, constants)
    return None


def string_constants(tree: ast.Module) -> dict[str, str]:
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


def _joined(separator: str, parts: Sequence[ast.expr], constants: Mapping[str, str]) -> str | None:
    texts = [spelt_text(part, constants) for part in parts]
    known = [text for text in texts if text is not None]
    return separator.join(known) if known and len(known) == len(texts) else None


def _filled(
    template: ast.expr,
    parts: Sequence[ast.expr],
    constants: Mapping[str, str],
    fill: Callable[[str, tuple[str, ...]], str],
) -> str | None:
    text = spelt_text(template, constants)
    given = [spelt_text(part, constants) for part in parts]
    known = tuple(value for value in given if value is not None)
    if text is None or len(known) != len(given):
        return None
    try:
        return fill(text, known)
    except (TypeError, ValueError, LookupError, AttributeError):
        return None
