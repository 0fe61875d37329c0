"""What a kernel's arguments are to the grids around it, and how the kernel is launched: the audit's only inputs
besides the text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from harness.audit.forms import Source, SourceKind
from harness.model.errors import ConfigurationError
from harness.model.kernels import Dependents, Launch, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The role of one argument, with what qualifies it."""

    role: Role
    is_system_wide: bool = False
    """A mailbox that other GPUs write."""
    is_rearmed_elsewhere: bool = False
    """A mailbox that another kernel arms again."""
    is_default: bool = False
    """Nobody named the argument."""


DEFAULT = Assignment(role=Role.ACTIVATION, is_default=True)
_QUALIFIERS = ("sys", "rearmed")


def parse_assignment(text: str) -> Assignment:
    """`role`, or `mailbox` with `:sys`, `:rearmed`."""
    name, *qualifiers = text.strip().split(":")
    wrong = [q for q in qualifiers if q not in _QUALIFIERS]
    if name not in [r.value for r in Role] or wrong or (qualifiers and name != Role.MAILBOX):
        known = ", ".join(r.value for r in Role)
        raise ConfigurationError(
            "unknown-role",
            f"roles: got {text!r}, expected one of {known}; a mailbox may have ':sys' and ':rearmed'",
        )
    return Assignment(
        role=Role(name), is_system_wide="sys" in qualifiers, is_rearmed_elsewhere="rearmed" in qualifiers
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelOptions:
    """What the user says about one kernel."""

    roles: Mapping[str, Assignment] = field(default_factory=dict)
    """By parameter: its name or its number, `+N` for a field N bytes in, a leading `*` for what a pointer stored
    there points to. Module variables go by their name, addresses that are numbers in the text by `@0x...`, all of
    them by `constants`."""
    launch: Launch = Launch.UNKNOWN
    dependents: Dependents = Dependents.UNKNOWN
    block_size: tuple[int, int, int] | None = None
    grid: tuple[int, int, int] | None = None
    """CTAs of the launch, an axis each, where every launch of the kernel has as many."""

    def shortened(self, kernel: str) -> KernelOptions:
        """The same with parameters by the names that messages use: without the kernel's name in front."""
        roles = {key.replace(f"{kernel}_", "", 1): role for key, role in self.roles.items()}
        return replace(self, roles=roles)

    def role_of(self, source: Source, constant: int | None) -> Assignment:
        """The role of the memory that an address from `source` reaches; `constant` is added to the address."""
        for key in _keys_of(source, constant):
            if key in self.roles:
                return self.roles[key]
        if source.kind is SourceKind.CONSTANT:
            return next(
                (role for key, role in self.roles.items() if _is_lower_half(key, source.name)), DEFAULT
            )
        return DEFAULT


def _is_lower_half(key: str, name: str) -> bool:
    """Whether machine code, which has a number's lower half only, names the address of a role's key."""
    try:
        return key.startswith("@") and int(key[1:], 0) & 0xFFFFFFFF == int(name, 0)
    except ValueError:
        return False


def _keys_of(source: Source, constant: int | None) -> list[str]:
    """Names under which a role may be given, the most exact first."""
    if source.kind is SourceKind.LOADED and source.parent is not None:
        return [f"*{key}" for key in _keys_of(source.parent, None)]
    if source.kind is SourceKind.CONSTANT:
        return [f"@{source.name}", "constants"]
    if source.param < 0:
        return [source.name]
    place = constant if source.kind is SourceKind.PARAM_ADDRESS else source.offset
    stems = (source.name, str(source.param))
    exact = [f"{stem}+{place}" for stem in stems] if place is not None else []
    return [*exact, *stems]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """What the user says about all kernels: entries with a glob of kernel names, later ones override."""

    entries: tuple[tuple[str, KernelOptions], ...] = ()

    def for_kernel(self, name: str) -> KernelOptions:
        """The options of one kernel."""
        roles: dict[str, Assignment] = {}
        launch, dependents, block, grid = Launch.UNKNOWN, Dependents.UNKNOWN, None, None
        for pattern, entry in self.entries:
            if not fnmatchcase(name, pattern):
                continue
            roles.update(entry.roles)
            launch = entry.launch if entry.launch is not Launch.UNKNOWN else launch
            dependents = entry.dependents if entry.dependents is not Dependents.UNKNOWN else dependents
            block = entry.block_size or block
            grid = entry.grid or grid
        return KernelOptions(roles=roles, launch=launch, dependents=dependents, block_size=block, grid=grid)

    def with_roles(self, texts: list[str]) -> AuditOptions:
        """The same with `NAME=ROLE` or `KERNEL_GLOB/NAME=ROLE` from the command line."""
        added = []
        for text in texts:
            name, equals, role = text.partition("=")
            if not equals or not name.strip():
                raise ConfigurationError("bad-role", f"--role: got {text!r}, expected NAME=ROLE")
            pattern, slash, param = name.rpartition("/")
            entry = KernelOptions(roles={param.strip(): parse_assignment(role)})
            added.append((pattern if slash else "*", entry))
        return AuditOptions(entries=(*self.entries, *added))


def parse_options(data: Any) -> AuditOptions:
    """Options from JSON or TOML: `roles`, `launch`, `dependents`, `block`, `grid` for all kernels, `kernels` by name.

    A table whose values are all strings and whose keys are none of these is read as `roles`.
    """
    if not isinstance(data, Mapping):
        raise ConfigurationError("bad-options", f"options: got {type(data).__name__}, expected a table")
    known = {"roles", "launch", "dependents", "block", "grid", "kernels"}
    if data and not known & set(data):
        data = {"roles": data}
    wrong = sorted(set(map(str, data)) - known)
    if wrong:
        raise ConfigurationError("bad-options", f"options: got {wrong}, expected {sorted(known)}")
    entries = [("*", _parse_kernel("", {k: v for k, v in data.items() if k != "kernels"}))]
    kernels = data.get("kernels", {})
    if not isinstance(kernels, Mapping):
        raise ConfigurationError("bad-options", "kernels: expected a table by kernel name")
    entries += [(str(pattern), _parse_kernel(str(pattern), entry)) for pattern, entry in kernels.items()]
    return AuditOptions(entries=tuple(entries))


def _parse_kernel(where: str, data: Any) -> KernelOptions:
    allowed = {"roles", "launch", "dependents", "block", "grid"}
    if not isinstance(data, Mapping) or not set(data) <= allowed:
        raise ConfigurationError("bad-options", f"kernels.{where}: expected a table of {sorted(allowed)}")
    roles = data.get("roles", {})
    if not isinstance(roles, Mapping) or not all(isinstance(v, str) for v in roles.values()):
        raise ConfigurationError("bad-options", f"{where or 'options'}.roles: expected a table of role names")
    try:
        launch = Launch(data.get("launch", Launch.UNKNOWN))
        dependents = Dependents(data.get("dependents", Dependents.UNKNOWN))
        block, grid = (_parse_size(name, data.get(name)) for name in ("block", "grid"))
    except ValueError as error:
        raise ConfigurationError("bad-options", f"{where or 'options'}: {error}") from error
    return KernelOptions(
        roles={str(k): parse_assignment(v) for k, v in roles.items()},
        launch=launch,
        dependents=dependents,
        block_size=block,
        grid=grid,
    )


def _parse_size(name: str, given: Any) -> tuple[int, int, int] | None:
    if given is None:
        return None
    sizes = [given] if isinstance(given, int) else given
    if not isinstance(sizes, list | tuple) or not 1 <= len(sizes) <= 3:
        raise ValueError(f"{name}: got {given!r}, expected up to three integers")
    if not all(isinstance(s, int) and s > 0 for s in sizes):
        raise ValueError(f"{name}: got {given!r}, expected positive integers")
    x, y, z = ([*sizes, 1, 1])[:3]
    return (x, y, z)
