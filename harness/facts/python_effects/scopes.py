"""Scopes of a module: which names are bound where, and every place that a reader of effects looks at."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(eq=False, slots=True, repr=False)
class Block:
    """A list of statements inside a scope."""

    parent: Block | None = None
    is_loop: bool = False
    test: ast.expr | None = None
    """The condition under which it runs."""
    holds: bool = True
    """The value of `test` in this block."""
    finals: Sequence[ast.stmt] = ()
    """Statements of the `finally` that belongs to the `try` around it."""
    with_items: Sequence[ast.withitem] = ()
    handles: ast.ExceptHandler | None = None
    """The handler whose body it is."""
    is_caught: bool = False
    """Whether it is the body of a `try` that has handlers."""
    statements: Sequence[ast.stmt] = ()
    start: int = 0
    """Position of the statement that it is part of."""
    other: Block | None = None
    """The other block of an `if` that has both: one of them runs."""

    @property
    def leaves(self) -> bool:
        """Whether nothing after it runs."""
        return bool(self.statements) and isinstance(
            self.statements[-1], ast.Return | ast.Raise | ast.Continue | ast.Break
        )

    def chain(self) -> Iterator[Block]:
        """The block and those around it, innermost first."""
        block: Block | None = self
        while block is not None:
            yield block
            block = block.parent


@dataclass(eq=False, slots=True, repr=False)
class Scope:
    """A module, class, function, lambda or comprehension."""

    kind: Literal["module", "class", "function", "comprehension"]
    node: ast.AST
    parent: Scope | None
    module: Module
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    global_names: set[str] = field(default_factory=set)
    nonlocal_names: set[str] = field(default_factory=set)

    def chain(self) -> Iterator[Scope]:
        """The scope and those around it, innermost first."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    @property
    def function(self) -> ast.AST | None:
        """The function that the code runs in; None while the module is imported."""
        return next((scope.node for scope in self.chain() if scope.kind == "function"), None)

    @property
    def qualified_name(self) -> str:
        """Names of the classes and functions around, with dots."""
        names = [getattr(s.node, "name", "<lambda>") for s in self.chain() if s.kind in ("class", "function")]
        return ".".join(reversed(names))


@dataclass(eq=False, slots=True, repr=False)
class Site:
    """A place in a scope: where an expression is evaluated."""

    scope: Scope
    block: Block
    position: int
    """Order of statements in the module's text."""


@dataclass(eq=False, slots=True, repr=False)
class Binding:
    """One way in which a name gets a value."""

    kind: Literal["import", "value", "element", "definition", "parameter", "unknown", "deleted", "entered"]
    site: Site
    node: ast.AST | None = None
    index: int | None = None
    """Which item of the value, where it is unpacked."""
    dotted: str = ""
    is_inline: bool = False
    """Whether an expression binds it, which may stand before the place in the same statement."""


@dataclass(eq=False, slots=True, repr=False)
class Module:
    """One parsed file."""

    path: str
    name: str
    """Dotted, as it is imported."""
    package: str
    """What relative imports start from."""
    is_owned: bool
    tree: ast.Module
    lines: Sequence[str]
    visits: list[tuple[ast.AST, Site]] = field(default_factory=list)
    """Calls, assignments, deletions, loops, `with` statements and bare decorators, in the order of the text."""
    decorated: dict[ast.AST, Definition] = field(default_factory=dict)
    """What a decorator is put on, by the decorator's expression."""
    star_imports: list[str] = field(default_factory=list)
    sites: dict[ast.AST, Site] = field(default_factory=dict)
    """Of every statement, function, class and lambda: where it stands; a scope's own site is in `inner`."""
    inner: dict[ast.AST, Scope] = field(default_factory=dict)
    readings: list[tuple[ast.expr, Site]] | None = None
    """Calls, attributes, subscripts and comparisons with their places, once somebody asked for them."""

    @property
    def root(self) -> Scope:
        """The module's own scope."""
        return self.inner[self.tree]


def all_arguments(arguments: ast.arguments) -> list[ast.arg]:
    """Every parameter, in the order of the signature."""
    plain = [*arguments.posonlyargs, *arguments.args]
    star = [arguments.vararg] if arguments.vararg else []
    keywords = [arguments.kwarg] if arguments.kwarg else []
    return [*plain, *star, *arguments.kwonlyargs, *keywords]
