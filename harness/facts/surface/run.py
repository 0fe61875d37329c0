"""Follows a function's statements while one key is absent."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from harness.facts.python_effects.scopes import Module, Site
from harness.facts.python_source.walk import children, walk
from harness.facts.surface.without_key import Known, Raises, Result, WithoutKey


class Run:
    """One pass through a function's statements, both ways where a condition is not known."""

    def __init__(self, reader: WithoutKey, module: Module) -> None:
        self._reader, self._module = reader, module
        self._local: dict[str, Result] = {}
        self.returned: list[Result] = []
        self.evaluated: set[ast.AST] = set()
        self._has_raised = False

    def block(self, statements: Sequence[ast.stmt]) -> bool:
        """Runs statements; True when they certainly leave the function."""
        return any(self._statement(statement) for statement in statements)

    def _statement(self, statement: ast.stmt) -> bool:
        site = self._module.sites[statement]
        match statement:
            case ast.Return(value=value):
                self.returned.append(self._value(value, site) if value is not None else Known(None))
                self._has_raised = isinstance(self.returned[-1], Raises)
                return True
            case ast.Raise():
                return self._raise()
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._local[name] = self._value(value, site)
                return isinstance(self._local[name], Raises) and self._raise()
            case ast.If(test=test, body=body, orelse=other):
                tested = self._value(test, site)
                if isinstance(tested, Known):
                    return self.block(body if tested.value else other)
                before = dict(self._local)
                left = self.block(body)
                self._local = before
                return self.block(other) and left
            case ast.Try():
                return self._try(statement)
            case ast.For(body=body) | ast.While(body=body) | ast.With(body=body):
                return self.block(body) and isinstance(statement, ast.With)
        values = [self._value(n, site) for n in children(statement) if isinstance(n, ast.expr)]
        return any(isinstance(value, Raises) for value in values) and self._raise()

    def _raise(self) -> bool:
        self.returned.append(Raises())
        self._has_raised = True
        return True

    def _try(self, statement: ast.Try) -> bool:
        before = len(self.returned)
        left = self.block(statement.body)
        handler = next((h for h in statement.handlers if _catches_key_error(h)), None)
        if self._has_raised and handler is not None:
            del self.returned[before:]
            self._has_raised = False
            left = self.block(handler.body)
        elif not left:
            left = self.block(statement.orelse)
        return self.block(statement.finalbody) or left

    def _value(self, node: ast.expr, site: Site) -> Result:
        reached = self._reached(node, site)
        self.evaluated.update(reached)
        for part in reached:
            if isinstance(part, ast.NamedExpr):
                self._local[part.target.id] = self._reader.evaluate(part.value, site, self._local)
        return self._reader.evaluate(node, site, self._local)

    def _reached(self, node: ast.expr, site: Site) -> list[ast.AST]:
        """Expressions that are evaluated: a short circuit leaves the rest out."""
        if isinstance(node, ast.BoolOp):
            reached: list[ast.AST] = [node]
            for value in node.values:
                reached += self._reached(value, site)
                known = self._reader.evaluate(value, site, self._local)
                if isinstance(known, Known) and bool(known.value) is isinstance(node.op, ast.Or):
                    break
            return reached
        if isinstance(node, ast.IfExp):
            known = self._reader.evaluate(node.test, site, self._local)
            ways = [node.body, node.orelse]
            if isinstance(known, Known):
                ways = [node.body if known.value else node.orelse]
            return [
                node,
                *self._reached(node.test, site),
                *(n for way in ways for n in self._reached(way, site)),
            ]
        parts = [c for c in children(node) if isinstance(c, ast.expr)]
        return [node, *(n for part in parts for n in self._reached(part, site))]


def _catches_key_error(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    names = {getattr(n, "id", getattr(n, "attr", "")) for n in walk(handler.type)}
    return bool(names & {"KeyError", "LookupError", "Exception", "BaseException"})
