"""The catalogue: one folder a fault, with its description, its patch and its twin's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.config import load_fault, read_configuration
from harness.model.errors import ConfigurationError
from harness.model.selftest import FaultDescription

CATALOGUE = "fault_catalogue"
"""Folder at the top of the repository."""
DESCRIPTION = "fault.toml"
BASE = "base.patch"
"""Beside the edits where both need a tree that is not the checkout's: a kernel that is declared, a hook."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A faulty change, or the clean one beside it."""

    id: str
    fault: FaultDescription
    is_twin: bool
    edit: Path
    """A patch; where a bundle is tampered with, a program that is given the folders of bundle and repository."""
    base: Path | None = None
    """A patch that brings the tree into the state that the change is made on; None: it is so already."""

    @property
    def name(self) -> str:
        """How progress and folders call it."""
        return f"{self.id}-twin" if self.is_twin else self.id


def load_catalogue(folder: Path, only: Sequence[str] = ()) -> tuple[Case, ...]:
    """Every fault and twin, those of `only` alone where some are named.

    Raises:
        ConfigurationError: there is no catalogue, a folder of it is not whole, or a name is not in it.
    """
    folders = sorted(path.parent for path in folder.glob(f"*/{DESCRIPTION}"))
    if not folders:
        raise ConfigurationError(
            "no-catalogue",
            f"There are no faults in {folder}.",
            "The selftest runs in a checkout of fasttrack: go there, or name one with --repo.",
        )
    if unknown := sorted(set(only) - {path.name for path in folders}):
        known = ", ".join(path.name for path in folders)
        raise ConfigurationError(
            "unknown-fault", f"There is no fault {', '.join(unknown)}.", f"There are: {known}."
        )
    return tuple(case for path in folders if not only or path.name in only for case in _load_folder(path))


def _load_folder(folder: Path) -> tuple[Case, Case]:
    fault = load_fault(read_configuration(folder / DESCRIPTION, "fault"), f"{folder.name}/{DESCRIPTION}")
    suffix = "py" if fault.stage.is_tampering else "patch"
    edits = [folder / f"{name}.{suffix}" for name in ("fault", "twin")]
    if missing := [path.name for path in edits if not path.is_file()]:
        raise ConfigurationError(
            "bad-fault", f"{folder.name}: there is no {' and no '.join(missing)}.", "See docs/selftest.md."
        )
    base = folder / BASE if (folder / BASE).is_file() else None
    return (
        Case(id=folder.name, fault=fault, is_twin=False, edit=edits[0], base=base),
        Case(id=folder.name, fault=fault, is_twin=True, edit=edits[1], base=base),
    )
