"""Every expression of a module with the place where it is evaluated."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from harness.facts.python_effects.scopes import Module, Site
from harness.facts.python_source.walk import children

_MAX_TEXT = 160
_READ = (ast.Call, ast.Attribute, ast.Subscript, ast.Compare, ast.List, ast.Tuple)


def readings(module: Module) -> list[tuple[ast.expr, Site]]:
    """Each call, attribute, subscript, comparison, list and tuple, outer ones first, statement by statement."""
    if module.readings is None:
        module.readings = []
        for statement, site in module.sites.items():
            if isinstance(statement, ast.stmt):
                module.readings += [(node, site) for node in _expressions(statement)]
    return module.readings


def _expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    stack: list[ast.AST] = [statement]
    while stack:
        for child in children(stack.pop()):
            if not isinstance(child, ast.stmt):
                stack.append(child)
                if isinstance(child, _READ):
                    yield child


def text_at(module: Module, node: ast.AST) -> str:
    """The lines of a node as one, cut."""
    line = getattr(node, "lineno", 1)
    end = getattr(node, "end_lineno", line) or line
    return " ".join(part.strip() for part in module.lines[line - 1 : end])[:_MAX_TEXT]
