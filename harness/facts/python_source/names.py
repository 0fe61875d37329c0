"""Dotted names: of files, of relative imports, of expressions."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable

_MODULE_FILE = re.compile(r"(?P<module>(?:.*/)?[^/.]+)(?:\.py|(?:\.[^/]+)?\.(?:so|pyd))")
"""A module's text, or machine code with or without the name of what it is built for (`m.cpython-311-….so`)."""


def module_name(path: str) -> str:
    """The dotted name of a file below the folder that is imported from: `a/b/__init__.py` is `a.b`."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def files_of_modules(paths: Iterable[str]) -> dict[str, list[str]]:
    """By folder and name of a module the files that Python may take for it: its text, machine code, a package."""
    found: dict[str, list[str]] = {}
    for path in paths:
        if match := _MODULE_FILE.fullmatch(path):
            found.setdefault(match["module"].removesuffix("/__init__"), []).append(path)
    return found


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
