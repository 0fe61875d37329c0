"""When code runs: while its module is imported, when it is called, or only as a program."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from harness.facts.python_effects.scopes import Site
from harness.facts.python_effects.values import OwnClass, OwnFunction

if TYPE_CHECKING:
    from harness.facts.python_effects.resolve import Resolver


def is_script(site: Site) -> bool:
    """Whether the place is under `if __name__ == "__main__"`."""
    for scope in site.scope.chain():
        blocks = site.block.chain() if scope is site.scope else ()
        for block in blocks:
            match block.test:
                case ast.Compare(left=ast.Name(id="__name__"), ops=[ast.Eq()]) if block.holds:
                    return True
    return False


class ImportTime:
    """The functions that an import calls."""

    def __init__(self, resolver: Resolver) -> None:
        self._functions: set[ast.AST] = set()
        calls: dict[ast.AST | None, list[tuple[ast.expr, Site]]] = {}
        for module in resolver.modules:
            for node, site in module.visits:
                if isinstance(node, ast.expr) and not is_script(site):
                    calls.setdefault(site.scope.function, []).append((node, site))
        waiting: list[ast.AST | None] = [None]
        while waiting:
            for node, site in calls.get(waiting.pop(), ()):
                for function in _called(resolver, node, site):
                    if function not in self._functions:
                        self._functions.add(function)
                        waiting.append(function)

    def covers(self, site: Site) -> bool:
        """Whether code at the place runs while a module is imported."""
        function = site.scope.function
        return function is None or function in self._functions


def _called(resolver: Resolver, node: ast.expr, site: Site) -> list[ast.AST]:
    """The judged functions that a call, or a decorator without brackets, runs at once."""
    callee = node.func if isinstance(node, ast.Call) else node
    found: list[ast.AST] = []
    for value in resolver.evaluate(callee, site):
        if isinstance(value, OwnFunction):
            found.append(value.node)
        elif isinstance(value, OwnClass):
            for init in resolver.attribute(frozenset({value}), "__init__"):
                if isinstance(init, OwnFunction):
                    found.append(init.node)
    if isinstance(node, ast.Call) and node in site.scope.module.decorated:
        # A decorator that is made by a call: what it returns runs as well.
        for value in resolver.evaluate(node, site):
            if isinstance(value, OwnFunction):
                found.append(value.node)
    return found
