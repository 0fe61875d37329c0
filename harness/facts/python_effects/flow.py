"""Which bindings of a name may be in force at a place, and which statements belong to a function."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from harness.facts.python_effects.scopes import Binding, Module, Scope, Site
from harness.facts.python_effects.values import Holder, Items
from harness.facts.python_source.walk import children


def reaching_bindings(found: list[Binding], site: Site) -> tuple[list[Binding], bool]:
    """The bindings that may be in force, and whether one of them is on every way to the place.

    In force are the last that is on every way, others that come after it, and those of functions that declare the
    name `global` or `nonlocal`, which may be called at any time.
    """
    blocks = {id(block) for block in site.block.chain()}
    run = site.scope.function
    elsewhere = {id(b) for b in found if b.site.scope.function is not run}
    before = [b for b in found if b.kind == "parameter" or b.site.position < site.position]
    before = [b for b in before if id(b) not in elsewhere]
    last = max(_on_every_way(before, blocks), default=None)
    loops = {id(block) for block in site.block.chain() if block.is_loop}
    is_made_anew = any(
        b.kind != "parameter"
        and b.site.position == last
        and any(id(block) in loops for block in b.site.block.chain())
        for b in before
    )
    reaching = []
    for binding in found:
        place = _place(binding)
        in_loop = any(id(block) in loops for block in binding.site.block.chain())
        is_before = place < site.position and (last is None or place >= last)
        is_again = place >= site.position and in_loop and not is_made_anew
        is_inline = binding.is_inline and place == site.position
        if is_before or is_again or is_inline or id(binding) in elsewhere:
            reaching.append(binding)
    return reaching or found, last is not None


def is_on_every_way(found: list[Binding]) -> bool:
    """Whether a scope has bound a name once all of it has run."""
    outermost = {id(block) for b in found for block in b.site.block.chain() if block.parent is None}
    return any(True for _ in _on_every_way(found, outermost))


def _on_every_way(found: list[Binding], blocks: set[int]) -> Iterator[int]:
    """Positions after which a name is bound, whichever way led into one of the blocks."""
    pending = [(b.site.block, _place(b)) for b in found]
    bound: set[int] = set()
    while pending:
        block, position = pending.pop()
        if id(block) in blocks or position == 0:
            yield position
            continue
        bound.add(id(block))
        other = block.other
        if other is not None and block.parent is not None and (id(other) in bound or other.leaves):
            pending.append((block.parent, block.start))


def _place(binding: Binding) -> int:
    return 0 if binding.kind == "parameter" else binding.site.position


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
            match node:
                case ast.Call(
                    func=ast.Name(id="setattr"),
                    args=[ast.Name(id="self" | "cls"), ast.Constant(value=str(name)), value],
                ):
                    found.setdefault((owner, name), []).append((value, site))
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    match target:
                        case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                            found.setdefault((owner, name), []).append((node.value, site))
    return found


def index_additions(modules: Iterable[Module]) -> dict[tuple[Scope, str], set[Items | Holder]]:
    """What code puts into the containers, and assigns to attributes, that a name stands for, by the name's scope.

    An attribute of `self` is a name of its class.
    """
    found: dict[tuple[Scope, str], set[Items | Holder]] = {}
    for module in modules:
        for node, site in module.visits:
            for container, put in _added(node, site):
                match container:
                    case ast.Name(id=name):
                        scope = next((s for s in site.scope.chain() if name in s.bindings), None)
                    case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                        scope = next((s for s in site.scope.chain() if s.kind == "class"), None)
                    case _:
                        continue
                if scope is not None:
                    found.setdefault((scope, name), set()).add(put)
    return found


def _added(node: ast.AST, site: Site) -> Iterator[tuple[ast.expr, Items | Holder]]:
    """Containers and other objects, and what is put into them."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                match target:
                    case ast.Subscript(value=container):
                        yield container, Items((value,), site)
                    case ast.Attribute(value=ast.Name() as owner, attr=attribute):
                        yield owner, Holder((value,), (attribute,), site)
        case ast.AugAssign(target=container, op=ast.Add(), value=ast.List() | ast.Tuple() as value):
            yield container, Items((ast.Starred(value, ast.Load()),), site)
        case ast.AugAssign(target=container, op=ast.BitOr(), value=ast.Dict() | ast.Set() as value):
            yield container, Items((value,), site, keys=(None,))
        case ast.Call(func=ast.Attribute(value=container, attr=method)):
            put = _put_by(method, node, site)
            if put is not None and isinstance(container, ast.Subscript) and put.keys is None:
                yield container.value, Items((ast.List([*put.elements], ast.Load()),), site)
            elif put is not None:
                yield container, put


def _put_by(method: str, call: ast.Call, site: Site) -> Items | None:
    """What a method of a container puts into it."""
    match method, call.args:
        case "append" | "add" | "appendleft", [value]:
            return Items((value,), site)
        case "insert" | "setdefault", [_, value]:
            return Items((value,), site)
        case "extend" | "extendleft", [value]:
            return Items((ast.Starred(value, ast.Load()),), site)
        case "update", [*others]:
            keys = (ast.Constant(k.arg) if k.arg else None for k in call.keywords)
            elements = (*others, *(k.value for k in call.keywords))
            return Items(elements, site, keys=(*(None for _ in others), *keys))
    return None


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
