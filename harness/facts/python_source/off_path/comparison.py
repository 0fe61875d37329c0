"""Where the program that is left with the switch off differs from the one before the change."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from harness.facts.python_source.off_path.new_code import NewCode
from harness.facts.python_source.off_path.residue import inner_blocks, tidy
from harness.facts.python_source.off_path.scopes import FunctionNode

Definition = FunctionNode | ast.ClassDef
_HEADERS = {
    ast.If: ("test",),
    ast.While: ("test",),
    ast.For: ("target", "iter"),
    ast.AsyncFor: ("target", "iter"),
    ast.With: ("items",),
    ast.AsyncWith: ("items",),
    ast.Match: ("subject",),
    ast.Try: (),
    ast.TryStar: (),
}
"""What two compound statements must share to be the same one with other contents."""


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
    """Compares what is left of two versions of a file."""

    new_code: NewCode
    differences: list[Difference] = field(default_factory=list)

    def modules(self, base: ast.Module | None, head: ast.Module | None) -> list[Difference]:
        """The differences between two versions; a version that is not there is empty."""
        self._blocks(base.body if base else [], head.body if head else [], prefix="", in_function=False)
        return self.differences

    def _blocks(
        self,
        base: Sequence[ast.stmt],
        head: Sequence[ast.stmt],
        *,
        prefix: str,
        in_function: bool,
        owner: ast.ClassDef | None = None,
    ) -> None:
        self._imports(base, head)
        self._definitions(base, head, owner, prefix=prefix, in_function=in_function)
        old, new = _merged(_plain(base)), _merged(_plain(head))
        matcher = SequenceMatcher(None, [_dump(s) for s in old], [_dump(s) for s in new], autojunk=False)
        for kind, i1, i2, j1, j2 in matcher.get_opcodes():
            if kind != "equal":
                self._statements(old[i1:i2], new[j1:j2], prefix=prefix, in_function=in_function)

    def _statements(
        self, base: list[ast.stmt], head: list[ast.stmt], *, prefix: str, in_function: bool
    ) -> None:
        """Statements of which none is the same: compound ones may be the same with other contents."""
        for same_header in (True, False):
            for new in list(head):
                old = next((o for o in base if _is_version_of(o, new, same_header=same_header)), None)
                if old is None:
                    continue
                base.remove(old)
                head.remove(new)
                if not same_header:
                    self._header(old, new)
                for ours, theirs in zip(_all_blocks(old), _all_blocks(new), strict=False):
                    self._blocks(ours, theirs, prefix=prefix, in_function=in_function)
        for new in head:
            if not self.new_code.is_inert(new):
                self._added(new)
        for old in base:
            self._add(old, "ran with the switch off before and does not now", is_base=True)

    def _imports(self, base: Sequence[ast.stmt], head: Sequence[ast.stmt]) -> None:
        old = {text: node for node in base for text, _ in _aliases(node)}
        new = {text for node in head for text, _ in _aliases(node)}
        for node in head:
            for text, single in _aliases(node):
                if text not in old and (reason := self.new_code.why_import_matters(single)):
                    self._add(single, reason)
        for text, node in old.items():
            if text not in new:
                self._add(node, f"`{text}` is not imported any more", is_base=True)

    def _definitions(
        self,
        base: Sequence[ast.stmt],
        head: Sequence[ast.stmt],
        owner: ast.ClassDef | None,
        *,
        prefix: str,
        in_function: bool,
    ) -> None:
        old, new = _by_name(base), _by_name(head)
        for key, node in new.items():
            qualname = prefix + node.name
            if key not in old:
                reason, is_sure = self.new_code.why_definition_matters(node, owner, in_function=in_function)
                if reason:
                    self._add(node, reason, taint="" if is_sure else reason)
                continue
            self._definition(old[key], node, qualname)
        for key, node in old.items():
            if key not in new:
                self._add(node, f"{node.name} is gone", is_base=True)

    def _definition(self, old: Definition, new: Definition, qualname: str) -> None:
        if isinstance(old, ast.ClassDef) or isinstance(new, ast.ClassDef):
            if isinstance(old, ast.ClassDef) and isinstance(new, ast.ClassDef):
                for reason in self.new_code.why_bases_matter(old, new):
                    self._add(new, reason, header_only=True)
                self._blocks(old.body, new.body, prefix=f"{qualname}.", in_function=False, owner=new)
            return
        if _signature(old) != _signature(self.new_code.without_new_options(old, new)):
            self._add(new, "the signature is another one", header_only=True)
        head_body = tidy(self.new_code.without_defaults(new.body))
        self._blocks(tidy(list(old.body)), head_body, prefix=f"{qualname}.<locals>.", in_function=True)

    def _added(self, statement: ast.stmt) -> None:
        """A new statement: its own lines, and those of its contents one by one."""
        blocks = [s for block in inner_blocks(statement) for s in block]
        self._add(statement, "runs with the switch off", header_only=bool(blocks))
        for inner in blocks:
            if not isinstance(inner, ast.Pass):
                self._added(inner)

    def _header(self, old: ast.stmt, new: ast.stmt) -> None:
        self._add(new, "is another condition with the switch off", header_only=True)
        self._add(old, "was another condition", header_only=True, is_base=True)

    def _add(
        self,
        node: ast.stmt,
        reason: str,
        *,
        header_only: bool = False,
        is_base: bool = False,
        taint: str = "",
    ) -> None:
        taint = taint or getattr(node, "undecided", "")
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(d.lineno for d in decorators)])
        last = node.end_lineno or node.lineno
        inner = [s.lineno for block in inner_blocks(node) for s in block if hasattr(s, "lineno")]
        if header_only and inner:
            last = max(first, min(inner) - 1) if min(inner) > node.lineno else node.lineno
        self.differences.append(
            Difference(
                first_line=first,
                last_line=last,
                is_base=is_base,
                is_decided=not taint,
                reason=taint or reason,
            )
        )


def _plain(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Statements that are neither imports nor definitions."""
    skipped = ast.Import | ast.ImportFrom | Definition | ast.Pass
    return [statement for statement in body if not isinstance(statement, skipped)]


def _merged(body: list[ast.stmt]) -> list[ast.stmt]:
    """`x = e; return x` as `return e`."""
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
        ):
            joined = ast.copy_location(ast.Return(value=before.value), before)
            joined.end_lineno = statement.end_lineno
            joined.undecided = getattr(before, "undecided", "")  # type: ignore[attr-defined]
            merged[-1] = joined
        else:
            merged.append(statement)
    return merged


def _is_version_of(old: ast.stmt, new: ast.stmt, *, same_header: bool) -> bool:
    header = _HEADERS.get(type(new))
    if header is None or type(old) is not type(new):
        return False
    return not same_header or _header_dump(old, header) == _header_dump(new, header)


def _header_dump(statement: ast.stmt, header: Sequence[str]) -> list[str]:
    texts = []
    for name in header:
        part = getattr(statement, name)
        texts += [ast.dump(item) for item in (part if isinstance(part, list) else [part])]
    return texts


def _all_blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    names = ("body", "orelse", "finalbody")
    blocks = [getattr(statement, name) for name in names if hasattr(statement, name)]
    parts = (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ()))
    return [*blocks, *(part.body for part in parts)]


def _by_name(body: Sequence[ast.stmt]) -> Mapping[tuple[str, int], Definition]:
    """Definitions by name and, for overloads and setters of one name, by number."""
    seen: dict[str, int] = {}
    found: dict[tuple[str, int], Definition] = {}
    for statement in body:
        if isinstance(statement, Definition):
            number = seen[statement.name] = seen.get(statement.name, -1) + 1
            found[statement.name, number] = statement
    return found


def _aliases(node: ast.stmt) -> Iterator[tuple[str, ast.stmt]]:
    """Each name that a statement imports, as a statement of its own and its text."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            single: ast.Import | ast.ImportFrom
            if isinstance(node, ast.Import):
                single = ast.Import(names=[alias])
            else:
                single = ast.ImportFrom(module=node.module, names=[alias], level=node.level)
            text = ast.unparse(single)
            ast.copy_location(single, alias)
            single.undecided = getattr(node, "undecided", "")  # type: ignore[union-attr]
            yield text, single


def _signature(node: FunctionNode) -> str:
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    names = [a.arg for a in arguments]
    spread = [a.arg if a else "" for a in (node.args.vararg, node.args.kwarg)]
    defaults = [ast.dump(d) if d else "" for d in (*node.args.defaults, *node.args.kw_defaults)]
    decorators = [ast.dump(d) for d in node.decorator_list]
    written = [node.returns, *(a.annotation for a in arguments)]
    called = [
        ast.dump(a) for a in written if a is not None and any(isinstance(n, ast.Call) for n in ast.walk(a))
    ]
    return repr((type(node).__name__, names, spread, defaults, decorators, called))


def _dump(statement: ast.stmt) -> str:
    return ast.dump(statement)
