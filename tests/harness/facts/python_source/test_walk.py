"""Laws of the quick walks: they give what the standard library's gives, but for the nodes that hold nothing."""

from __future__ import annotations

import ast
import inspect

import pytest

from harness.facts.python_source import hooks, imports
from harness.facts.python_source.off_path import statements as off_path_statements
from harness.facts.python_source.walk import children, statements, walk

SIGNS = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
RARE = """
match x:
    case {"a": [1, *rest], **others} | Point(x=0, y=y) if y and rest:
        pass
    case None | "b" as z: pass
try:
    with open(f"{x!r:>{width}}") as (a, b): del a[1:2, ...]
except* (E, F) as error:
    async def g[T](): yield (await h(*a, **{**k, "z": lambda q=1, /, *, r: q if r else (w := 2)}))
finally:
    global GLOBAL
""".replace("g[T]", "g")
SOURCES = {m.__name__: inspect.getsource(m) for m in (hooks, imports, off_path_statements)} | {"rare": RARE}


@pytest.mark.parametrize("name", SOURCES)
def test_a_walk_gives_every_node_but_signs_in_the_order_of_the_standard_library(name: str) -> None:
    tree = ast.parse(SOURCES[name])
    assert walk(tree) == [node for node in ast.walk(tree) if not isinstance(node, SIGNS)]


@pytest.mark.parametrize("name", SOURCES)
def test_the_children_of_a_node_are_those_of_the_standard_library_but_signs(name: str) -> None:
    for node in ast.walk(ast.parse(SOURCES[name])):
        known = [child for child in ast.iter_child_nodes(node) if not isinstance(child, SIGNS)]
        assert children(node) == known


@pytest.mark.parametrize("name", SOURCES)
def test_every_statement_is_found_at_any_depth(name: str) -> None:
    tree = ast.parse(SOURCES[name])
    assert set(statements(tree)) == {node for node in ast.walk(tree) if isinstance(node, ast.stmt)}
