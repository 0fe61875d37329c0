"""From committed files to what they reach: pure, bytes in, records out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from harness.facts.python_effects.files import entry_point_effects, file_effects
from harness.facts.python_effects.finder import EffectFinder
from harness.facts.python_effects.program import Program, read_program
from harness.facts.python_effects.restored import mark_restored
from harness.facts.python_source.tree import SourceTree
from harness.model.effects import Effect, EffectKind, ReadFile

ENTRY_POINTS = "pyproject.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedFiles:
    """The files to be read, by repository path."""

    owned: Mapping[str, bytes]
    """Every file that the subject owns, as the head has it."""
    edited: Mapping[str, bytes] = field(default_factory=dict)
    """Other files that the change edits, as the head has them."""
    before: Mapping[str, bytes] = field(default_factory=dict)
    """What the merge base has of the edited files."""


def program_of(files: CommittedFiles) -> Program:
    """The Python files of the head, parsed."""
    return read_program(
        SourceTree({**files.owned, **files.edited}), {**files.owned, **files.edited}, owned=files.owned
    )


def read_effects(files: CommittedFiles, program: Program) -> tuple[tuple[ReadFile, ...], tuple[Effect, ...]]:
    """The files that were looked at, and every effect in them, by path and line.

    An edited file that is not owned is searched as well; what it has at the merge base too is marked so.
    """
    found = [*_python_effects(program), *_other_effects(files)]
    former = {p: c for p, c in files.before.items() if p in files.edited}
    known = Counter(map(_identity, _python_effects(read_program(SourceTree(former), former, owned=()))))
    effects = []
    for effect in sorted(found, key=lambda e: (e.path, e.line, e.kind, e.target, e.key or "")):
        if effect.path not in files.owned and known[_identity(effect)]:
            known[_identity(effect)] -= 1
            effect = effect.model_copy(update={"in_base": True})
        effects.append(effect)
    looked_at = [
        ReadFile(path=p, num_lines=c.count(b"\n") + (not c.endswith(b"\n")), is_owned=p in files.owned)
        for p, c in sorted({**files.owned, **files.edited}.items())
    ]
    return tuple(looked_at), tuple(dict.fromkeys(effects))


def _python_effects(program: Program) -> list[Effect]:
    unreadable = [
        Effect(path=path, line=1, end_line=1, kind=EffectKind.UNREADABLE, target=reason)
        for path, reason in program.problems.items()
    ]
    by_path: dict[str, list[Effect]] = {}
    for effect in EffectFinder(program).effects():
        by_path.setdefault(effect.path, []).append(effect)
    marked = [e for m in program.modules if m.path in by_path for e in mark_restored(m, by_path[m.path])]
    return [*unreadable, *marked]


def _other_effects(files: CommittedFiles) -> Iterable[Effect]:
    for path, content in files.owned.items():
        yield from file_effects(path, content)
    for path, content in files.edited.items():
        if path.rpartition("/")[2] == ENTRY_POINTS:
            yield from entry_point_effects(path, files.before.get(path), content)


def _identity(effect: Effect) -> tuple[object, ...]:
    return effect.path, effect.kind, effect.target, effect.key, effect.function, effect.text
