"""How shared code and a change's own code reach each other, as read from the source text."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from harness.model.record import Record


class GuardState(StrEnum):
    """What a hunk of a hooked file does while the switch is off."""

    GUARDED = "guarded"
    """With the switch off, the file does what it did before."""
    UNGUARDED = "unguarded"
    """Lines run with the switch off that did not run before, or no longer run."""
    UNDECIDED = "undecided"
    """Whether they run hangs on something that cannot be read."""


class Hunk(Record):
    """Neighbouring lines of a hooked file that the change wrote or took away."""

    base_line: int
    """First line taken away, from 1; the line before, where none is."""
    num_base_lines: int
    head_line: int
    """First line written; the line before, where none is."""
    num_head_lines: int
    lines: tuple[str, ...]
    """As a diff shows them, `-` and `+` in front: untrusted text."""
    state: GuardState
    reason: str
    """Why it is unguarded or undecided, or what makes it harmless."""
    guards: tuple[str, ...] = ()
    """Conditions that keep its lines from running, with their line."""
    names_subject: bool
    """Whether it mentions the subject, or a name that only hooks and subject use."""


class HookedFile(Record):
    """One file in which the manifest declares a hook."""

    path: str
    status: Literal["changed", "unchanged", "missing"]
    hunks: tuple[Hunk, ...] = ()


class ImportForm(StrEnum):
    """How an import stands in the code."""

    STATIC = "static"
    """Runs when the module is imported."""
    CONDITIONAL = "conditional"
    """Runs when the module is imported and a condition holds."""
    LAZY = "lazy"
    """Runs when a function is called."""
    TYPES_ONLY = "types_only"
    """Below `TYPE_CHECKING`: never runs."""
    DYNAMIC = "dynamic"
    """By `importlib`, `__import__` or `sys.modules`."""
    NAMED = "named"
    """The module's name in a string, as a registry holds it."""


class InwardImport(Record):
    """One place in code outside the subject that imports or names the subject."""

    path: str
    line: int
    target: str
    """The module that is reached, or the name where it is had from a module outside the subject."""
    names: tuple[str, ...] = ()
    """What one statement takes from the module."""
    form: ImportForm
    condition: str = ""
    """The condition or function that the import stands in."""
    guards: tuple[str, ...] = ()
    """Conditions on the switch that keep it from running while the switch is off."""
    via: str = ""
    """The module outside the subject through which the name is had; empty when it is had directly."""
    is_new: bool
    """Whether the base has no such import in that file."""


class OwnImport(Record):
    """One use of the engine's code by the subject: an import, or a private name of an imported module."""

    path: str
    line: int
    target: str
    """Dotted name of the module and what is taken from it."""
    form: ImportForm
