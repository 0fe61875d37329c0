"""The names that a function or module has while it is read from top to bottom."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from harness.facts.python_source.off_path.bindings import FunctionNode
from harness.facts.python_source.off_path.knowledge import Knowledge
from harness.facts.python_source.off_path.scopes import Key
from harness.facts.python_source.off_path.switch import CONFIG_NAME, SWITCHES
from harness.facts.python_source.off_path.values import ANYTHING, BOTTOM, Value, join, known, unknown
from harness.facts.python_source.walk import walk


@dataclass(slots=True, kw_only=True)
class Frame:
    """The names of one function or module while it is read from top to bottom."""

    path: str
    env: dict[str, Value] = field(default_factory=dict)
    stored: dict[str, int] = field(default_factory=dict)
    """How often each local name is assigned; empty for a module."""
    global_names: frozenset[str] = frozenset()
    open_names: set[str] = field(default_factory=set)
    """Names that have no value, or that of further out, on some ways to here."""
    is_module: bool = False
    is_class: bool = False
    """Whether a name that is not bound is looked for further out."""
    is_caught: bool = False
    """Whether a missing key is caught: what comes after it does not run then."""

    def copy(self) -> Frame:
        """The same names, to be changed apart."""
        return replace(self, env=dict(self.env), open_names=set(self.open_names))

    def bind(self, name: str, value: Value) -> None:
        """Gives a name a value, on every way from here."""
        self.env[name] = value
        self.open_names.discard(name)

    def bind_maybe(self, name: str, value: Value) -> None:
        """Gives a name a value where the text does not say whether that happens."""
        if name not in self.env:
            self.open_names.add(name)
        self.env[name] = join(self.env.get(name, BOTTOM), value)

    def captured(self) -> Frame:
        """What code sees that runs later: a local that is assigned again by then may be anything."""
        env = {
            name: value if self.stored.get(name, 0) <= 1 else unknown(value.taint or _later(value, name))
            for name, value in self.env.items()
        }
        return replace(self, env=env)


def start_frame(knowledge: Knowledge, path: str, node: FunctionNode, key: Key) -> Frame:
    """The names of a function as it begins: its parameters."""
    found = knowledge.scopes.stored_of
    if key not in found:
        found[key] = stored_names(node.body), _globals(node.body)
    stored, global_names = found[key]
    frame = Frame(path=path, stored=stored, global_names=global_names)
    function = knowledge.scopes.functions[key]
    is_closed = knowledge.is_closed(node.name) and not _is_dunder(node.name)
    old = knowledge.old_parameters(key)
    for argument in walk(node.args):
        if isinstance(argument, ast.arg):
            frame.env[argument.arg] = ANYTHING
    switch = knowledge.switch
    for index, name in enumerate(function.parameters):
        default = function.default(name)
        is_new = old is not None and name not in old
        if switch.kind == "additional_config" and name == CONFIG_NAME:
            value = SWITCHES
        elif switch.kind == "flag" and name == switch.name:
            value = switch.value
        elif is_closed or (key, name) in knowledge.parameters:
            value = knowledge.parameters.get((key, name), BOTTOM if is_closed else ANYTHING)
            value = (
                unknown(f"no call that gives {name} is seen")
                if value.is_bottom and knowledge.calls_settled
                else value
            )
        elif is_new and isinstance(default, ast.Constant):
            value = join(known(default.value), knowledge.keywords.get(name, BOTTOM))
            if name not in {a.arg for a in node.args.kwonlyargs}:
                value = join(value, knowledge.positions.get(index, BOTTOM))
        elif default is not None and knowledge.is_closed(name):
            value = unknown(f"what calls give for {name} cannot be told")
        else:
            continue
        frame.env[name] = value.derive()
    return frame


def stored_names(body: Iterable[ast.stmt]) -> dict[str, int]:
    """How often each name is stored in a block, nested functions included."""
    counts: Counter[str] = Counter()
    for statement in body:
        for node in walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
                counts[node.id] += 1
            elif isinstance(node, ast.Nonlocal):
                counts.update(dict.fromkeys(node.names, 2))
            elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
                counts.update(
                    {n.id: 1 for n in walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
                )
    return dict(counts)


def is_surely_bound(function: FunctionNode, place: ast.expr, name: str) -> bool:
    """Whether a local has a value wherever its function comes to a place: a parameter, or assigned on the way."""
    deleted = any(
        n.id == name for n in walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Del)
    )
    given = any(a.arg == name for a in walk(function.args) if isinstance(a, ast.arg))
    before = [
        s for s in function.body if s.lineno < place.lineno and isinstance(s, ast.Assign | ast.AnnAssign)
    ]
    assigned = {
        target.id
        for s in before
        for target in (s.targets if isinstance(s, ast.Assign) else [s.target] if s.value else [])
        if isinstance(target, ast.Name) and (s.end_lineno or s.lineno) < place.lineno
    }
    return not deleted and (given or name in assigned)


def _globals(body: Sequence[ast.stmt]) -> frozenset[str]:
    return frozenset(
        name for s in body for node in walk(s) if isinstance(node, ast.Global) for name in node.names
    )


def merge_frames(frame: Frame, ends: Sequence[Frame]) -> None:
    """The names after several ways that meet; as they are when no way leads on."""
    if not ends:
        return
    names = {name for end in ends for name in end.env}
    merged = {}
    open_names = {name for end in ends for name in end.open_names}
    for name in names:
        value = BOTTOM
        for end in ends:
            value = join(value, end.env.get(name, BOTTOM))
            if name not in end.env:
                open_names.add(name)
        if frame.is_class and name in open_names:
            value = unknown(f"{name} is bound on some ways only, and is another one on the others")
        merged[name] = value
    frame.env, frame.open_names = merged, open_names


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _later(value: Value, name: str) -> str:
    return f"{name} may have changed by then" if value.switched else ""
