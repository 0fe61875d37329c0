"""The parts of a PTX module: functions with their statements, variables, line information."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from harness.audit.program import Problem, SourceLine, Space


class Name(NamedTuple):
    """A register, a variable, a label or a special register; resolved later, by scope."""

    text: str
    negated: bool = False


class Number(NamedTuple):
    """A literal; None is a decimal float."""

    value: int | None


class Vector(NamedTuple):
    """`{a, b, c}`."""

    items: tuple[Term, ...]


class Pair(NamedTuple):
    """`p|q`."""

    first: Term
    second: Term


class Memory(NamedTuple):
    """`[base+offset]`, or `[base, coordinates...]` of a tensor or texture."""

    base: Term | None
    offset: int
    others: tuple[Term, ...] = ()


class Arguments(NamedTuple):
    """`(a, b)` of a call."""

    items: tuple[Term, ...]


class Garbled(NamedTuple):
    """An operand that has none of these forms."""

    text: str


Term = Name | Number | Vector | Pair | Memory | Arguments | Garbled


@dataclass(slots=True)
class Scope:
    """A `{}` block: what is declared in it, by name, as unique names."""

    parent: Scope | None
    suffix: str
    names: dict[str, str] = field(default_factory=dict)
    families: dict[str, int] = field(default_factory=dict)
    """`%r<10>` as prefix and count."""
    labels: dict[str, str] = field(default_factory=dict)
    lists: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """`.branchtargets` and `.calltargets` by label."""

    def find_register(self, name: str) -> str | None:
        """The unique name of a declared register or variable; None when nothing declares it."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            head = name.rstrip("0123456789")
            count = scope.families.get(head)
            if count is not None and head != name and int(name[len(head) :]) < count:
                return name + scope.suffix
            scope = scope.parent
        return None

    def find_label(self, name: str) -> str | None:
        """The unique name of a label."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.labels:
                return scope.labels[name]
            scope = scope.parent
        return None

    def find_list(self, name: str) -> tuple[Scope, tuple[str, ...]] | None:
        """The labels of a branch table, and the scope to look them up in."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.lists:
                return scope, scope.lists[name]
            scope = scope.parent
        return None


class Statement(NamedTuple):
    """One instruction as written."""

    line: int
    text: str
    opcode: str
    guard: Name | None
    operands: tuple[Term, ...]
    scope: Scope
    source: SourceLine | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A variable or parameter."""

    name: str
    space: Space
    num_bytes: int | None
    element_bytes: int | None
    is_pointer: bool = False
    is_array: bool = False
    is_register: bool = False
    is_integer: bool = True
    line: int = 0


@dataclass(slots=True, kw_only=True)
class Function:
    """A `.entry` or a `.func` with a body."""

    name: str
    is_entry: bool
    line: int
    params: list[Declaration]
    returns: list[Declaration]
    scope: Scope
    body: list[Statement | Label] = field(default_factory=list)
    variables: list[Declaration] = field(default_factory=list)
    block_size: tuple[int, int, int] | None = None
    max_threads: int | None = None
    problems: list[Problem] = field(default_factory=list)


class Label(NamedTuple):
    """A place to branch to."""

    name: str
    line: int


@dataclass(slots=True, kw_only=True)
class Module:
    """One PTX file."""

    version: tuple[int, int] | None = None
    target: str = ""
    functions: dict[str, Function] = field(default_factory=dict)
    variables: list[Declaration] = field(default_factory=list)
    scope: Scope
    files: dict[int, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
