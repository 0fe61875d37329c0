"""Signatures before and after: what callers who know nothing of the change can tell apart."""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from harness.facts.python_source.off_path.bindings import FunctionNode
from harness.facts.python_source.off_path.calls import is_changed
from harness.facts.python_source.off_path.scopes import Function, Key
from harness.facts.python_source.walk import walk

_CALLED_BY_OTHERS = ("forward", "__call__")
"""Methods that run when the object is called, whatever its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Parameters with a constant default that functions of the base gained.

    Keys are the name that a call uses and the parameter's name or position.
    """

    defaults: Mapping[tuple[str, str | int], object]

    def without_defaults(
        self, body: list[ast.stmt], changed_lines: Collection[int]
    ) -> tuple[list[ast.stmt], list[tuple[ast.Call, str]]]:
        """Statements whose calls leave out what a new parameter is by default, and calls that may not take it."""
        if not self.defaults:
            return body, []
        trimmer = _Trimmer(self.defaults, changed_lines)
        return [trimmer.trimmed(statement) for statement in body], trimmer.doubts


def new_options(old: Mapping[Key, Function], new: Mapping[Key, Function]) -> Options:
    """The options that the functions of `new` have and those of the same key in `old` have not."""
    defaults: dict[tuple[str, str | int], object] = {}
    for key, function in new.items():
        before = old.get(key)
        for index, name in enumerate(function.parameters if before else ()):
            default = function.default(name)
            if before and name not in before.parameters and isinstance(default, ast.Constant):
                called = function.class_name if function.node.name == "__init__" else function.node.name
                for known_as in {called, function.node.name}:
                    defaults[known_as, name] = defaults[known_as, index] = default.value
    return Options(defaults=defaults)


def why_signature_differs(
    old: FunctionNode, new: FunctionNode, *, is_plain_method: bool
) -> Iterator[tuple[str, bool]]:
    """How a call that knows nothing of the change sees another function, and whether it surely does.

    New parameters are let through at the end of the positional ones, and by keyword anywhere, if their default is a
    constant. Annotations matter where a decorator, of the class too, or whoever is handed a function may read them:
    `torch.library` makes schemas of them.
    """
    if type(old) is not type(new) or _dumps(old.decorator_list) != _dumps(new.decorator_list):
        yield f"{new.name} is another kind of function or has other decorators", True
    before, after = _positional(old), _positional(new)
    known, named = _named(old), _named(new)
    added = [default for *_, default in after[len(before) :]]
    extra = [default for name, default in named.items() if name not in known]
    spread = [[a.arg if a else "" for a in (node.args.vararg, node.args.kwarg)] for node in (old, new)]
    is_same = (
        [_spelt(p) for p in after[: len(before)]] == [_spelt(p) for p in before]
        and {n: _dump(d) for n, d in named.items() if n in known} == {n: _dump(d) for n, d in known.items()}
        and spread[0] == spread[1]
        and all(isinstance(default, ast.Constant) for default in (*added, *extra))
    )
    if not is_same or (added and old.args.vararg):
        yield "the signature is another one", True
    is_read = not is_plain_method or bool(new.decorator_list)
    yield from (r for r in _why_annotations_differ(old, new) if is_read or r[1])


def new_parameters(old: FunctionNode, new: FunctionNode) -> list[str]:
    """The names of parameters that a function gained."""
    known = {argument.arg for argument in walk(old.args) if isinstance(argument, ast.arg)}
    return [a.arg for a in walk(new.args) if isinstance(a, ast.arg) and a.arg not in known]


def _why_annotations_differ(old: FunctionNode, new: FunctionNode) -> Iterator[tuple[str, bool]]:
    before, after = _annotations(old), _annotations(new)
    for name, node in after.items():
        if node is None or (name in before and ast.dump(node) == _dump(before[name])):
            continue
        if any(isinstance(n, ast.Call | ast.Await | ast.NamedExpr) for n in walk(node)):
            yield f"the annotation `{ast.unparse(node)}` runs when {new.name} is defined", True
        elif name in before:
            yield f"{name} is annotated in another way, which decorators and torch can read", False
    if any(n in after and after[n] is None for n, node in before.items() if node is not None):
        yield f"an annotation of {new.name} is gone, which decorators and torch can read", False


def _annotations(node: FunctionNode) -> dict[str, ast.expr | None]:
    arguments = [a for a in walk(node.args) if isinstance(a, ast.arg)]
    return {**{a.arg: a.annotation for a in arguments}, "what it returns": node.returns}


def _positional(node: FunctionNode) -> list[tuple[str, bool, ast.expr | None]]:
    """Name, whether by position only, and default of each."""
    args = node.args
    every = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(every) - len(args.defaults)) + list(args.defaults)
    num_only = len(args.posonlyargs)
    return [(a.arg, i < num_only, d) for i, (a, d) in enumerate(zip(every, defaults, strict=True))]


def _spelt(parameter: tuple[str, bool, ast.expr | None]) -> tuple[str, bool, str]:
    name, is_positional, default = parameter
    return name, is_positional, _dump(default)


def _named(node: FunctionNode) -> dict[str, ast.expr | None]:
    return {a.arg: d for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)}


def _dump(node: ast.expr | None) -> str:
    return "" if node is None else ast.dump(node)


def _dumps(nodes: Iterable[ast.expr | None]) -> list[str]:
    return [_dump(node) for node in nodes]


@dataclass(slots=True)
class _Trimmer:
    """Takes arguments out of calls on changed lines that equal the default of a new parameter of what is called."""

    defaults: Mapping[tuple[str, str | int], object]
    changed_lines: Collection[int]
    doubts: list[tuple[ast.Call, str]] = field(default_factory=list)

    def trimmed(self, statement: ast.stmt) -> ast.stmt:
        if not any(isinstance(node, ast.Call) and self._spare(node) for node in walk(statement)):
            return statement
        # The trees are kept for other readings: only a copy may be cut.
        copied = copy.deepcopy(statement)
        for node in walk(copied):
            while isinstance(node, ast.Call) and (spare := self._spare(node)):
                part, is_sure = spare
                if not is_sure:
                    called = ast.unparse(node.func)
                    self.doubts.append((node, f"whether {called} takes {ast.unparse(part)} cannot be told"))
                if isinstance(part, ast.keyword):
                    node.keywords.remove(part)
                else:
                    node.args.remove(part)
        return copied

    def _spare(self, node: ast.Call) -> tuple[ast.keyword | ast.expr, bool] | None:
        """An argument that is the default of a new parameter, and whether the call is of what has it."""
        if not is_changed(node, self.changed_lines):
            return None
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for called in (name, *_CALLED_BY_OTHERS):
            for keyword in node.keywords:
                if self._is_default(keyword.value, (called, keyword.arg or "")):
                    return keyword, called == name
            if node.args and called == name and self._is_default(node.args[-1], (called, len(node.args) - 1)):
                return node.args[-1], True
        return None

    def _is_default(self, value: ast.expr, key: tuple[str, str | int]) -> bool:
        return isinstance(value, ast.Constant) and key in self.defaults and self.defaults[key] == value.value
