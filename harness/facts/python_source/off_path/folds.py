"""What `any`, `all` and look-ups in dictionaries that are written out give while the switch is off."""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace

from harness.facts.python_source.off_path.frames import Frame
from harness.facts.python_source.off_path.knowledge import Knowledge
from harness.facts.python_source.off_path.residue import has_plain_truth, is_total
from harness.facts.python_source.off_path.values import BOTTOM, Value, join_all, known
from harness.facts.python_source.walk import walk

_READ = ("get", "keys", "values", "items", "copy")
Reader = Callable[[ast.expr, Frame], tuple[Value, ast.expr]]


@dataclass(slots=True, kw_only=True)
class Folds:
    """Reads them where every part that Python evaluates with the switch off neither fails nor does anything."""

    knowledge: Knowledge
    read: Reader
    _tables: dict[tuple[str, str], ast.Dict | None] = field(default_factory=dict)

    def quantified(self, name: str, given: ast.expr, frame: Frame) -> Value | None:
        """`any(given)` or `all(given)`; None where it cannot be told."""
        parts = self._parts(given, frame)
        if not parts or not any(value.derived for value, _ in parts):
            return None
        if any(value.is_bottom for value, _ in parts):
            return BOTTOM
        ends_at = name == "any"
        switched = any(value.switched for value, _ in parts)
        first = next((i for i, (value, _) in enumerate(parts) if value.truth is ends_at), None)
        if first is None:
            is_other = all(value.truth is not None for value, _ in parts)
            return known(not ends_at, derived=True, switched=switched) if is_other else None
        is_quiet = all(is_total(left) for value, left in parts if value.truth is None)
        has_truth = all(has_plain_truth(left) for value, left in parts[:first] if value.truth is None)
        return known(ends_at, derived=True, switched=switched) if is_quiet and has_truth else None

    def looked_up(
        self, table: ast.expr, key: ast.expr, default: ast.expr | None, frame: Frame
    ) -> Value | None:
        """`table[key]`, or with a default `table.get(key, default)`; None where it cannot be told."""
        found, where = self._entries(table, frame)
        value, _ = self.read(key, frame) if found is not None else (BOTTOM, None)
        if found is None or not value.derived or value.constants is None:
            return None
        entries: dict[Hashable, ast.expr] = {
            k.value: v for k, v in zip(found.keys, found.values, strict=True) if isinstance(k, ast.Constant)
        }
        read = [self.read(v, where) for v in found.values]
        if where is frame and not all(is_total(left) for _, left in read):
            return None
        chosen = []
        for _, constant in value.constants:
            entry = entries.get(constant, default)
            if entry is None:
                return None
            chosen.append(self.read(entry, where if constant in entries else frame)[0])
        result = join_all(chosen).derive()
        return replace(result, switched=result.switched or value.switched)

    def _parts(self, given: ast.expr, frame: Frame) -> list[tuple[Value, ast.expr]] | None:
        """The elements that are asked, of a display or of a comprehension over one."""
        match given:
            case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
                return None if _has_star(elements) else [self.read(e, frame) for e in elements]
            case (
                ast.GeneratorExp(elt=element, generators=[one]) | ast.ListComp(elt=element, generators=[one])
            ):
                items = self._parts(one.iter, frame) if not isinstance(one.iter, type(given)) else None
                if items is None or one.ifs or one.is_async or not isinstance(one.target, ast.Name):
                    return None
                if not all(is_total(left) for _, left in items):
                    return None
                parts = []
                for value, _ in items:
                    inner = frame.copy()
                    inner.bind(one.target.id, value.derive())
                    parts.append(self.read(element, inner))
                return parts
        return None

    def _entries(self, table: ast.expr, frame: Frame) -> tuple[ast.Dict | None, Frame]:
        """The dictionary that an expression is, with constant keys, and the names at its place."""
        if isinstance(table, ast.Name) and table.id not in frame.env:
            path, name = self._owner(frame.path, table.id)
            if (path, name) not in self._tables:
                self._tables[path, name] = self._constant_table(path, name)
            return self._tables[path, name], Frame(path=path, is_module=True)
        is_plain = isinstance(table, ast.Dict) and _has_plain_keys(table)
        return table if is_plain and isinstance(table, ast.Dict) else None, frame

    def _owner(self, path: str, name: str) -> tuple[str, str]:
        module, _, inner = self.knowledge.scopes.imports.get(path, {}).get(name, "").rpartition(".")
        owner = self.knowledge.scopes.tree.path_of(module) if module else None
        return (path, name) if owner is None else (owner, inner)

    def _constant_table(self, path: str, name: str) -> ast.Dict | None:
        """The dictionary that a file's top gives a name which the analysed files only read."""
        scopes = self.knowledge.scopes
        parsed = scopes.tree.parse(path) if path in scopes.paths else None
        found = [
            s.value
            for s in (parsed.body if parsed is not None else ())
            if isinstance(s, ast.Assign | ast.AnnAssign) and _target(s) == name
        ]
        is_sure = self.knowledge.is_closed(name) and not scopes.why_unsure(path, ast.Name(name, ast.Load()))
        table = found[0] if len(found) == 1 else None
        if not is_sure or not isinstance(table, ast.Dict) or not _has_plain_keys(table):
            return None
        return table if all(self._is_only_read(p, name) for p in scopes.paths) else None

    def _is_only_read(self, path: str, name: str) -> bool:
        """Whether a file asks a table for entries and does nothing else with it."""
        tree = self.knowledge.scopes.tree
        parsed = tree.parse(path) if tree.may_name(path, name) else None
        nodes = walk(parsed) if parsed is not None else []
        reads: set[int] = set()
        for node in nodes:
            match node:
                case ast.Subscript(value=owner, ctx=ast.Load()):
                    reads.add(id(owner))
                case ast.Call(func=ast.Attribute(value=owner, attr=method)) if method in _READ:
                    reads.add(id(owner))
                case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[owner]):
                    reads.add(id(owner))
                case ast.Assign() | ast.AnnAssign() if _target(node) == name:
                    reads.add(id(node.targets[0] if isinstance(node, ast.Assign) else node.target))
        uses = [n for n in nodes if name in (getattr(n, "id", ""), getattr(n, "attr", ""))]
        return all(id(node) in reads for node in uses)


def _has_star(elements: list[ast.expr]) -> bool:
    return any(isinstance(element, ast.Starred) for element in elements)


def _has_plain_keys(table: ast.Dict) -> bool:
    return bool(table.keys) and all(isinstance(key, ast.Constant) for key in table.keys)


def _target(statement: ast.Assign | ast.AnnAssign) -> str:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else ""
