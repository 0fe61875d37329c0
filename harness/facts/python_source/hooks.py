"""The hunks of hooked files, and what each does while the switch is off."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.facts.python_source.hook_sides import Sides
from harness.facts.python_source.hunks import Span, hunk_of
from harness.facts.python_source.off_path.analysis import OffPath
from harness.facts.python_source.off_path.bases import Bases
from harness.facts.python_source.off_path.comparison import Comparison, Difference
from harness.facts.python_source.off_path.new_code import NewCode
from harness.facts.python_source.off_path.signatures import Options, new_options
from harness.facts.python_source.off_path.switch import SwitchOff
from harness.facts.python_source.walk import walk
from harness.facts.python_source.words import words_of
from harness.model.reach import GuardState, HookedFile, Hunk


@dataclass(slots=True, kw_only=True)
class HookReader:
    """Reads the hooked files of a change under every way of being off."""

    sides: Sides
    ways: tuple[SwitchOff, ...]
    _offs: dict[tuple[int, bool], OffPath] = field(default_factory=dict)
    _read: list[tuple[SwitchOff, bool, OffPath]] = field(default_factory=list)
    """Ways with what they were asked, sides, and what was read so."""
    _words: set[str] | None = None

    def files(self) -> tuple[HookedFile, ...]:
        """Every hooked file with its hunks."""
        return tuple(self._file(path) for path in self.sides.subject.hooks)

    def guards_at(self, path: str, line: int) -> tuple[str, ...]:
        """The conditions that keep a line of a hooked file from running; none when one way of being off runs it."""
        if path not in self.sides.paths(is_head=True):
            return ()
        per_way = [
            self._guards(self._off(way, is_head=True), path, range(line, line + 1)) for way in self._ways
        ]
        return tuple(dict.fromkeys(text for texts in per_way for text in texts)) if all(per_way) else ()

    @property
    def _ways(self) -> range:
        return range(len(self.ways))

    def _off(self, way: int, *, is_head: bool) -> OffPath:
        if (way, is_head) not in self._offs:
            self._offs[way, is_head] = self._reading(self.ways[way], is_head=is_head)
        return self._offs[way, is_head]

    def _reading(self, way: SwitchOff, *, is_head: bool) -> OffPath:
        """A reading, taken from another way where that was asked nothing that this way would answer otherwise."""
        for asked, side, off in self._read:
            if side is is_head and way.reads_as(asked):
                return off
        asked = way.afresh()
        off = self.sides.read(asked, is_head=is_head)
        self._read.append((asked, is_head, off))
        return off

    def _file(self, path: str) -> HookedFile:
        spans = self.sides.spans.get(path, ())
        if not spans and (problem := self._shadowed(path)):
            whole = Span(base_line=1, num_base=0, head_line=1, num_head=0)
            hunk = self._hunk(path, whole, GuardState.UNDECIDED, problem)
            return HookedFile(path=path, status="changed", hunks=(hunk,))
        if not spans:
            status = "unchanged" if path in self.sides.head.files else "missing"
            return HookedFile(path=path, status="unchanged" if status == "unchanged" else "missing")
        if problem := self._unreadable(path):
            hunks = [self._hunk(path, span, GuardState.UNDECIDED, problem) for span in spans]
        else:
            found = [self._differences(path, way) for way in self._ways]
            hunks = [self._judged(path, span, found) for span in spans]
            hunks += self._elsewhere(path, hunks, found)
        return HookedFile(path=path, status="changed", hunks=tuple(hunks))

    def _unreadable(self, path: str) -> str:
        if not path.endswith(".py"):
            return "it is not Python, so its guards cannot be read"
        if problem := self._shadowed(path):
            return problem
        for tree, name in ((self.sides.base, "base"), (self.sides.head, "head")):
            if path in tree.files and (problem := tree.problem(path)):
                return f"the {name}'s file cannot be read: {problem}"
        if not all(
            self._off(way, is_head=is_head).is_settled for way in self._ways for is_head in (False, True)
        ):
            return "the reading of the hooked files did not come to an end"
        return ""

    def _shadowed(self, path: str) -> str:
        """Why a file may not be what is imported under its name: the change put a package beside the module."""
        rival = self.sides.head.rival(path) if path in self.sides.head.files else ""
        if not rival or self.sides.base.rival(path) == rival:
            return ""
        return f"{path} and {rival} are two files of one module, of which Python takes the package"

    def _judged(self, path: str, span: Span, differences: Sequence[Sequence[Difference]]) -> Hunk:
        touching = [
            (difference, f"{_where(difference)}: {difference.reason} ({way.described})")
            for way, found in zip(self.ways, differences, strict=True)
            for difference in found
            if _touches(difference, span)
        ]
        for decided, state in ((True, GuardState.UNGUARDED), (False, GuardState.UNDECIDED)):
            for difference, text in touching:
                if difference.is_decided is decided:
                    return self._hunk(path, span, state, text)
        return self._guarded(path, span)

    def _guarded(self, path: str, span: Span) -> Hunk:
        found = [self._guards(self._off(way, is_head=True), path, span.head_lines) for way in self._ways]
        guards = tuple(dict.fromkeys(text for texts in found for text in texts))
        if uncalled := self._uncalled(path, span):
            reason = f"nothing that can be read calls {uncalled}"
            return self._hunk(path, span, GuardState.UNDECIDED, reason)
        reason = (
            "does not run with the switch off" if guards else "changes nothing that runs with the switch off"
        )
        return self._hunk(path, span, GuardState.GUARDED, reason, guards)

    def _uncalled(self, path: str, span: Span) -> str:
        """The function that holds all of a hunk and is called nowhere, though the base has it."""
        base, head = self.sides.scopes(is_head=False).functions, self.sides.scopes(is_head=True).functions
        unused = [self._off(way, is_head=True).unused for way in self._ways]
        for key in sorted(frozenset.intersection(*unused)):
            lines = _lines_of(head[key].node)
            is_inside = span.num_head and key[0] == path and span.head_line in lines
            if is_inside and key in base and span.head_lines[-1] in lines:
                return key[1]
        return ""

    def _elsewhere(
        self, path: str, hunks: Sequence[Hunk], differences: Sequence[Sequence[Difference]]
    ) -> list[Hunk]:
        """Lines outside every hunk that mean something else with the switch off.

        Where a hunk of the same function is not guarded, it accounts for them.
        """
        open_lines = [h.head_line for h in hunks if h.state is not GuardState.GUARDED]
        spans = self.sides.spans[path]
        found: list[Hunk] = []
        seen: set[int] = set()
        for way, differing in zip(self.ways, differences, strict=True):
            for difference in differing:
                line = difference.first_line
                if difference.is_base or line in seen or any(_touches(difference, s) for s in spans):
                    continue
                if any(opened in self._function_at(path, line) for opened in open_lines):
                    continue
                seen |= set(range(line, difference.last_line + 2))
                span = Span(
                    base_line=line, num_base=0, head_line=line, num_head=difference.last_line - line + 1
                )
                state = GuardState.UNGUARDED if difference.is_decided else GuardState.UNDECIDED
                reason = f"line {line}: {difference.reason}, by what the hunks changed ({way.described})"
                found.append(self._hunk(path, span, state, reason))
        return found

    def _function_at(self, path: str, line: int) -> range:
        """The lines of the outermost function that holds a line; the line alone outside functions."""
        functions = self.sides.scopes(is_head=True).functions
        holding = [_lines_of(f.node) for key, f in functions.items() if key[0] == path and not f.outer]
        return next((lines for lines in holding if line in lines), range(line, line + 1))

    def _hunk(
        self, path: str, span: Span, state: GuardState, reason: str, guards: tuple[str, ...] = ()
    ) -> Hunk:
        _, new = span.text([], self.sides.head.lines(path))
        words = {word.decode("utf-8", errors="replace") for word in words_of("\n".join(new).encode())}
        return hunk_of(
            span,
            self.sides.base,
            self.sides.head,
            path,
            state=state,
            reason=reason,
            guards=guards,
            names_subject=bool(words & self._subject_words()),
        )

    def _subject_words(self) -> set[str]:
        """Words by which a hunk speaks of the subject: its modules and folders, the declared reads, the key."""
        if self._words is not None:
            return self._words
        words = {read.rpartition(":")[2].partition(".")[0] for read in self.sides.subject.reads}
        for path in self.sides.subject.owned:
            parts = path.removesuffix(".py").split("/")
            words |= {part for part in parts if self.sides.is_closed(part, is_head=True)}
        self._words = words | {self.ways[0].name}
        return self._words

    def _differences(self, path: str, way: int) -> tuple[Difference, ...]:
        base, head = self._off(way, is_head=False), self._off(way, is_head=True)
        comparison = Comparison(self._new_code(path))
        return tuple(comparison.modules(base.modules.get(path), head.modules.get(path)))

    def _new_code(self, path: str) -> NewCode:
        sides, parsed = self.sides, self.sides.base.parse(path)
        owned = {sides.head.module_of(p) for p in sides.subject.owned if p in sides.head.files}
        return NewCode(
            path=path,
            scopes=sides.scopes(is_head=True),
            tree=sides.head,
            bases=Bases(sides.head),
            owned=lambda module: module in owned,
            is_closed=lambda name: sides.is_closed(name, is_head=True),
            where_known=sides.where_known,
            is_looked_up=sides.is_looked_up,
            is_asked_for=sides.is_asked_for,
            reads=sides.subject.reads,
            old_imports=_top_imports(parsed),
            old_names=_names_of(parsed),
            changed_lines=sides.changed_lines(path),
            options=self._new_options(path),
        )

    def _new_options(self, path: str) -> Options:
        base, head = (self.sides.scopes(is_head=is_head).functions for is_head in (False, True))
        old, new = ({k: f for k, f in side.items() if k[0] == path} for side in (base, head))
        return new_options(old, new)

    def _guards(self, off: OffPath, path: str, lines: range) -> tuple[str, ...]:
        found = [
            f"line {guard.line}: {guard.condition}"
            for guard in off.guards
            if guard.path == path and guard.first_line < lines.stop and lines.start <= guard.last_line
        ]
        functions = self.sides.scopes(is_head=True).functions
        for key in sorted(off.dead - off.unused):
            inside = _lines_of(functions[key].node)
            if key[0] == path and inside.start < lines.stop and lines.start < inside.stop:
                found.append(f"line {inside.start}: {key[1]} is called only with the switch on")
        return tuple(dict.fromkeys(found))


def _where(difference: Difference) -> str:
    return f"{'base line' if difference.is_base else 'line'} {difference.first_line}"


def _touches(difference: Difference, span: Span) -> bool:
    lines = span.base_lines if difference.is_base else span.head_lines
    return difference.first_line < lines.stop and lines.start <= difference.last_line and len(lines) > 0


def _lines_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _top_imports(module: ast.Module | None) -> frozenset[str]:
    names: set[str] = set()
    for node in walk(module) if module is not None else ():
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return frozenset(names)


def _names_of(module: ast.Module | None) -> frozenset[str]:
    """Every variable of a file, parameters and what it imports or defines included."""
    names: set[str] = set()
    for node in walk(module) if module is not None else ():
        match node:
            case ast.Name(id=name) | ast.arg(arg=name):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.alias(name=target, asname=given):
                names.add(given or target.partition(".")[0])
    return frozenset(names)
