"""From committed files to the settings that they read, set and document: pure, bytes in, records out."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from harness.facts.python_effects.program import Program, read_program
from harness.facts.python_source.off_path.switch import identifier_of
from harness.facts.python_source.tree import SourceTree
from harness.facts.surface.absent import SwitchReader
from harness.facts.surface.documents import document_uses
from harness.facts.surface.settings import SettingReader, attribute_reads
from harness.model.manifest import SwitchSection
from harness.model.surface import FLAG_OF_THE_ENGINE, SettingKind, SettingUse, SwitchRead

_OF_OTHERS_TOO = (SettingKind.ENVIRONMENT, SettingKind.FLAG)


@dataclass(frozen=True, slots=True, kw_only=True)
class SurfaceFiles:
    """What is compared."""

    code: Program
    """Owned files and hooks at the head."""
    before: Program
    """The hooks at the merge base: what they read already is not the change's."""
    tests: Mapping[str, bytes]
    """Python files, by repository path."""
    documents: Mapping[str, bytes]
    """The change's own, by repository path."""
    other_documents: Mapping[str, bytes] = field(default_factory=dict)
    """Where a setting may be named as well; what they tell users to set is not judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """What was read."""

    code: tuple[SettingUse, ...]
    tests: tuple[SettingUse, ...]
    documents: tuple[SettingUse, ...]
    switch: tuple[SwitchRead, ...]
    fields_read: tuple[str, ...]
    """Fields of configuration classes that code reads by name, as `Class.field`."""
    fields_are_read_whole: bool
    """Whether some code reads all fields of an object at once, so that an unread one cannot be told."""


def read_surface(files: SurfaceFiles, switch: SwitchSection, *, commands: Collection[str]) -> Surface:
    """The settings of the code, its tests and documents; `commands` are the words of its command lines."""
    reader = SettingReader(files.code)
    former = {(use.kind, use.name, use.path) for use in SettingReader(files.before).uses()}
    code = [use for use in reader.uses() if (use.kind, use.name, use.path) not in former]
    tests = set_by_tests(frozenset(files.tests.items()), frozenset(commands))
    names = {(use.kind, use.name) for use in code}
    attributes, reads_whole = attribute_reads(files.code.modules)
    fields = {use.name for use in code if use.kind is SettingKind.FIELD}
    return Surface(
        code=_ordered(code),
        tests=_ordered(tests),
        documents=_ordered(
            [
                *document_uses(files.documents, names, commands=commands),
                *(
                    u
                    for u in document_uses(files.other_documents, names, commands=())
                    if u.role == "mentions"
                ),
            ]
        ),
        switch=_switch_reads(files.code, code, switch),
        fields_read=tuple(sorted(f for f in fields if f.rpartition(".")[2] in attributes)),
        fields_are_read_whole=reads_whole,
    )


@lru_cache(maxsize=2)
def set_by_tests(files: frozenset[tuple[str, bytes]], commands: frozenset[str]) -> tuple[SettingUse, ...]:
    """The settings that tests set; a process that judges many changes seldom meets other tests."""
    tree = SourceTree(dict(files))
    reader = SettingReader(read_program(tree, tree.files, owned=()), commands)
    return tuple(use for use in reader.uses() if use.role == "sets")


def looked_up(surface: Surface) -> set[str]:
    """The names that may be others' settings as well, a flag `--no-x` also as `--x`; with flags one of the engine's."""
    told = [u for u in surface.documents if u.role == "documents"]
    keys = [u for u in (*told, *surface.tests) if u.kind is SettingKind.CONFIG_KEY]
    uses = [u for u in (*surface.code, *surface.tests, *surface.documents) if u.kind in _OF_OTHERS_TOO]
    names = {name for u in (*uses, *keys) for name in (u.name, u.name.replace("--no-", "--", 1))}
    return names | {FLAG_OF_THE_ENGINE} if any(u.kind is SettingKind.FLAG for u in uses) else names


def _switch_reads(code: Program, uses: Iterable[SettingUse], switch: SwitchSection) -> tuple[SwitchRead, ...]:
    """Where the switch is read; of a flag also where it is declared."""
    if switch.kind != "flag":
        return _reader(code, switch, switch.key).reads()
    name = identifier_of(switch.key)
    declared = [
        SwitchRead(
            path=use.path,
            line=use.line,
            text=use.text,
            when_absent=_when_not_given(use.default, switch),
            value=use.default or "None",
        )
        for use in uses
        if use.kind is SettingKind.FLAG and use.role == "declares" and identifier_of(use.name) == name
    ]
    return (*_reader(code, switch, name).reads(), *declared)


def _reader(code: Program, switch: SwitchSection, key: str) -> SwitchReader:
    return SwitchReader(code.resolver, key=key, on=switch.on, off=switch.off, asked=switch.reads)


def _when_not_given(default: str | None, switch: SwitchSection) -> Literal["off", "on", "unknown"]:
    """What a flag's default means; None is what argparse gives where none is said."""
    try:
        value = None if default is None else ast.literal_eval(default)
    except (ValueError, SyntaxError):
        return "unknown"
    if str(value).lower() == switch.off.lower() or not value:
        return "off"
    return "on" if str(value).lower() == switch.on.lower() else "unknown"


def _ordered(uses: Iterable[SettingUse]) -> tuple[SettingUse, ...]:
    return tuple(dict.fromkeys(sorted(uses, key=lambda u: (u.path, u.line, u.kind, u.name, u.role))))
