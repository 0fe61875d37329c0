"""Reads the analysed files again and again until nothing new is found, and keeps what is left of each."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from harness.facts.python_source.off_path.bindings import FunctionNode
from harness.facts.python_source.off_path.frames import Frame, start_frame
from harness.facts.python_source.off_path.knowledge import Knowledge
from harness.facts.python_source.off_path.residue import Effect, effect_of, tidy
from harness.facts.python_source.off_path.scopes import Function, Key, Scopes
from harness.facts.python_source.off_path.statements import Guard, Statements
from harness.facts.python_source.off_path.switch import SwitchOff
from harness.facts.python_source.off_path.values import ANYTHING, BOTTOM, join, known
from harness.facts.python_source.tree import SourceTree
from harness.facts.python_source.walk import children, walk

_MAX_ROUNDS = 60
Findings = Mapping[tuple[str, str], object]
"""By table and name."""
_EVERYWHERE = ("positions", "blur")
"""Tables whose findings can change any function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffPath:
    """What is left of the analysed files while the switch is off in one way."""

    modules: dict[str, ast.Module]
    """By path of a hooked file: what is left, functions that cannot run as empty bodies."""
    guards: tuple[Guard, ...]
    dead: frozenset[Key]
    """Functions that no code calls which can run."""
    unused: frozenset[Key]
    """Those of them that no analysed code mentions at all."""
    is_settled: bool
    """Whether the reading came to an end."""


class Reading:
    """One reading of the analysed files under one way of being off."""

    def __init__(
        self,
        tree: SourceTree,
        scopes: Scopes,
        hooks: Collection[str],
        switch: SwitchOff,
        *,
        is_closed: Callable[[str], bool],
        old_parameters: Callable[[Key], Collection[str] | None],
        changed_lines: Callable[[str], Collection[int]],
        neutral: Collection[Key],
        fresh: Collection[str],
    ) -> None:
        """Reads the files of `scopes`.

        `neutral` are functions of hooked files that are the same before and after and use nothing of the change:
        they are left as they are.
        """
        self._tree = tree
        self._neutral = neutral
        self._hooks = tuple(path for path in scopes.paths if path in hooks)
        self._scopes = scopes
        self._guards: dict[Key, set[Guard]] = {}
        """By function; by path and no name for what a module does when it is imported."""
        self._modules: dict[str, ast.Module] = {}
        self._left: dict[Key, list[ast.stmt]] = {}
        self._own = frozenset(
            (f.node.lineno, f.node.name) for f in self._scopes.functions.values() if not f.outer
        )
        self._mentioned: set[Key] = set()
        self.knowledge = Knowledge(
            switch=switch,
            scopes=scopes,
            hooks=hooks,
            is_closed=is_closed,
            old_parameters=old_parameters,
            changed_lines=changed_lines,
            fresh=fresh,
        )

    def run(self) -> OffPath:
        """Reads until nothing new is found, each time only what the last findings can change."""
        is_settled = False
        changed: frozenset[str] | None = None
        for _ in range(_MAX_ROUNDS):
            before, num_live = self.knowledge.findings(), len(self.knowledge.live)
            self._round(changed)
            changed = self._changed_names(before)
            if changed is not None and not changed and len(self.knowledge.live) == num_live:
                if self.knowledge.calls_settled:
                    is_settled = True
                    break
                # Names first: code that waited for one may yet let a function return.
                self.knowledge.calls_settled = self.knowledge.names_settled
                self.knowledge.names_settled = True
                changed = None
        dead = frozenset(key for key in self._scopes.functions if key not in self._left)
        guards = {guard for found in self._guards.values() for guard in found}
        return OffPath(
            modules={
                path: self._assembled(self._modules[path], path)
                for path in self._hooks
                if path in self._modules
            },
            guards=tuple(sorted(guards, key=lambda g: (g.path, g.first_line, g.line))),
            dead=dead,
            unused=frozenset(k for k in dead if k[0] in self._hooks and not self._is_mentioned(k)),
            is_settled=is_settled,
        )

    def _changed_names(self, before: Findings) -> frozenset[str] | None:
        """The names about which something was found since; None when that is every name."""
        after = self.knowledge.findings()
        found = {key for key, value in after.items() if before.get(key) != value}
        if any(table in _EVERYWHERE for table, _ in found):
            return None
        names = {name for _, name in found}
        for imported in self._scopes.imports.values():
            names |= {local for local, target in imported.items() if target.rpartition(".")[2] in names}
        return frozenset(names)

    def _round(self, changed: frozenset[str] | None) -> None:
        for path in self._scopes.paths:
            parsed = self._tree.parse(path)
            if parsed is not None and self._is_due((path, ""), parsed, changed):
                guards = self._guards[path, ""] = set()
                body, _ = Statements(self.knowledge, guards).block(
                    parsed.body, Frame(path=path, is_module=True)
                )
                self._modules[path] = ast.Module(body=body, type_ignores=[])
                if path in self._hooks:
                    self._mention(body)
        for function in self._scopes.functions.values():
            if function.outer or not self._runs(function):
                continue
            if function.key not in self._left or self._is_due(function.key, function.node, changed):
                self._read_function(function)

    def _is_due(self, key: Key, node: ast.AST, changed: frozenset[str] | None) -> bool:
        """Whether what was found last can change how code reads."""
        if changed is None:
            return True
        return bool(self._scopes.names_of(key, node) & changed)

    def _read_function(self, function: Function) -> None:
        if function.key in self._neutral:
            self._left[function.key] = function.node.body
            if function.key not in self._mentioned:
                self._mentioned.add(function.key)
                self._mention(function.node.body)
                self.knowledge.returns[function.key] = ANYTHING
                self.knowledge.effects[function.key] = effect_of(function.node.body)
            return
        guards = self._guards[function.key] = set()
        reader = Statements(self.knowledge, guards, function.key)
        frame = start_frame(self.knowledge, function.path, function.node, function.key)
        body, ends = reader.block(function.node.body, frame)
        returns = self.knowledge.returns
        if not ends:
            returns[function.key] = join(returns.get(function.key, BOTTOM), known(None))
        body = tidy(body)
        self._left[function.key] = body
        if not self.knowledge.effects.get(function.key):
            self.knowledge.effects[function.key] = effect_of(body) or self._shared_names(function)
        self._mention(body)

    def _shared_names(self, function: Function) -> Effect | None:
        """The variables of a hooked file that a function sets; the subject's own files' are nobody else's."""
        if function.path not in self._hooks:
            return None
        names = [n for node in walk(function.node) if isinstance(node, ast.Global) for n in node.names]
        text = f"does `global {names[0]}` in line {function.node.lineno}" if names else ""
        return Effect(text, is_sure=True) if names else None

    def _runs(self, function: Function) -> bool:
        """Whether code that can run may call a function."""
        name = function.node.name
        is_special = name.startswith("__") and name.endswith("__")
        if function.path not in self._hooks and function.class_name:
            is_reached = function.class_name in self.knowledge.live
            return is_reached and (
                is_special or name in self.knowledge.live or not self.knowledge.is_closed(name)
            )
        if name in self.knowledge.live or is_special:
            return True
        return function.path in self._hooks and not self.knowledge.is_closed(name)

    def _mention(self, body: list[ast.stmt]) -> None:
        live = self.knowledge.live
        pending: list[ast.AST] = list(body)
        while pending:
            node = pending.pop()
            if isinstance(node, FunctionNode) and (node.lineno, node.name) in self._own:
                pending += [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]
                continue
            if isinstance(node, ast.Name):
                live.add(node.id)
            elif isinstance(node, ast.Attribute):
                live.add(node.attr)
            pending += children(node)

    def _is_mentioned(self, key: Key) -> bool:
        """Whether an analysed file speaks of a function elsewhere than where it is defined."""
        whole = re.compile(
            rb"(?<!\w)" + re.escape(self._scopes.functions[key].node.name.encode()) + rb"(?!\w)"
        )
        num_uses = 0
        for path in self._scopes.paths:
            num_uses += len(whole.findall(self._tree.files[path]))
            if num_uses > 1:
                return True
        return False

    def _assembled(self, module: ast.Module, path: str) -> ast.Module:
        filler = _Filler(path, self._left)
        return ast.Module(body=filler.fill(module.body, ""), type_ignores=[])


class _Filler:
    """Puts what is left of each function in its place."""

    def __init__(self, path: str, left: dict[Key, list[ast.stmt]]) -> None:
        self._path, self._left = path, left

    def fill(self, body: list[ast.stmt], prefix: str) -> list[ast.stmt]:
        return [self._filled(statement, prefix) for statement in body]

    def _filled(self, statement: ast.stmt, prefix: str) -> ast.stmt:
        fields = dict(ast.iter_fields(statement))
        if isinstance(statement, FunctionNode):
            fields["body"] = self._left.get((self._path, prefix + statement.name), [])
        elif isinstance(statement, ast.ClassDef):
            fields["body"] = self.fill(statement.body, f"{prefix}{statement.name}.")
        else:
            for name in ("body", "orelse", "finalbody"):
                if fields.get(name):
                    fields[name] = self.fill(fields[name], prefix)
        filled = ast.copy_location(type(statement)(**fields), statement)
        if isinstance(statement, FunctionNode):
            filled.as_written = statement  # type: ignore[attr-defined]
        if taint := getattr(statement, "undecided", ""):
            filled.undecided = taint  # type: ignore[attr-defined]
        return filled
