"""What has been found out so far about the analysed files; it only grows until nothing new is found."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from harness.facts.python_source.off_path.records import Records
from harness.facts.python_source.off_path.residue import Effect
from harness.facts.python_source.off_path.scopes import Function, Key, Scopes
from harness.facts.python_source.off_path.switch import SwitchOff
from harness.facts.python_source.off_path.values import ANYTHING, BOTTOM, Value, join, unknown

_TRUTHS = ("__bool__", "__len__")


@dataclass(slots=True, kw_only=True)
class Knowledge:
    """Values of attributes, globals, parameters and calls, and which names code mentions that can run."""

    switch: SwitchOff
    scopes: Scopes
    hooks: Collection[str]
    """Paths of the hooked files; the other analysed files are the subject's own."""
    is_closed: Callable[[str], bool]
    """Whether a name occurs in the analysed files only, so that every use of it is seen."""
    old_parameters: Callable[[Key], Collection[str] | None]
    """Parameters that a function had before the change; None when there was no such function."""
    changed_lines: Callable[[str], Collection[int]]
    """Lines of a hooked file that the change wrote."""
    fresh: Collection[str]
    """Names in the hooked files that were in none of them before."""
    attributes: dict[str, Value] = field(default_factory=dict)
    globals: dict[tuple[str, str], Value] = field(default_factory=dict)
    parameters: dict[tuple[Key, str], Value] = field(default_factory=dict)
    keywords: dict[str, Value] = field(default_factory=dict)
    """Values of keyword arguments of calls whose target is not known."""
    positions: dict[int, Value] = field(default_factory=dict)
    """Values by position of arguments of changed calls whose target is not known."""
    returns: dict[Key, Value] = field(default_factory=dict)
    effects: dict[Key, Effect | None] = field(default_factory=dict)
    """What a function does besides returning a value; None when nothing."""
    live: set[str] = field(default_factory=set)
    """Names that code mentions which can run while the switch is off."""
    blur: str = ""
    """Why attributes may hold what no assignment shows; empty when every way to set one is seen."""
    names_settled: bool = False
    """Whether an attribute or global that nothing has assigned so far counts as unknown."""
    calls_settled: bool = False
    """Whether a function that has not returned so far counts as returning something unknown."""
    records: Records = field(init=False)

    def __post_init__(self) -> None:
        self.records = Records(self.scopes)

    def attribute(self, name: str) -> Value:
        """The value of an attribute whose every assignment is seen; anything for other attributes."""
        if self.blur and name in self.fresh:
            return unknown(self.blur)
        if not self.is_closed(name):
            return unknown(self.doubt(name))
        value = self.attributes.get(name, BOTTOM)
        if value.is_bottom and self.names_settled:
            return unknown(f"nothing that can be read assigns .{name}")
        return value.derive()

    def attribute_of(self, path: str, node: ast.expr, owner: Value, name: str) -> Value:
        """The value of an attribute of an object; what another's object has is not known.

        Args:
            path: the file.
            node: the expression that gives the object.
            owner: its value.
            name: of the attribute.
        """
        value = self.attribute(name)
        if value.constants is None or value.is_bottom or self.is_own(path, node, owner, name):
            return value
        return unknown(
            f"whose object `{ast.unparse(node)[:40]}` is cannot be told, so what its .{name} holds neither"
        )

    def is_own(self, path: str, node: ast.expr, owner: Value, name: str) -> bool:
        """Whether an object has nothing in an attribute but what the analysed files set."""
        if owner.is_own or owner.is_bottom:
            return True
        if isinstance(node, ast.Call):
            return isinstance(node.func, ast.Name) and node.func.id == "super"
        if isinstance(node, ast.Name) and node.id in ("self", "cls"):
            return True
        return self.records.is_like_own(path, node, name, self.is_closed)

    def doubt(self, name: str) -> str:
        """Why an attribute that the change brought cannot be followed; empty for other attributes."""
        if name in self.fresh and not self.is_closed(name):
            return f"other code uses the name {name} too, so what .{name} holds cannot be told"
        return ""

    def set_by_name(self, name: Value, value: Value) -> None:
        """`setattr`: an attribute whose name is a value."""
        if name.constants is None:
            self.blur = "an attribute is set whose name is computed"
        for _, constant in name.constants or ():
            if isinstance(constant, str):
                self.attributes[constant] = join(self.attributes.get(constant, BOTTOM), value)

    def global_value(self, path: str, name: str) -> Value:
        """The value of a module's name."""
        value = self.globals.get((path, name), BOTTOM)
        return ANYTHING if value.is_bottom and self.names_settled else value

    def record(self, table: dict[object, Value], key: object, value: Value) -> None:
        """Adds a possible value."""
        table[key] = join(table.get(key, BOTTOM), value)

    def functions_called(self, path: str, callee: ast.expr) -> tuple[Function, ...]:
        """The analysed functions that a call can mean, what decorates one in its place; none for something else."""
        found = self._functions_named(path, callee)
        return tuple(self._wrapper(function) or function for function in found)

    def _wrapper(self, function: Function) -> Function | None:
        decorators = function.node.decorator_list
        return self.scopes.wrapper_by(function.path, decorators[0]) if len(decorators) == 1 else None

    def _functions_named(self, path: str, callee: ast.expr) -> tuple[Function, ...]:
        absolute = self.scopes.absolute(path, callee)
        if isinstance(callee, ast.Name):
            local = self.scopes.functions.get((path, callee.id))
            imported = self.scopes.imports.get(path, {}).get(callee.id)
            if local is not None and imported is None:
                return (local,)
            if absolute is not None and (found := self.scopes.function_of(absolute)):
                return (found,)
            return tuple(f for f in self.scopes.by_name.get(callee.id, ()) if f.path == path and f.outer)
        if isinstance(callee, ast.Attribute):
            if absolute is not None and (found := self.scopes.function_of(absolute)):
                return (found,)
            if self.is_closed(callee.attr):
                return tuple(f for f in self.scopes.by_name.get(callee.attr, ()) if f.class_name)
        return ()

    def constructor_called(self, callee: ast.expr) -> tuple[Function, ...]:
        """The `__init__` of an analysed class that a call can mean."""
        name = callee.id if isinstance(callee, ast.Name) else getattr(callee, "attr", "")
        found = []
        for path, node in self.scopes.classes.get(name, ()):
            init = self.scopes.functions.get((path, f"{node.name}.__init__"))
            found += [init] if init is not None else []
        return tuple(found)

    def has_own_truth(self, callee: ast.expr) -> bool:
        """Whether a call can make an object of a class of the subject that says itself whether it counts as true."""
        name = callee.id if isinstance(callee, ast.Name) else getattr(callee, "attr", "")
        own = [(path, c) for path, c in self.scopes.classes.get(name, ()) if path not in self.hooks]
        return any((path, f"{c.name}.{m}") in self.scopes.functions for path, c in own for m in _TRUTHS)

    def findings(self) -> dict[tuple[str, str], object]:
        """All that was found, by table and by the name that code would use to have it."""
        found: dict[tuple[str, str], object] = {
            ("blur", ""): self.blur,
            ("positions", ""): tuple(self.positions.items()),
        }
        found |= {("attributes", name): value for name, value in self.attributes.items()}
        found |= {("keywords", name): value for name, value in self.keywords.items()}
        by_function: dict[tuple[str, str], list[object]] = defaultdict(list)
        for (path, name), value in self.globals.items():
            by_function["globals", name].append((path, value))
        for key, value in self.returns.items():
            by_function["returns", _last(key)].append((key, value))
        for key, effect in self.effects.items():
            by_function["effects", _last(key)].append((key, effect))
        for (key, name), value in self.parameters.items():
            by_function["parameters", _last(key)].append((key, name, value))
        return found | {key: tuple(values) for key, values in by_function.items()}


def _last(key: Key) -> str:
    return key[1].rpartition(".")[2]
