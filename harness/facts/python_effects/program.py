"""The judged Python files, parsed once, with what their expressions stand for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from harness.facts.python_effects.build import build_module
from harness.facts.python_effects.resolve import Resolver
from harness.facts.python_effects.scopes import Module
from harness.facts.python_source.tree import SourceTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Modules that are read together, so that calls and imports between them are followed."""

    modules: tuple[Module, ...]
    problems: Mapping[str, str]
    """Why a file could not be read, by path."""
    resolver: Resolver


def read_program(tree: SourceTree, paths: Iterable[str], *, owned: Collection[str]) -> Program:
    """The Python files of a tree at the paths; those in `owned` are the subject's own modules."""
    modules: list[Module] = []
    problems: dict[str, str] = {}
    for path in sorted(p for p in paths if p.endswith(".py")):
        module = build_module(tree, path, is_owned=path in owned)
        if module is None:
            problems[path] = tree.problem(path)
        else:
            modules.append(module)
    return Program(modules=tuple(modules), problems=problems, resolver=Resolver(modules))
