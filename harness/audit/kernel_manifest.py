"""What the manifest's section `[kernels]` says about a compiled kernel, as the rules take it."""

from __future__ import annotations

from fnmatch import fnmatchcase

from harness.audit.roles import AuditOptions, KernelOptions, parse_assignment
from harness.model.kernels import KernelEntry, KernelsSection


def declared_options(section: KernelsSection, entry: str, arch: str, variant: str) -> AuditOptions | None:
    """The facts for a compiled variant: those of all matching entries, later ones over earlier ones; None when no
    entry asks for it."""
    matching = [
        declared
        for declared in section.entries
        if declared.entry == entry and arch in declared.arches and fnmatchcase(variant, declared.variants)
    ]
    if not matching:
        return None
    return AuditOptions(entries=tuple((declared.kernels, _options(declared)) for declared in matching))


def _options(declared: KernelEntry) -> KernelOptions:
    return KernelOptions(
        roles={key: parse_assignment(role) for key, role in declared.roles.items()},
        launch=declared.launch,
        dependents=declared.dependents,
        block_size=_size(declared.block),
        grid=_size(declared.grid),
    )


def _size(given: tuple[int, ...]) -> tuple[int, int, int] | None:
    x, y, z = ([*given, 1, 1, 1])[:3]
    return (x, y, z) if given else None
