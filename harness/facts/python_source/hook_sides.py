"""Both trees of a change as its hooks see them: analysed files, names of the change's own, functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from harness.facts.python_source.hunks import Span
from harness.facts.python_source.off_path.analysis import OffPath, Reading
from harness.facts.python_source.off_path.bases import TORCH_MODULE_NAMES
from harness.facts.python_source.off_path.bindings import FunctionNode
from harness.facts.python_source.off_path.scopes import Key, Scopes
from harness.facts.python_source.off_path.switch import CONFIG_NAME, SwitchOff
from harness.facts.python_source.tree import SourceTree
from harness.facts.python_source.walk import walk
from harness.facts.python_source.words import Outside, names_in, outside_of, words_in

Spans = Mapping[str, Sequence[Span]]
_BY_NAME = ("setattr", "__setattr__", "__dict__", "vars")
"""What may set an attribute without its name standing in the code."""
_READS_SIGNATURES = re.compile(rb"\b(?:signature|getfullargspec|__code__)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is the change's own, as its manifest declares it."""

    hooks: tuple[str, ...]
    owned: frozenset[str]
    """Python files of the subject in either tree."""
    reads: tuple[str, ...]
    """`module:name` of what shared code may read the switch by."""
    is_apart: Callable[[str], bool]
    """Files that never meet the hooked files' objects: tests, documents, and other models that import none of them."""


@dataclass(slots=True, kw_only=True)
class Sides:
    """Base and head of a change."""

    base: SourceTree
    head: SourceTree
    subject: Subject
    spans: Spans
    _outside: tuple[Outside, Outside] | None = None
    _scopes: dict[bool, Scopes] = field(default_factory=dict)
    _candidates: frozenset[str] | None = None
    _neutral: frozenset[Key] | None = None

    def tree(self, *, is_head: bool) -> SourceTree:
        """One of the trees."""
        return self.head if is_head else self.base

    def paths(self, *, is_head: bool) -> tuple[str, ...]:
        """The analysed files: hooks, the subject's own, and the modules of the declared reads."""
        tree = self.tree(is_head=is_head)
        reads = {tree.path_of(read.partition(":")[0]) for read in self.subject.reads}
        hooks = {path for path in self.subject.hooks if path.endswith(".py")}
        wanted = hooks | self.subject.owned | {path for path in reads if path}
        return tuple(sorted(path for path in wanted if path in tree.files))

    def scopes(self, *, is_head: bool) -> Scopes:
        """Functions and names of the analysed files."""
        if is_head not in self._scopes:
            self._scopes[is_head] = Scopes(self.tree(is_head=is_head), self.paths(is_head=is_head))
        return self._scopes[is_head]

    def is_closed(self, name: str, *, is_head: bool) -> bool:
        """Whether every use of a name is in the analysed files or in files that are apart."""
        if (name.startswith("__") and name.endswith("__")) or name in TORCH_MODULE_NAMES:
            return False
        return name in self.candidates and not self._outside_of(is_head).user(name)

    def where_known(self, name: str) -> str:
        """`path:line` of a use of a name in shared code of the head."""
        return self._outside_of(True).user(name) or "the hooked file itself"

    @property
    def candidates(self) -> frozenset[str]:
        """Words in what the change wrote or took away and in the subject: no other name can be its own. A hook may
        have stood there before, so attributes that the edited files set, and functions that they define and call,
        count as well; a function that they only define is called by others.
        """
        if self._candidates is None:
            contents = []
            for tree in (self.base, self.head):
                contents += [tree.files[path] for path in self.subject.owned if path in tree.files]
            for path, spans in self.spans.items():
                base, head = self.base.lines(path), self.head.lines(path)
                for span in spans:
                    old, new = span.text(base, head)
                    contents.append("\n".join([*old, *new]).encode())
            self._candidates = words_in(contents) | frozenset(self._used_where_made())
        return self._candidates

    def _used_where_made(self) -> Iterator[str]:
        """Attributes set, and functions both defined and called, in an edited file of either tree."""
        trees = [tree.parse(path) for tree in (self.base, self.head) for path in self.spans]
        for nodes in [walk(tree) for tree in trees if tree is not None]:
            yield from (
                n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
            )
            defined = {n.name for n in nodes if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}
            called = {name for n in nodes if isinstance(n, ast.Call) for name in names_in(n.func)}
            yield from defined & called

    def changed_lines(self, path: str) -> frozenset[int]:
        """Lines of a hooked file that the change wrote."""
        return frozenset(line for span in self.spans.get(path, ()) for line in span.head_lines)

    def read(self, way: SwitchOff, *, is_head: bool) -> OffPath:
        """What is left of one tree while the switch is off in one way."""
        old = self.scopes(is_head=False).functions

        def old_parameters(key: Key) -> Collection[str] | None:
            return old[key].parameters if is_head and key in old else None

        return Reading(
            self.tree(is_head=is_head),
            self.scopes(is_head=is_head),
            self.subject.hooks,
            way,
            is_closed=lambda name: self.is_closed(name, is_head=is_head),
            old_parameters=old_parameters,
            changed_lines=self.changed_lines if is_head else lambda _path: frozenset(),
            neutral=self._neutral_functions(way),
            fresh=self._fresh if is_head else frozenset(),
        ).run()

    @property
    def _fresh(self) -> frozenset[str]:
        """Names in the hooked files of the head that those of the base have not."""
        hooks = self.subject.hooks
        before = words_in(self.base.files[path] for path in hooks if path in self.base.files)
        return words_in(self.head.files[path] for path in hooks if path in self.head.files) - before

    def is_looked_up(self, name: str) -> bool:
        """Whether shared code asks objects for an attribute of that name, by `hasattr` or `getattr`."""
        asked = re.compile(rb"(?:has|get)attr\(\s*[\w.()]+,\s*[\"']" + re.escape(name.encode()) + rb"[\"']")
        return any(asked.search(self.head.files[path]) for path in self._outside_of(True).holding(name))

    def is_asked_for(self, name: str) -> bool:
        """Whether a shared file that reads signatures holds that name in quotes."""
        quoted = re.compile(rb"[\"']" + re.escape(name.encode()) + rb"[\"']")
        files = (self.head.files[path] for path in self._outside_of(True).holding(name))
        return any(_READS_SIGNATURES.search(file) and quoted.search(file) for file in files)

    def _neutral_functions(self, way: SwitchOff) -> frozenset[Key]:
        """Functions that are the same before and after and use no name that the switch can reach."""
        if self._neutral is None:
            base, head = self.scopes(is_head=False), self.scopes(is_head=True)
            special = {CONFIG_NAME, way.name, way.key, *_BY_NAME} | self._imported_from_subject()
            same = []
            for key, function in head.functions.items():
                before = base.functions.get(key)
                if before is not None and ast.dump(before.node) == ast.dump(function.node):
                    same.append(key)
                else:
                    special.add(function.node.name)
            self._neutral = frozenset(
                key for key in same if not self._uses(head.functions[key].node, special)
            )
        return self._neutral

    def _uses(self, node: FunctionNode, special: set[str]) -> bool:
        nodes = walk(node)
        names = {name for inner in nodes for name in names_in(inner)}
        if names & special:
            return True
        local = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        local |= {n.arg for n in nodes if isinstance(n, ast.arg)}
        own = {n.id for n in nodes if isinstance(n, ast.Name)} & local
        attributes = {n.attr for n in nodes if isinstance(n, ast.Attribute)}
        return any(self.is_closed(name, is_head=True) for name in names - (own - attributes))

    def _imported_from_subject(self) -> set[str]:
        scopes = self.scopes(is_head=True)
        owned = {self.head.module_of(path) for path in self.subject.owned if path in self.head.files}
        return {
            name
            for path in self.subject.hooks
            for name, target in scopes.imports.get(path, {}).items()
            if target in owned or target.rpartition(".")[0] in owned
        }

    def _outside_of(self, is_head: bool) -> Outside:
        if self._outside is None:
            self._outside = outside_of(
                self.base,
                self.head,
                self._is_inside(is_head=False),
                self._is_inside(is_head=True),
                self.candidates,
            )
        return self._outside[is_head]

    def _is_inside(self, *, is_head: bool) -> Callable[[str], bool]:
        analysed = frozenset(self.paths(is_head=is_head))
        return lambda path: path in analysed or self.subject.is_apart(path)
