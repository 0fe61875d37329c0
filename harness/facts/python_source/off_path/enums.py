"""Enumerations of the analysed files: their members by value and by name."""

from __future__ import annotations

import ast
from collections.abc import Hashable
from dataclasses import dataclass, field

from harness.facts.python_source.names import dotted
from harness.facts.python_source.off_path.scopes import Scopes
from harness.facts.python_source.off_path.values import Value, combine

_TEXT = (("enum.StrEnum",), ("str", "enum.Enum"))
_PLAIN = ("enum.Enum",)
_SPECIAL = ("__new__", "__init__", "__eq__", "__hash__", "__bool__", "_missing_")
"""Methods by which an enumeration gives something else than its members, or compares them otherwise."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member that equals nothing but itself."""

    owner: str
    value: Hashable


@dataclass(slots=True)
class Enums:
    """Reads the enumerations of one tree; members of strings are strings of a type of their own."""

    scopes: Scopes
    _members: dict[tuple[str, str], dict[str, Hashable] | None] = field(default_factory=dict)

    def by_value(self, path: str, callee: ast.expr, value: Value) -> Value | None:
        """What `Backend(value)` gives; None where that is no enumeration that can be read."""
        members = self._of(self.scopes.absolute(path, callee), path)
        if members is None:
            return None
        known_by = {_value_of(member): member for member in members.values()}
        return combine(lambda given: known_by[_value_of(given)], value)

    def by_name(self, path: str, node: ast.Attribute) -> Hashable | None:
        """The member that `Backend.FAST` is; None where it is none."""
        members = self._of(self.scopes.absolute(path, node.value), path)
        return members.get(node.attr) if members is not None else None

    def _of(self, name: str | None, path: str) -> dict[str, Hashable] | None:
        """The members of the enumeration of a dotted name, as a file means it."""
        module, _, last = (name or "").rpartition(".")
        owner = self.scopes.tree.path_of(module) if module else path
        if owner is None or not last or self.scopes.is_rebound(owner, last):
            return None
        if (owner, last) not in self._members:
            found = [node for place, node in self.scopes.classes.get(last, ()) if place == owner]
            self._members[owner, last] = self._read(owner, found[0]) if len(found) == 1 else None
        return self._members[owner, last]

    def _read(self, path: str, node: ast.ClassDef) -> dict[str, Hashable] | None:
        bases = tuple(self.scopes.absolute(path, base) for base in node.bases)
        if node.keywords or any(dotted(d) != "enum.unique" for d in node.decorator_list):
            return None
        if bases not in _TEXT and bases != _PLAIN:
            return None
        text_type = type(f"{path}:{node.name}", (str,), {})
        members: dict[str, Hashable] = {}
        for statement in node.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(value))):
                    members[name] = text_type(value) if bases in _TEXT else Member(node.name, value)
                case ast.FunctionDef(name=name) if name not in _SPECIAL:
                    continue
                case ast.Expr(value=ast.Constant()) | ast.Pass():
                    continue
                case _:
                    return None
        return members


def value_of_member(value: Value) -> Value | None:
    """What `.value` of members gives; None where it is asked of something else."""
    constants = [constant for _, constant in value.constants or ()]
    are_members = constants and all(isinstance(c, Member) or ":" in type(c).__name__ for c in constants)
    return combine(_value_of, value) if are_members else None


def _value_of(member: object) -> Hashable:
    """The value of a member, and any other value as it is."""
    if isinstance(member, Member):
        return member.value
    assert isinstance(member, Hashable)
    return str(member) if isinstance(member, str) else member
