"""What the compiler makes of all of a function, code that never runs included: its locals, and whether it yields.

Python reference, "Naming and binding": a name that a block binds anywhere is local to all of it, and one `yield`
makes a function a generator, whether or not it can be reached.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from harness.facts.python_source.off_path.bindings import FunctionNode, evaluated_around, names_bound
from harness.facts.python_source.walk import children, walk

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(slots=True)
class FunctionScope:
    """The names of one function."""

    bound: dict[str, ast.AST] = field(default_factory=dict)
    """Names that it binds, parameters included, and where first."""
    declared: dict[str, ast.AST] = field(default_factory=dict)
    """Names that it declares global or nonlocal."""
    used: set[str] = field(default_factory=set)
    """Names that it or code inside it uses in any way."""
    shared: set[str] = field(default_factory=set)
    """Names that code inside it or a `finally` uses, which may run later than the statement after."""
    yields: ast.AST | None = None

    @property
    def local(self) -> dict[str, ast.AST]:
        """Names that are its own."""
        return {name: node for name, node in self.bound.items() if name not in self.declared}


def scope_of(function: FunctionNode) -> FunctionScope:
    """The scope of a function as written."""
    scope = FunctionScope()
    pending: list[tuple[ast.AST, bool, bool]] = [(node, True, True) for node in _arguments(function)]
    pending += [(statement, True, True) for statement in reversed(function.body)]
    while pending:
        node, is_own, is_walrus_own = pending.pop()
        _note(scope, node, is_own=is_walrus_own if isinstance(node, ast.NamedExpr) else is_own)
        pending += [(part, is_own, is_walrus_own) for part in evaluated_around(node)]
        for child in children(node):
            is_inside = not _opens_scope(node, child)
            is_comprehension = isinstance(node, _COMPREHENSIONS)
            pending.append((child, is_own and is_inside, is_walrus_own and (is_inside or is_comprehension)))
    return scope


def why_scope_differs(
    before: FunctionScope, after: FunctionScope, new: FunctionNode
) -> Iterator[tuple[ast.AST, str]]:
    """Where the head makes the names or the kind of a function others than they were, and how."""
    if (before.yields is None) != (after.yields is None):
        text = "is a generator" if after.yields is not None else "is no generator"
        yield after.yields or new, f"{new.name} {text} now, with the switch off too"
    for name, node in after.local.items():
        if name not in before.local and name in before.used:
            yield node, f"makes {name} a local of all of {new.name}, with the switch off too"
    for name in before.local:
        if name not in after.local and name in after.used:
            yield after.declared.get(name, new), f"{name} is no local of {new.name} any more"
    for name, node in after.declared.items():
        if name not in before.declared and name not in before.local and name in before.used:
            yield node, f"declares {name}, which {new.name} used before"
    for name in before.declared:
        if name not in after.declared and name in after.used:
            yield after.bound.get(name, new), f"{name} is not declared in {new.name} any more"


def _note(scope: FunctionScope, node: ast.AST, *, is_own: bool) -> None:
    names = names_bound(node)
    scope.used.update(names)
    if isinstance(node, ast.Name):
        scope.used.add(node.id)
        scope.shared.update(() if is_own else (node.id,))
    if isinstance(node, ast.Try):
        walked = (n for statement in node.finalbody for n in walk(statement))
        scope.shared.update(n.id for n in walked if isinstance(n, ast.Name))
    if isinstance(node, ast.Global | ast.Nonlocal):
        scope.used.update(node.names)
        scope.shared.update(node.names)
        if is_own:
            scope.declared.update(dict.fromkeys(node.names, node))
    for name in names if is_own else ():
        scope.bound.setdefault(name, node)
    if is_own and isinstance(node, ast.Yield | ast.YieldFrom) and scope.yields is None:
        scope.yields = node


def _opens_scope(node: ast.AST, child: ast.AST) -> bool:
    """Whether a part of a node belongs to a scope of the node's own."""
    if isinstance(node, FunctionNode):
        return isinstance(child, ast.stmt | ast.arguments)
    if isinstance(node, ast.ClassDef):
        return isinstance(child, ast.stmt)
    return isinstance(node, (ast.Lambda, *_COMPREHENSIONS))


def _arguments(function: FunctionNode) -> list[ast.arg]:
    return [node for node in walk(function.args) if isinstance(node, ast.arg)]
