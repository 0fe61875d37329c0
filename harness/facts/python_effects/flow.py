"""Which bindings of a name may be in force at a place, and which statements belong to a function."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from harness.facts.python_effects.scopes import Binding, Module, Scope, Site
from harness.facts.python_source.walk import children


def reaching_bindings(found: list[Binding], site: Site) -> list[Binding]:
    """The bindings that may be in force: the last that dominates the place, and others that come after it."""
    blocks = {id(block) for block in site.block.chain()}
    before = [b for b in found if b.kind == "parameter" or b.site.position < site.position]
    sure = [b for b in before if id(b.site.block) in blocks or b.kind == "parameter"]
    last = max((0 if b.kind == "parameter" else b.site.position for b in sure), default=None)
    loops = {id(block) for block in site.block.chain() if block.is_loop}
    reaching = []
    for binding in found:
        place = 0 if binding.kind == "parameter" else binding.site.position
        in_loop = any(id(block) in loops for block in binding.site.block.chain())
        if (place < site.position and (last is None or place >= last)) or (
            place >= site.position and in_loop and not _dominated_in_loop(sure, last, loops)
        ):
            reaching.append(binding)
    return reaching or found


def _dominated_in_loop(sure: list[Binding], last: int | None, loops: set[int]) -> bool:
    """Whether the dominating binding is made anew in each round of the loop."""
    return any(
        b.kind != "parameter"
        and b.site.position == last
        and any(id(block) in loops for block in b.site.block.chain())
        for b in sure
    )


def is_same_run(scope: Scope, used_in: Scope) -> bool:
    """Whether a use in `used_in` happens in the order of the text with the bindings of `scope`."""
    for inner in used_in.chain():
        if inner is scope:
            return True
        if inner.kind == "function":
            return False
    return False


def index_instance_writes(
    modules: Iterable[Module],
) -> dict[tuple[Scope, str], list[tuple[ast.expr, Site]]]:
    """What methods assign to attributes of `self`, by class scope and attribute."""
    found: dict[tuple[Scope, str], list[tuple[ast.expr, Site]]] = {}
    for module in modules:
        for node, site in module.visits:
            owner = site.scope.parent
            if site.scope.kind != "function" or owner is None or owner.kind != "class":
                continue
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    match target:
                        case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                            found.setdefault((owner, name), []).append((node.value, site))
    return found


def own_statements(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.stmt]:
    """The statements of a function without those of functions and classes in it."""
    stack: list[ast.AST] = [*node.body]
    while stack:
        item = stack.pop()
        if isinstance(item, ast.stmt):
            yield item
            if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
        stack += [c for c in children(item) if not isinstance(c, ast.expr)]
