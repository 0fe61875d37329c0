"""What names of a repository's Python files mean: through imports, re-exports, aliases and assignments."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass, field

from harness.facts.python_source.names import dotted, resolve_relative
from harness.facts.python_source.tree import SourceTree
from harness.facts.python_source.walk import statements, walk

UNKNOWN = "?"
"""Stands for an attribute that is looked up by a computed name."""
_MAX_STEPS = 60

Name = tuple[str, str]
"""The path of a file and a dotted name as it spells it; with an empty path the name is an absolute one."""


@dataclass(slots=True)
class _Bound:
    """What one file binds, in whatever scope."""

    names: dict[str, set[Name]] = field(default_factory=lambda: defaultdict(set))
    stars: list[str] = field(default_factory=list)


class Meanings:
    """Names of one tree, followed when asked for. Scopes are not told apart: a name has all meanings of its file."""

    def __init__(self, tree: SourceTree) -> None:
        self.tree = tree
        self._bound: dict[str, _Bound] = {}
        self._followed: dict[Name, set[Name]] = {}

    def of(self, path: str, node: ast.expr) -> set[Name]:
        """What an expression may mean: absolute names outside of the repository, definitions inside it."""
        return {meaning for name in spelt(path, node) for meaning in self._follow(name)}

    def _follow(self, spelling: Name) -> set[Name]:
        if spelling not in self._followed:
            waiting, seen = [spelling], {spelling}
            found = self._followed[spelling] = set()
            while waiting and len(seen) < _MAX_STEPS:
                name = waiting.pop()
                steps = self._step(*name)
                if not steps:
                    found.add(name)
                waiting += steps - seen
                seen |= steps
        return self._followed[spelling]

    def _step(self, path: str, name: str) -> set[Name]:
        """What a name stands for, one binding further; nothing for a definition and for what is not in the tree."""
        if not path:
            return self._inside(name)
        head, dot, rest = name.partition(".")
        bound = self._of_file(path)
        if head in bound.names:
            return {(where, target + dot + rest) for where, target in bound.names[head]}
        return {("", f"{star}.{name}") for star in bound.stars}

    def _inside(self, name: str) -> set[Name]:
        """An absolute name as one of a file of the tree."""
        parts = name.split(".")
        for size in range(len(parts) - 1, 0, -1):
            path = self.tree.path_of(".".join(parts[:size]))
            if path is not None:
                return {(path, ".".join(parts[size:]))}
        return set()

    def _of_file(self, path: str) -> _Bound:
        if path not in self._bound:
            bound = self._bound[path] = _Bound()
            module = self.tree.parse(path)
            # A name is bound inside an expression by the walrus alone.
            nodes = walk if b":=" in self.tree.files.get(path, b"") else statements
            for node in nodes(module) if module is not None else ():
                if isinstance(node, ast.Import | ast.ImportFrom):
                    _import(node, self.tree.package_of(path), bound)
                elif isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    for target in targets:
                        _assign(path, target, node.value, bound)
        return self._bound[path]


def _import(node: ast.Import | ast.ImportFrom, package: str, bound: _Bound) -> None:
    source = None
    if isinstance(node, ast.ImportFrom):
        source = resolve_relative(package, node.level, node.module) or ""
    for alias in node.names:
        if source is not None and alias.name == "*":
            bound.stars.append(source)
        elif source is not None:
            bound.names[alias.asname or alias.name].add(("", f"{source}.{alias.name}"))
        elif alias.asname:
            bound.names[alias.asname].add(("", alias.name))
        else:
            root = alias.name.partition(".")[0]
            bound.names[root].add(("", root))


def _assign(path: str, target: ast.expr, value: ast.expr, bound: _Bound) -> None:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, given in zip(target.elts, value.elts, strict=False):
            _assign(path, one, given, bound)
    elif isinstance(target, ast.Name):
        bound.names[target.id] |= {n for n in spelt(path, value) if n[1].partition(".")[0] != target.id}
        if not bound.names[target.id]:
            del bound.names[target.id]


def spelt(path: str, node: ast.expr) -> set[Name]:
    """What an expression of a file is by its text: a call is what it calls, or imports by name."""
    name = dotted(node)
    if name is not None:
        return {(path, name)}
    if isinstance(node, ast.Attribute):
        return {(where, f"{inner}.{node.attr}") for where, inner in spelt(path, node.value)}
    if isinstance(node, ast.IfExp):
        return spelt(path, node.body) | spelt(path, node.orelse)
    if isinstance(node, ast.BoolOp):
        return set[Name]().union(*(spelt(path, value) for value in node.values))
    if not isinstance(node, ast.Call):
        return set()
    called = (dotted(node.func) or "").rpartition(".")[2]
    text = next((a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)), "")
    if called in ("import_module", "__import__") and text:
        return {("", text)}
    if called == "getattr" and len(node.args) > 1:
        return {(where, f"{inner}.{text or UNKNOWN}") for where, inner in spelt(path, node.args[0])}
    return spelt(path, node.args[0] if called == "partial" and node.args else node.func)
