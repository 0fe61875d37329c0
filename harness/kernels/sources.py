"""Which sources a process has run: what a record is of.

Imports the standard library alone, so that any interpreter that has the subject's DSL runs it.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from types import ModuleType

_JUDGE = Path(__file__).resolve().parents[1]


def imported_sources(folder: Path) -> dict[str, str]:
    """sha256 of each imported module's file below the folder, and of what lies in its package and is no code.

    Left out are the judge's own modules, and what an installer put there: a path with a hidden part or `site-packages`.
    """
    files = {Path(f) for module in [*sys.modules.values()] if (f := _file_of(module))}
    code = {file.resolve() for file in files if file.suffix == ".py" and file.is_file()}
    data = {
        file
        for parent in {file.parent for file in code if _is_of(file, folder)}
        if (parent / "__init__.py").is_file()
        for file in parent.iterdir()
        if file.suffix not in (".py", ".pyc") and file.is_file()
    }
    found = sorted(file for file in code | data if _is_of(file, folder))
    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in found
    }


def _file_of(module: object) -> str | None:
    """Read past the module's own attribute look-up, at which some load themselves."""
    # Not isinstance: libraries in C put objects there that call themselves modules and have no attributes of one.
    if not issubclass(type(module), ModuleType):
        return None
    attributes: dict[str, str | None] = object.__getattribute__(module, "__dict__")
    return attributes.get("__file__")


def _is_of(file: Path, folder: Path) -> bool:
    if not file.is_relative_to(folder) or file.is_relative_to(_JUDGE):
        return False
    parts = file.relative_to(folder).parts
    return "site-packages" not in parts and not any(part.startswith(".") for part in parts)
