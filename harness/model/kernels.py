"""The manifest's section `[kernels]`: how the kernels of a change are compiled without a GPU, and what each argument
is to the grids around its kernel."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from harness.model.record import Record

Arch = Literal["sm_90a", "sm_100a", "sm_103a"]
"""Architectures whose machine code the audit reads."""
ARCHES: tuple[Arch, ...] = ("sm_90a", "sm_100a", "sm_103a")


class Role(StrEnum):
    """What the memory behind an argument is."""

    STATIC = "static"
    """Written before the first launch and never again: weights, tables."""
    ACTIVATION = "activation"
    """Written by the grid before. Arguments that nobody names are taken as this."""
    STATE = "state"
    """Read and written from step to step."""
    MAILBOX = "mailbox"
    """Carries its own readiness: readers spin on the data itself."""
    OUTPUT = "output"
    """Written here for the grids after."""
    SCRATCH = "scratch"
    """Used within this grid only."""
    SETTLED = "settled"
    """No grid that may still run when this one starts reads or writes it: every earlier use lies two or more launches
    back, in a chain whose grids trigger after their own wait, or before a grid that waited for it."""

    @property
    def reads_need_wait(self) -> bool:
        """Whether a read is in order only after the wait."""
        return self not in (Role.STATIC, Role.MAILBOX, Role.SETTLED)

    @property
    def writes_need_wait(self) -> bool:
        """Whether a grid before may still read or write what a write would change."""
        return self not in (Role.MAILBOX, Role.SETTLED)

    @property
    def is_read_by_dependents(self) -> bool:
        """Whether grids after may read what is written here without another sign of readiness."""
        return self not in (Role.MAILBOX, Role.SCRATCH)


class Launch(StrEnum):
    """How the kernel is launched."""

    UNKNOWN = "unknown"
    """A kernel with `griddepcontrol` is taken as launched with the attribute, another one as not."""
    PDL = "pdl"
    PLAIN = "plain"
    """Without programmatic stream serialisation: the grid starts when the grids before have completed."""


class Dependents(StrEnum):
    """What the grids launched after do before they read."""

    UNKNOWN = "unknown"
    WAIT = "wait"
    """Each reads this kernel's results after its own `griddepcontrol.wait` only."""


RoleText = Literal[
    "static",
    "activation",
    "state",
    "mailbox",
    "mailbox:sys",
    "mailbox:rearmed",
    "mailbox:sys:rearmed",
    "output",
    "scratch",
    "settled",
]
"""A role; `:sys` says that other GPUs write the mailbox, `:rearmed` that another kernel arms it again."""


FunctionName = Annotated[str, Field(pattern=r"^[\w.]+:[\w.]+$")]
"""`module:function`, a function without arguments."""


class KernelEntry(Record):
    """One entry point (or some of its variants), and what the grids around each kernel make of its arguments."""

    entry: str = Field(pattern=r"^[\w.]+:[\w.]+$")
    """`module:function`, a function without arguments."""
    arches: tuple[Arch, ...] = ARCHES
    variants: str = "*"
    """Glob over the names of the variants that the entry point yields."""
    kernels: str = "*"
    """Glob over the kernels' own names, for an entry point that compiles several."""
    launch: Launch = Launch.UNKNOWN
    dependents: Dependents = Dependents.UNKNOWN
    block: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(), max_length=3)
    """Threads of a CTA, where the kernel does not fix them."""
    grid: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(), max_length=3)
    """CTAs of the launch, where every launch of the variant has as many."""
    roles: dict[str, RoleText] = Field(default_factory=dict)
    """Role by parameter: its number or name, with `+N` for a field and a leading `*` for what it points to. `@0x...`
    stands for an address that is a number in the compiled kernel, `constants` for all such."""
    why: dict[str, str] = Field(default_factory=dict)
    """For a reviewer: what makes a role true, by the same keys."""


class KernelsSection(Record):
    """Which kernels of the change are compiled and audited."""

    import_roots: tuple[str, ...] = ()
    """Folders, relative to the manifest, from which entry points are imported; they come before `--import-root`."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Environment variables of the compiling process."""
    entries: tuple[KernelEntry, ...] = ()
    inventory: FunctionName | None = None
    """Gives every variant: objects with `name`, `operator`, `family`, `rank_shape`, `batches`, `roles`, `launch`,
    `dependents` and `allowed_spill_bytes`."""
    launches: FunctionName | None = None
    """Gives the number of launches of each variant in this process, by name."""
    benchmarks: FunctionName | None = None
    """Gives the cells to time: objects with `name`, `family`, `operator`, `rank_shape`, `batch`, `bytes_moved` and
    `prepare()`."""
    tuning: FunctionName | None = None
    """Gives an object with `tasks()` and `save(choices, fitted)`."""
    tests: tuple[str, ...] = ()
    """Files and folders of pytest tests of the kernels, relative to the manifest."""

    def requests(self) -> tuple[tuple[str, Arch], ...]:
        """Each entry point and architecture to compile, once."""
        found = [(entry.entry, arch) for entry in self.entries for arch in entry.arches]
        return tuple(dict.fromkeys(found))


class KernelsFile(Record):
    """A manifest of kernels alone, for an audit of what nobody asks to be admitted."""

    schema_version: Literal[1]
    kernels: KernelsSection
