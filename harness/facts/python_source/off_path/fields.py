"""Fields that a dataclass gains: which of them leave every other use of the class as it was.

`dataclasses` documentation: fields count in the order of the bases and of the body, so one that a base gains comes
before those of its subclasses; one without a default may not follow one with a default; a list, dict or set as a
default raises when the class is made.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from harness.facts.python_source.names import dotted
from harness.facts.python_source.off_path.bases import Bases
from harness.facts.python_source.tree import SourceTree
from harness.facts.python_source.walk import walk

_CONTAINERS = ("list", "dict", "set", "tuple", "frozenset")
_OPTIONS = ("default", "init", "repr", "hash", "compare", "kw_only")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """Judges a new field of a decorated class."""

    tree: SourceTree
    bases: Bases
    absolute: Callable[[ast.expr], str | None]
    """The dotted name of an expression of the file."""

    def why_matters(self, field: ast.AnnAssign, owner: ast.ClassDef, *, is_added: bool = True) -> str:
        """Why a field may change what others do with the class, or whether it can be made; empty when it cannot.

        `is_added`: the class was there before, so that others make objects of it and derive from it.
        """
        name, value = ast.unparse(field.target), field.value
        if "ClassVar" in (dotted(field.annotation) or ast.unparse(field.annotation)):
            return ""
        if value is None:
            return (
                f"{name} is a field without a default, which every use of {owner.name} must give" * is_added
            )
        if not _is_constant(value) and not self.is_field_call(value):
            return f"{name} has the default `{ast.unparse(value)[:40]}`, and whether a field may have it cannot be told"
        where = "" if not is_added or self._is_by_keyword(value, owner) else self._subclass(owner)
        return f"{name} comes before the fields of {where}, which derives from {owner.name}" if where else ""

    def is_field_call(self, value: ast.expr) -> bool:
        """Whether a value is `field(...)` with a default that neither fails nor does anything."""
        if not isinstance(value, ast.Call) or self.absolute(value.func) != "dataclasses.field" or value.args:
            return False
        given = {keyword.arg: keyword.value for keyword in value.keywords}
        made = given.pop("default_factory", None)
        is_made = isinstance(made, ast.Name) and self.absolute(made) in _CONTAINERS
        plain = all(name in _OPTIONS and _is_constant(v) for name, v in given.items())
        return plain and (is_made != ("default" in given)) and (made is None or is_made)

    def _is_by_keyword(self, value: ast.expr, owner: ast.ClassDef) -> bool:
        calls = [value, *owner.decorator_list]
        given = [
            k for call in calls if isinstance(call, ast.Call) for k in call.keywords if k.arg == "kw_only"
        ]
        return any(isinstance(k.value, ast.Constant) and k.value.value is True for k in given)

    def _subclass(self, owner: ast.ClassDef) -> str:
        """`Name (path:line)` of a class with fields of its own that derives from another, anywhere in the tree."""
        pending, seen = [owner.name], {owner.name}
        while pending:
            for path in self.tree.mentioning([pending.pop()]):
                for node in self._derived(path, owner):
                    if any(isinstance(statement, ast.AnnAssign) for statement in node.body):
                        return f"{node.name} ({path}:{node.lineno})"
                    pending += [node.name] if node.name not in seen else []
                    seen.add(node.name)
        return ""

    def _derived(self, path: str, owner: ast.ClassDef) -> Iterator[ast.ClassDef]:
        parsed = self.tree.parse(path)
        for node in walk(parsed) if parsed is not None else ():
            if isinstance(node, ast.ClassDef) and any(
                found is not None and (found.name, found.lineno) == (owner.name, owner.lineno)
                for _, found in self.bases.chain(path, node)
            ):
                yield node


def _is_constant(value: ast.expr) -> bool:
    match value:
        case ast.Constant():
            return True
        case ast.UnaryOp(operand=operand):
            return isinstance(operand, ast.Constant)
        case ast.Tuple(elts=parts):
            return all(map(_is_constant, parts))
    return False
