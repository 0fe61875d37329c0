"""Whether code runs only where a name was found missing."""

from __future__ import annotations

import ast

from harness.facts.python_effects.resolve import Resolver
from harness.facts.python_effects.scopes import Site
from harness.facts.python_effects.values import Imported, Shared, texts


def is_guarded(resolver: Resolver, site: Site, key: ast.expr, text: str | None) -> bool:
    """Whether the code runs only where the key was found missing."""
    for block in site.block.chain():
        if block.test is not None and _says_missing(resolver, block.test, block.holds, key, text, site):
            return True
        for statement in block.statements:
            here = site.scope.module.sites.get(statement)
            if here is None or here.position >= site.position:
                break
            if (
                isinstance(statement, ast.If)
                and isinstance(statement.body[-1], (ast.Return, ast.Raise, ast.Continue, ast.Break))
                and _says_missing(resolver, statement.test, False, key, text, here)
            ):
                return True
    return False


def _says_missing(
    resolver: Resolver, test: ast.expr, holds: bool, key: ast.expr, text: str | None, site: Site
) -> bool:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _says_missing(resolver, test.operand, not holds, key, text, site)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and holds:
        return any(_says_missing(resolver, part, True, key, text, site) for part in test.values)
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return False
    wanted = ast.NotIn if holds else ast.In
    same = ast.dump(test.left) == ast.dump(key)
    known = text is not None and texts(resolver.evaluate(test.left, site)) == (text,)
    foreign = any(
        isinstance(v, (Imported, Shared)) for v in resolver.evaluate(test.comparators[0], site)
    ) or _is_foreign_call(resolver, test.comparators[0], site)
    return isinstance(test.ops[0], wanted) and (same or known) and foreign


def _is_foreign_call(resolver: Resolver, node: ast.expr, site: Site) -> bool:
    """Whether the container asked is what a method of another package returns: `Registry.names()`."""
    if not isinstance(node, ast.Call):
        return False
    return any(isinstance(v, (Imported, Shared)) for v in resolver.evaluate(node.func, site))
