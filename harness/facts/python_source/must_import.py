"""What has run once some files were imported: all that they import at their top, whatever holds, and so on."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from harness.facts.python_source.imports import Import, find_imports
from harness.facts.python_source.tree import SourceTree
from harness.facts.python_source.walk import walk
from harness.model.reach import ImportForm


def must_import(tree: SourceTree, files: Iterable[str]) -> frozenset[str]:
    """The files of the tree that were imported in whatever process imported `files` to their end, these among them.

    Imports below a condition, in a function or by name are left out: they need not run.
    """
    found: set[str] = set()
    open_files = [path for path in files if path in tree.files]
    while open_files:
        path = open_files.pop()
        if path not in found:
            found.add(path)
            open_files += [*_packages(tree, tree.module_of(path)), *_imported(tree, path)]
    return frozenset(found)


def conftests(tree: SourceTree, test: str) -> Iterator[str]:
    """The files that pytest imports before a test's own, from the top of the tree down."""
    for folder in reversed(PurePosixPath(test).parents):
        path = (folder / "conftest.py").as_posix()
        if path in tree.files:
            yield path


def _imported(tree: SourceTree, path: str) -> Iterator[str]:
    parsed = tree.parse(path)
    for found in find_imports(parsed, tree.package_of(path)) if parsed is not None else ():
        if found.form is ImportForm.STATIC and not found.condition:
            yield from _files(tree, found)


def _files(tree: SourceTree, found: Import) -> Iterator[str]:
    yield from _packages(tree, found.module)
    source, target = tree.path_of(found.module), tree.path_of(found.target)
    if source is not None:
        yield source
    # `from m import a` imports the module m.a only where m itself has no such name.
    if target is not None and (source is None or not _may_bind(tree, source, found.target)):
        yield target


def _may_bind(tree: SourceTree, path: str, target: str) -> bool:
    """Whether a file may give the last part of `target`, a name in it, to anything but the module of that name."""
    parsed, name = tree.parse(path), target.rpartition(".")[2]
    if parsed is None:
        return True
    for node in walk(parsed):
        match node:
            case ast.Name(id=bound, ctx=ast.Store()):
                names = {bound}
            case ast.Name(id=used):
                names = {name} if used in ("globals", "setattr", "vars") else set()
            case ast.FunctionDef(name=bound) | ast.AsyncFunctionDef(name=bound) | ast.ClassDef(name=bound):
                names = {bound, name if bound == "__getattr__" else bound}
            case _:
                continue
        if name in names:
            return True
    imports = find_imports(parsed, tree.package_of(path))
    return any(i.target != target and i.bound_at_top in (name, "*") for i in imports)


def _packages(tree: SourceTree, module: str) -> Iterator[str]:
    """The packages around a module."""
    parts = module.split(".")
    for number in range(1, len(parts)):
        path = tree.path_of(".".join(parts[:number]))
        if path is not None:
            yield path
