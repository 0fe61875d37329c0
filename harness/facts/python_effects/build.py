"""Builds the scopes of a module out of its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from harness.facts.python_effects.scopes import (
    Binding,
    Block,
    Definition,
    FunctionNode,
    Module,
    Scope,
    Site,
    all_arguments,
)
from harness.facts.python_source.names import resolve_relative
from harness.facts.python_source.tree import SourceTree
from harness.facts.python_source.walk import children

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LOOKED_AT = (
    ast.Call,
    ast.Assign,
    ast.AugAssign,
    ast.AnnAssign,
    ast.Delete,
    ast.For,
    ast.AsyncFor,
    ast.With,
    ast.AsyncWith,
    ast.Raise,
    ast.Assert,
    ast.Expr,
)


def build_module(tree: SourceTree, path: str, *, is_owned: bool) -> Module | None:
    """The module of a file; None where it cannot be parsed."""
    parsed = tree.parse(path)
    if parsed is None:
        return None
    module = Module(
        path=path,
        name=tree.module_of(path),
        package=tree.package_of(path),
        is_owned=is_owned,
        tree=parsed,
        lines=tree.lines(path),
    )
    _Builder(module).build()
    return module


class _Builder:
    """Fills a module's scopes."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._position = 0

    def build(self) -> None:
        """Visits the whole tree."""
        scope = self._scope("module", self._module.tree, None)
        self._statements(self._module.tree.body, scope, Block())

    def _scope(
        self,
        kind: Literal["module", "class", "function", "comprehension"],
        node: ast.AST,
        parent: Scope | None,
    ) -> Scope:
        scope = Scope(kind=kind, node=node, parent=parent, module=self._module)
        self._module.inner[node] = scope
        return scope

    def _statements(self, statements: Sequence[ast.stmt], scope: Scope, block: Block) -> None:
        block.statements = statements
        for statement in statements:
            self._position += 1
            site = Site(scope, block, self._position)
            self._module.sites[statement] = site
            self._statement(statement, site)

    def _statement(self, statement: ast.stmt, site: Site) -> None:
        if isinstance(statement, _LOOKED_AT):
            self._module.visits.append((statement, site))
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._definition(statement, site)
                return
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                kind = "global_names" if isinstance(statement, ast.Global) else "nonlocal_names"
                getattr(site.scope, kind).update(names)
                return
            case ast.Import() | ast.ImportFrom():
                self._import(statement, site)
                return
            case ast.If(test=test):
                self._if(statement, test, site)
                return
        for name, value in ast.iter_fields(statement):
            self._field(statement, name, value, site)
        self._bind_statement(statement, site)

    def _field(self, statement: ast.stmt, name: str, value: object, site: Site) -> None:
        """One field of a compound or simple statement."""
        if isinstance(value, ast.expr):
            self._expression(value, site)
        elif isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            is_loop = isinstance(statement, (ast.For, ast.AsyncFor, ast.While)) and name == "body"
            is_try = isinstance(statement, (ast.Try, ast.TryStar)) and name != "finalbody"
            finals = statement.finalbody if is_try and isinstance(statement, (ast.Try, ast.TryStar)) else ()
            items = statement.items if isinstance(statement, (ast.With, ast.AsyncWith)) else ()
            is_caught = name == "body" and bool(getattr(statement, "handlers", ()))
            block = Block(
                parent=site.block, is_loop=is_loop, finals=finals, with_items=items, is_caught=is_caught
            )
            if is_loop and isinstance(statement, (ast.For, ast.AsyncFor)):
                # Of no elements the loop binds nothing.
                inside = Site(site.scope, block, site.position)
                self._bind_target(statement.target, Binding("element", inside, statement.iter))
            self._statements(value, site.scope, block)
        elif isinstance(value, list):
            for item in value:
                self._item(statement, item, site)

    def _item(self, statement: ast.stmt, item: object, site: Site) -> None:
        """An element of a statement's list that is no statement: an expression, handler, `with` item or case."""
        if isinstance(item, ast.expr):
            self._expression(item, site)
        elif isinstance(item, ast.ExceptHandler):
            block = Block(parent=site.block, handles=item)
            if item.name:
                self._bind(item.name, Binding("unknown", Site(site.scope, block, site.position)))
            self._statements(item.body, site.scope, block)
        elif isinstance(item, ast.withitem):
            self._expression(item.context_expr, site)
        elif isinstance(item, ast.match_case):
            block = Block(parent=site.block)
            inside = Site(site.scope, block, site.position)
            if isinstance(statement, ast.Match):
                self._pattern(item.pattern, statement.subject, inside)
            self._statements(item.body, site.scope, block)

    def _pattern(self, pattern: ast.pattern, subject: ast.expr, site: Site) -> None:
        """Binds what a pattern names to the part of the subject that it stands for."""
        load = ast.Load()
        match pattern:
            case ast.MatchAs(pattern=inner, name=name) if name or inner:
                if name:
                    self._bind(name, Binding("value", site, subject))
                if inner is not None:
                    self._pattern(inner, subject, site)
            case ast.MatchOr(patterns=parts):
                for part in parts:
                    self._pattern(part, subject, site)
            case ast.MatchSequence(patterns=parts):
                star = next((i for i, p in enumerate(parts) if isinstance(p, ast.MatchStar)), len(parts))
                for index, part in enumerate(parts):
                    place = ast.Constant(index if index < star else index - len(parts))
                    self._pattern(
                        part, ast.Subscript(subject, place, load) if index != star else subject, site
                    )
            case ast.MatchStar(name=str(name)):
                self._bind(name, Binding("value", site, ast.List([ast.Starred(subject, load)], load)))
            case ast.MatchMapping(keys=keys, patterns=parts, rest=rest):
                for key, part in zip(keys, parts, strict=True):
                    self._pattern(part, ast.Subscript(subject, key, load), site)
                if rest:
                    self._bind(rest, Binding("value", site, subject))
            case ast.MatchClass(patterns=parts, kwd_attrs=names, kwd_patterns=named):
                for index, part in enumerate(parts):
                    self._pattern(part, ast.Subscript(subject, ast.Constant(index), load), site)
                for name, part in zip(names, named, strict=True):
                    self._pattern(part, ast.Attribute(subject, name, load), site)

    def _if(self, statement: ast.If, test: ast.expr, site: Site) -> None:
        self._expression(test, site)
        body, orelse = (
            Block(parent=site.block, test=test, holds=holds, start=site.position) for holds in (True, False)
        )
        if statement.orelse:
            body.other, orelse.other = orelse, body
        self._statements(statement.body, site.scope, body)
        self._statements(statement.orelse, site.scope, orelse)

    def _definition(self, node: Definition, site: Site) -> None:
        for decorator in node.decorator_list:
            self._module.decorated[decorator] = node
            if not isinstance(decorator, ast.Call):
                self._module.visits.append((decorator, site))
            self._expression(decorator, site)
        if isinstance(node, ast.ClassDef):
            for expression in (*node.bases, *(keyword.value for keyword in node.keywords)):
                self._expression(expression, site)
            inner = self._scope("class", node, site.scope)
        else:
            inner = self._function_scope(node, site)
        self._bind(node.name, Binding("definition", site, node))
        self._statements(node.body, inner, Block())

    def _function_scope(self, node: FunctionNode, site: Site) -> Scope:
        arguments = node.args
        for default in (*arguments.defaults, *arguments.kw_defaults):
            if default is not None:
                self._expression(default, site)
        inner = self._scope("function", node, site.scope)
        inner_site = Site(inner, Block(), self._position)
        for argument in all_arguments(arguments):
            binding = Binding("parameter", inner_site, node)
            inner.bindings.setdefault(argument.arg, []).append(binding)
        return inner

    def _expression(self, root: ast.expr, site: Site) -> None:
        """Visits an expression without recursion: text may be nested more deeply than the stack."""
        stack: list[tuple[ast.AST, Site]] = [(root, site)]
        while stack:
            node, here = stack.pop()
            if isinstance(node, ast.Call):
                self._module.visits.append((node, here))
            if isinstance(node, ast.Lambda):
                self._module.sites[node] = here
                inner = self._function_scope(node, here)
                here = Site(inner, Block(), self._position)
                stack.append((node.body, here))
                continue
            if isinstance(node, _COMPREHENSIONS):
                here = self._comprehension(node, here)
            elif isinstance(node, ast.NamedExpr):
                self._bind_target(node.target, Binding("value", here, node.value, is_inline=True))
            sometimes = _evaluated_sometimes(node)
            there = Site(here.scope, Block(parent=here.block), here.position) if sometimes else here
            stack += [(child, there if child in sometimes else here) for child in children(node)]

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, site: Site
    ) -> Site:
        inner = Site(self._scope("comprehension", node, site.scope), site.block, site.position)
        for generator in node.generators:
            self._bind_target(generator.target, Binding("element", inner, generator.iter))
        return inner

    def _import(self, node: ast.Import | ast.ImportFrom, site: Site) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                dotted = alias.name if alias.asname else name
                self._bind(name, Binding("import", site, dotted=dotted))
            return
        origin = imported_from(self._module, node)
        for alias in node.names:
            if alias.name == "*":
                self._module.star_imports.append(origin)
            else:
                self._bind(
                    alias.asname or alias.name, Binding("import", site, dotted=f"{origin}.{alias.name}")
                )

    def _bind_statement(self, statement: ast.stmt, site: Site) -> None:
        match statement:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind_target(target, Binding("value", site, value))
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._bind_target(target, Binding("value", site, value))
            case ast.AugAssign(target=target):
                self._bind_target(target, Binding("unknown", site))
            case ast.Delete(targets=targets):
                for target in targets:
                    self._bind_target(target, Binding("deleted", site))
            case ast.With(items=items) | ast.AsyncWith(items=items):
                for item in items:
                    if item.optional_vars is not None:
                        self._bind_target(item.optional_vars, Binding("entered", site, item.context_expr))

    def _bind_target(self, target: ast.expr, binding: Binding) -> None:
        if isinstance(target, ast.Name):
            self._bind(target.id, binding)
        elif isinstance(target, ast.Starred):
            self._bind_target(target.value, Binding("unknown", binding.site))
        elif isinstance(target, (ast.Tuple, ast.List)) and (parts := _unpacked(target, binding)):
            for element, given in zip(target.elts, parts, strict=True):
                inner = element.value if isinstance(element, ast.Starred) else element
                self._bind_target(inner, replace(binding, node=given))
        elif isinstance(target, (ast.Tuple, ast.List)):
            for index, element in enumerate(target.elts):
                part = replace(binding, index=index)
                nested = isinstance(element, (ast.Tuple, ast.List)) or binding.index is not None
                self._bind_target(element, Binding("unknown", binding.site) if nested else part)

    def _bind(self, name: str, binding: Binding) -> None:
        scope = binding.site.scope
        while scope.kind == "comprehension" and binding.kind == "value" and scope.parent is not None:
            scope = scope.parent  # what := binds outlives the comprehension
        if name in scope.nonlocal_names:
            outer = (s for s in scope.chain() if s is not scope and s.kind == "function")
            scope = next(outer, scope)
        if name in scope.global_names:
            scope = next(s for s in scope.chain() if s.kind == "module")
        scope.bindings.setdefault(name, []).append(binding)


def _unpacked(target: ast.Tuple | ast.List, binding: Binding) -> list[ast.expr]:
    """What each element of a target gets of a display that is written out; nothing where it cannot be told."""
    given = binding.node
    if binding.kind != "value" or binding.index is not None or not isinstance(given, (ast.Tuple, ast.List)):
        return []
    stars = [i for i, element in enumerate(target.elts) if isinstance(element, ast.Starred)]
    if any(isinstance(element, ast.Starred) for element in given.elts):
        return []
    if not stars:
        return given.elts if len(given.elts) == len(target.elts) else []
    first, after = stars[0], len(target.elts) - stars[0] - 1
    end = len(given.elts) - after
    return (
        [*given.elts[:first], ast.List(given.elts[first:end], ast.Load()), *given.elts[end:]]
        if end >= first
        else []
    )


def _evaluated_sometimes(node: ast.AST) -> Sequence[ast.AST]:
    """The parts of an expression that need not be evaluated where it is."""
    match node:
        case ast.BoolOp(values=[_, *rest]):
            return rest
        case ast.IfExp(body=body, orelse=orelse):
            return body, orelse
        case ast.Compare(comparators=[_, *rest]):
            return rest
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            return children(node)
    return ()


def imported_from(module: Module, node: ast.ImportFrom) -> str:
    """The dotted name of the module that a `from` import reads, relative ones resolved."""
    return resolve_relative(module.package, node.level, node.module) or node.module or ""
