"""The manifest's section `[kernels]`: which entry points the audit compiles, and what their arguments are.

```toml
[kernels]
import_roots = ["src"]

[[kernels.entries]]
entry = "package.module:function"
arches = ["sm_103a"]
variants = "batch=1 *"
launch = "pdl"
dependents = "wait"
roles = { 0 = "activation", 1 = "static", 2 = "mailbox:sys" }
```
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Literal

from pydantic import Field, field_validator

from harness.audit.roles import AuditOptions, Dependents, KernelOptions, Launch, parse_assignment
from harness.model.errors import ConfigurationError
from harness.model.record import Record

Arch = Literal["sm_90a", "sm_100a", "sm_103a"]
"""Architectures that the audit knows in SASS."""
ARCHES: tuple[Arch, ...] = ("sm_90a", "sm_100a", "sm_103a")


class KernelEntry(Record):
    """One entry point (or some of its variants), and what the grids around each kernel make of its arguments."""

    entry: str = Field(pattern=r"^[\w.]+:[\w.]+$")
    """`module:function`, a function without arguments."""
    arches: tuple[Arch, ...] = Field(default=ARCHES, min_length=1)
    variants: str = "*"
    """Glob over the names of the variants that the entry point yields."""
    kernels: str = "*"
    """Glob over the kernels' own names, for an entry point that compiles several."""
    launch: Launch = Launch.UNKNOWN
    dependents: Dependents = Dependents.UNKNOWN
    block: tuple[int, ...] = Field(default=(), max_length=3)
    """Threads of a CTA, where the kernel does not fix them."""
    roles: dict[str, str] = Field(default_factory=dict)
    """Role by parameter: its number or name, with `+N` for a field and a leading `*` for what it points to."""
    why: dict[str, str] = Field(default_factory=dict)
    """For a reviewer: what makes a role true, by the same keys."""

    @field_validator("roles")
    @classmethod
    def _roles_are_known(cls, roles: dict[str, str]) -> dict[str, str]:
        for key, role in roles.items():
            try:
                parse_assignment(role)
            except ConfigurationError as error:
                raise ValueError(f"{key}: {error.message}") from error
        return roles

    def options(self) -> AuditOptions:
        """The entry's facts as the rules take them."""
        x, y, z = ([*self.block, 1, 1, 1])[:3]
        facts = KernelOptions(
            roles={key: parse_assignment(role) for key, role in self.roles.items()},
            launch=self.launch,
            dependents=self.dependents,
            block_size=(x, y, z) if self.block else None,
        )
        return AuditOptions(entries=((self.kernels, facts),))


class KernelsSection(Record):
    """Which kernels of the change are audited."""

    import_roots: tuple[str, ...] = ()
    """Folders, relative to the manifest, from which entry points are imported."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Environment variables of the compiling process."""
    entries: tuple[KernelEntry, ...] = ()

    def requests(self) -> tuple[tuple[str, str], ...]:
        """Each entry point and architecture to compile, once."""
        found = [(entry.entry, arch) for entry in self.entries for arch in entry.arches]
        return tuple(dict.fromkeys(found))

    def options_of(self, entry: str, arch: str, variant: str) -> AuditOptions | None:
        """The facts for a compiled variant: those of all matching entries, later ones over earlier ones; None when
        no entry asks for it."""
        matching = [
            e
            for e in self.entries
            if e.entry == entry and arch in e.arches and fnmatchcase(variant, e.variants)
        ]
        if not matching:
            return None
        return AuditOptions(entries=tuple(pair for e in matching for pair in e.options().entries))
