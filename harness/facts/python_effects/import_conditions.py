"""What an import refuses or does beyond its own names: errors that hang on the machine, calls for their effect."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness.facts.python_effects.scopes import Site
from harness.facts.python_effects.values import Imported, Made, OwnFunction, Shared, Values, dotted_names
from harness.facts.python_source.walk import walk

if TYPE_CHECKING:
    from harness.facts.python_effects.resolve import Resolver

_PURE_PACKAGES = """
    abc bisect builtins collections contextlib copy dataclasses enum fractions functools heapq inspect itertools
    logging math numbers operator pathlib re string types typing typing_extensions warnings
"""
_PURE = frozenset(_PURE_PACKAGES.split())
"""Packages whose functions tell nothing about the machine and change nothing that outlives the call."""
_STATE = re.compile(r"(sys|os|platform)\..+|(\w+\.)*__version__(\..+)?|torch\.version\..+|(\w+\.)*envs\.\w+")
"""What differs between machines without being called."""
_NOT_THERE = ("ImportError", "ModuleNotFoundError")


def refusal(resolver: Resolver, site: Site, node: ast.Raise | ast.Assert) -> tuple[str, bool] | None:
    """An error that an import raises: its name, and whether every import meets it.

    None for one that hangs on the file's own constants, which is the same wherever it is imported, for one in the
    place of an import that failed anyway, and for the end of a function, which other ways may leave before.
    """
    name = _name_of(node)
    tests = [node.test] if isinstance(node, ast.Assert) else []
    is_caught = is_handler = False
    for block in site.block.chain():
        if block.handles is not None:
            is_handler = True
            if _is_about_imports(block.handles):
                return None
        tests += [block.test] if block.test is not None else []
        is_caught |= block.is_caught
    causes = [cause for test in tests for cause in hangs_on(resolver, test, site)]
    if causes:
        return f"{name} by {causes[0]}", False
    if tests or site.scope.function is not None:
        return None
    return name, not (is_handler or is_caught)


def done_for_its_effect(site: Site, callee: Values) -> str:
    """The function of others that a statement at a module's top calls and whose result it drops; empty for none."""
    names = dotted_names(callee)
    is_foreign = bool(names) and len(names) == len(callee) and site.scope.function is None
    return names[0] if is_foreign and names[0].partition(".")[0] not in _PURE else ""


def hangs_on(
    resolver: Resolver, node: ast.AST, site: Site, seen: set[ast.AST] | None = None
) -> Iterator[str]:
    """What an expression asks of the machine or of other packages: functions that it calls, versions, variables.

    Own names and functions are followed to what they are made of.
    """
    seen = set() if seen is None else seen
    if node in seen:
        return
    seen.add(node)
    for part in walk(node):
        if isinstance(part, ast.Call):
            values = resolver.evaluate(part.func, site)
            yield from (name for name in dotted_names(values) if name.partition(".")[0] not in _PURE)
            for value in values:
                if isinstance(value, OwnFunction):
                    inner = Site(value.module.inner[value.node], site.block, site.position)
                    yield from hangs_on(resolver, value.node, inner, seen)
        elif isinstance(part, ast.Name | ast.Attribute):
            for value in resolver.evaluate(part, site):
                is_state = isinstance(value, Imported) and _STATE.fullmatch(value.name)
                is_answer = isinstance(value, Made | Shared) and value.name.partition(".")[0] not in _PURE
                if isinstance(value, Imported | Made | Shared) and (is_state or is_answer):
                    yield value.name
            if isinstance(part, ast.Name):
                yield from _made_of(resolver, part.id, site, seen)


def _made_of(resolver: Resolver, name: str, site: Site, seen: set[ast.AST]) -> Iterator[str]:
    """What the values of a variable hang on, where the text shows them."""
    scope = next((s for s in site.scope.chain() if name in s.bindings), None)
    for binding in scope.bindings[name] if scope is not None else ():
        if binding.kind in ("value", "element") and binding.node is not None:
            yield from hangs_on(resolver, binding.node, binding.site, seen)


def _name_of(node: ast.Raise | ast.Assert) -> str:
    if isinstance(node, ast.Assert):
        return "AssertionError"
    raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return "the error again" if raised is None else ast.unparse(raised)


def _is_about_imports(handler: ast.ExceptHandler) -> bool:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(c, ast.Name) and c.id in _NOT_THERE for c in caught)
