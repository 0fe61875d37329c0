"""What Python code does to things outside its own files, as read from its text."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from harness.model.record import Record


class EffectKind(StrEnum):
    """What is reached."""

    ATTRIBUTE = "attribute"
    """An attribute of an imported module, class or function is set, replaced or deleted."""
    SHARED_OBJECT = "shared_object"
    """An object that the engine hands out is changed: its configuration, its forward context."""
    CONTAINER = "container"
    """A list or dictionary of another module is changed."""
    MODULES = "modules"
    """How Python finds or holds modules: `sys.modules`, `sys.path`, import hooks, start-up files."""
    OPERATOR = "operator"
    """A `torch.library` operator is defined or gets an implementation."""
    REGISTRY = "registry"
    """A name is entered into a registry of another package."""
    ENTRY_POINT = "entry_point"
    """A distribution announces code that other packages load."""
    ENVIRONMENT = "environment"
    """An environment variable is written."""
    GLOBAL_SETTING = "global_setting"
    """A setting of the whole process: default dtype, backend flags, threads, seeds, warnings, hooks on all modules."""
    EXIT_HOOK = "exit_hook"
    """`atexit`."""
    SIGNAL = "signal"
    """A signal's handler or timer."""
    PROCESS = "process"
    """Another process is started, or the own one replaced."""
    NETWORK = "network"
    """A network connection, or a download."""
    FILES = "files"
    """Files are written while a module is imported."""
    DEVICE = "device"
    """A GPU is initialised, or a thread started, while a module is imported."""
    AT_IMPORT = "at_import"
    """An import that ends the process, waits, refuses by what the machine is, or calls others' code for its effect."""
    NATIVE_CODE = "native_code"
    """A library of machine code is loaded or built."""
    DYNAMIC_CODE = "dynamic_code"
    """Code that is not in the text: `exec`, pickles, modules loaded from a path."""
    BINARY = "binary"
    """A committed file of machine code, byte code or an archive of code."""
    UNREADABLE = "unreadable"
    """A file that cannot be parsed."""


class Effect(Record):
    """One reach outside, at one place."""

    path: str
    line: int
    end_line: int
    kind: EffectKind
    target: str
    """What is reached, as a dotted name or the text of the expression."""
    is_sure: bool = True
    """Whether the text says that it happens to that target; False where a value could be something else as well."""
    when: Literal["import", "call", "script"] = "call"
    """While the module is imported, when a function is called, or only when the file is run as a program."""
    function: str = ""
    """Qualified name of the function or class around it; empty at module level."""
    text: str = ""
    """The statement, on one line, cut to 160 characters."""
    key: str | None = None
    """The name that is registered; None where there is none, or none that can be read."""
    key_is_own: bool = False
    """Whether what identifies the entry is a class or function of the change itself, which nobody else can hold."""
    key_is_foreign: bool = False
    """Whether the entry is for a class, function or operator of others."""
    on_duplicate: Literal["keeps", "overwrites", "unknown"] = "unknown"
    """What happens when the name exists: the former entry stays (the call raises or does nothing), or it is lost."""
    removes: bool = False
    """Whether something is taken away or emptied."""
    is_guarded: bool = False
    """Whether it happens only where the name is found missing."""
    is_restored: bool = False
    """Whether a `finally` of the same function, or the end of a `with`, puts the former value back."""
    in_base: bool = False
    """Whether the file has the same at the merge base."""


class ReadFile(Record):
    """One file that was looked at."""

    path: str
    num_lines: int
    is_owned: bool


class FoundName(Record):
    """Where a name stands in other code."""

    place: str
    """`path:line`, the path relative to its source."""
    is_key: bool
    """Whether it is written like the key of an entry: before a colon, or as first argument of a registration."""


class NameSearch(Record):
    """A search for one name, in quotes, through the Python files of others."""

    name: str
    found: tuple[FoundName, ...]
    """The first 20 places."""
