"""Where the program that is left with the switch off differs from the one before the change."""

from __future__ import annotations

import ast
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from harness.facts.python_source.off_path.alignment import Definition, aligned, blocks_of, shell
from harness.facts.python_source.off_path.bases import members_of
from harness.facts.python_source.off_path.bindings import FunctionNode
from harness.facts.python_source.off_path.function_scope import FunctionScope, scope_of, why_scope_differs
from harness.facts.python_source.off_path.new_code import NewCode, Place
from harness.facts.python_source.off_path.residue import inner_blocks, tidy
from harness.facts.python_source.off_path.signatures import new_parameters, why_signature_differs

_MOVED = "stands at another place among what runs with the switch off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Lines that run, or ran, with the switch off and are not the same before and after."""

    first_line: int
    last_line: int
    is_base: bool
    """Whether the lines are those of the base."""
    is_decided: bool
    reason: str


@dataclass(slots=True)
class Comparison:
    """Compares what is left of two versions of a file: node for node, in order, but for some additions."""

    new_code: NewCode
    differences: list[Difference] = field(default_factory=list)

    def modules(self, base: ast.Module | None, head: ast.Module | None) -> list[Difference]:
        """The differences between two versions; a version that is not there is empty."""
        place = Place(names=self.new_code.old_names)
        self._blocks(base.body if base else [], head.body if head else [], place)
        return self.differences

    def _blocks(self, base: Sequence[ast.stmt], head: Sequence[ast.stmt], place: Place) -> None:
        pairs = list(aligned(_merged(_single(base), place.shared), _merged(_single(head), place.shared)))
        lost = {_identity(old): old for old, new, _ in pairs if old is not None and new is None}
        values = [i for i, (old, *_) in enumerate(pairs) if isinstance(old, ast.Assign | ast.AnnAssign)]
        for index, (old, new, is_same) in enumerate(pairs):
            if new is None:
                continue
            if old is None and (old := lost.pop(_identity(new), None)) is not None:
                self._add(new, _MOVED, header_only=True, taint=_MOVED)
            if old is None:
                self._gained(new, replace(place, is_followed=any(i > index for i in values)))
            elif is_same:
                for before, after in zip(_functions_in([old]), _functions_in([new]), strict=True):
                    self._scope(before, after)
            else:
                self._pair(old, new, place)
        for old in lost.values():
            self._add(old, _why_gone(old), is_base=True)

    def _pair(self, old: ast.stmt, new: ast.stmt, place: Place) -> None:
        """Two versions of one statement."""
        if isinstance(old, FunctionNode) and isinstance(new, FunctionNode):
            self._function(old, new, place)
        elif isinstance(old, ast.ClassDef) and isinstance(new, ast.ClassDef):
            for reason, is_sure in self.new_code.why_class_matters(old, new):
                self._add(new, reason, header_only=True, taint="" if is_sure else reason)
            self._blocks(old.body, new.body, Place(names=members_of(old), owner=new))
        elif any(blocks_of(new)):
            if shell(old) != shell(new):
                self._add(new, "is another one with the switch off", header_only=True)
                self._add(old, "was another one", header_only=True, is_base=True)
            nothing: list[ast.stmt] = []
            for ours, theirs in zip_longest(blocks_of(old), blocks_of(new), fillvalue=nothing):
                self._blocks(ours, theirs, place)

    def _function(self, old: FunctionNode, new: FunctionNode, around: Place) -> None:
        is_plain = around.owner is not None and not around.owner.decorator_list
        for reason, is_sure in why_signature_differs(old, new, is_plain_method=is_plain):
            self._add(new, reason, header_only=True, taint="" if is_sure else reason)
        for name in new_parameters(old, new):
            if self.new_code.is_asked_for(name):
                where = self.new_code.where_known(name)
                reason = f"{name} is a parameter that shared code may ask signatures for ({where})"
                self._add(new, reason, header_only=True, taint=reason)
        before, after = self._scope(old, new)
        names = before.used | (after.declared.keys() & set(self.new_code.old_names))
        head, doubts = self.new_code.options.without_defaults(new.body, self.new_code.changed_lines)
        for call, reason in doubts:
            self._add(call, reason, taint=reason)
        place = Place(names=names, is_function=True, shared=before.shared | after.shared)
        self._blocks(tidy(list(old.body)), tidy(head), place)

    def _scope(self, old: FunctionNode, new: FunctionNode) -> tuple[FunctionScope, FunctionScope]:
        """The scopes of two versions of a function as written, dead code included."""
        before, after = scope_of(_as_written(old)), scope_of(_as_written(new))
        for node, reason in why_scope_differs(before, after, new):
            self._add(node, reason, header_only=True)
        return before, after

    def _gained(self, node: ast.stmt, place: Place) -> None:
        reason = self.new_code.why_matters(node, place)
        if reason is None and not getattr(node, "undecided", ""):
            return
        text, is_sure = reason or ("", False)
        if is_sure and not isinstance(node, Definition):
            self._added(node, text)
        else:
            self._add(node, text, taint="" if is_sure else text)

    def _added(self, statement: ast.stmt, reason: str) -> None:
        """A new statement: its own lines, and those of its contents one by one."""
        blocks = [s for block in inner_blocks(statement) for s in block]
        self._add(statement, reason, header_only=bool(blocks))
        for inner in blocks:
            if not isinstance(inner, ast.Pass):
                self._added(inner, reason)

    def _add(
        self,
        node: ast.AST,
        reason: str,
        *,
        header_only: bool = False,
        is_base: bool = False,
        taint: str = "",
    ) -> None:
        taint = getattr(node, "undecided", "") or taint
        line: int = getattr(node, "lineno", 1)
        decorators: list[ast.expr] = getattr(node, "decorator_list", [])
        first = min([line, *(d.lineno for d in decorators)])
        last = getattr(node, "end_lineno", None) or line
        blocks = inner_blocks(node) if isinstance(node, ast.stmt) else ()
        inner = [s.lineno for block in blocks for s in block if hasattr(s, "lineno")]
        if header_only and inner:
            last = max(first, min(inner) - 1) if min(inner) > line else line
        self.differences.append(
            Difference(
                first_line=first,
                last_line=last,
                is_base=is_base,
                is_decided=not taint,
                reason=taint or reason,
            )
        )


def _single(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Statements without `pass`, and every imported name as an import of its own."""
    found: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            found += _aliases(statement)
        elif not isinstance(statement, ast.Pass):
            found.append(statement)
    return found


def _merged(body: list[ast.stmt], shared: Collection[str]) -> list[ast.stmt]:
    """`x = e; return x` as `return e`, where nobody else sees x."""
    merged: list[ast.stmt] = []
    for statement in body:
        before = merged[-1] if merged else None
        if (
            isinstance(statement, ast.Return)
            and isinstance(statement.value, ast.Name)
            and isinstance(before, ast.Assign)
            and len(before.targets) == 1
            and isinstance(before.targets[0], ast.Name)
            and before.targets[0].id == statement.value.id
            and statement.value.id not in shared
        ):
            joined = ast.copy_location(ast.Return(value=before.value), before)
            joined.end_lineno = statement.end_lineno
            joined.undecided = getattr(before, "undecided", "")  # type: ignore[attr-defined]
            merged[-1] = joined
        else:
            merged.append(statement)
    return merged


def _identity(statement: ast.stmt) -> Hashable:
    """What makes a statement the same one at another place; nothing but itself for most."""
    if isinstance(statement, Definition):
        return type(statement), statement.name
    return ast.unparse(statement) if isinstance(statement, ast.Import | ast.ImportFrom) else id(statement)


def _why_gone(statement: ast.stmt) -> str:
    if isinstance(statement, Definition):
        return f"{statement.name} is gone"
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return f"`{ast.unparse(statement)}` is not imported any more"
    return "ran with the switch off before and does not now"


def _aliases(node: ast.Import | ast.ImportFrom) -> Iterator[ast.stmt]:
    for alias in node.names:
        single: ast.Import | ast.ImportFrom
        if isinstance(node, ast.Import):
            single = ast.Import(names=[alias])
        else:
            single = ast.ImportFrom(module=node.module, names=[alias], level=node.level)
        ast.copy_location(single, alias)
        single.undecided = getattr(node, "undecided", "")  # type: ignore[union-attr]
        yield single


def _functions_in(body: Sequence[ast.stmt]) -> Iterator[FunctionNode]:
    for statement in body:
        if isinstance(statement, FunctionNode):
            yield statement
        for block in blocks_of(statement):
            yield from _functions_in(block)


def _as_written(function: FunctionNode) -> FunctionNode:
    """The function before anything was dropped from it."""
    written: FunctionNode = getattr(function, "as_written", function)
    return written
