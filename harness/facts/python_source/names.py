"""Dotted names: of files, of relative imports, of expressions."""

from __future__ import annotations

import ast
from collections.abc import Collection


def module_name(path: str) -> str:
    """The dotted name of a file below the folder that is imported from: `a/b/__init__.py` is `a.b`."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def package_of(module: str, *, is_package: bool) -> str:
    """The package that a module's relative imports start from."""
    return module if is_package else module.rpartition(".")[0]


def resolve_relative(package: str, level: int, module: str | None) -> str | None:
    """The absolute name that `from {level dots}{module} import …` means in `package`.

    None when the dots lead out of the outermost package.
    """
    if level == 0:
        return module or ""
    parts = package.split(".") if package else []
    if level - 1 >= len(parts):
        return None
    base = ".".join(parts[: len(parts) - (level - 1)])
    return f"{base}.{module}" if module else base


def dotted(node: ast.expr) -> str | None:
    """`a.b.c` of a name or a chain of attributes of a name; None for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def is_below(module: str, roots: Collection[str]) -> bool:
    """Whether a module is one of `roots` or lies in one of them."""
    return any(module == root or module.startswith(f"{root}.") for root in roots)
