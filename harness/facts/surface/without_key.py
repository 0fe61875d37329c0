"""The value of an expression while one key is absent, as far as its text decides it."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.facts.python_effects.resolve import Resolver
from harness.facts.python_effects.scopes import Site
from harness.facts.python_effects.values import Constant, OwnClass, texts

_CONVERSIONS = {"str": str, "bool": bool, "int": int, "float": float}
_TEXT_METHODS = ("lower", "upper", "strip", "casefold")


@dataclass(frozen=True, slots=True)
class Known:
    """A value that the text fixes."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raises:
    """An expression that raises KeyError."""


Result = Known | Raises | None
"""None: the text does not say."""


class WithoutKey:
    """Evaluates expressions of a program for a configuration that lacks one key."""

    def __init__(self, resolver: Resolver, key: str) -> None:
        self.resolver = resolver
        self.key = key

    def reads_key(self, node: ast.expr, site: Site) -> bool:
        match node:
            case ast.Call(func=ast.Attribute(attr="get" | "pop" | "getenv"), args=[key, *_]):
                return self._is_key(key, site)
            case ast.Call(func=ast.Name(id="getenv"), args=[key, *_]):
                return self._is_key(key, site)
            case ast.Call(func=ast.Name(id="getattr"), args=[_, key, *_]):
                return self._is_key(key, site)
            case ast.Subscript(slice=key, ctx=ast.Load()):
                return self._is_key(key, site)
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[container]):
                if isinstance(container, (ast.Tuple, ast.List, ast.Set, ast.Constant)):
                    return False
                return self._is_key(key, site)
        return False

    def _is_key(self, node: ast.expr, site: Site) -> bool:
        if isinstance(node, (ast.Slice, ast.Tuple)) or (
            isinstance(node, ast.Constant) and node.value != self.key
        ):
            return False
        return texts(self.resolver.evaluate(node, site)) == (self.key,)

    def evaluate(self, node: ast.expr, site: Site, local: Mapping[str, Result] | None = None) -> Result:
        """The value of an expression while the key is absent."""
        if self.reads_key(node, site):
            return self._absent_read(node, site, local)
        match node:
            case ast.Constant(value=value):
                return Known(value)
            case ast.Name(id=name) if local is not None and name in local:
                return local[name]
            case ast.Attribute(attr=attr) if local is not None and f".{attr}" in local:
                return local[f".{attr}"]
            case ast.NamedExpr(value=value):
                return self.evaluate(value, site, local)
            case ast.Dict() | ast.Tuple() | ast.List() | ast.Set():
                try:
                    return Known(ast.literal_eval(node))
                except (ValueError, TypeError, SyntaxError):
                    return None
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self.evaluate(operand, site, local)
                return Known(not inner.value) if isinstance(inner, Known) else inner
            case ast.BoolOp(op=op, values=values):
                return self._bool_op(op, values, site, local)
            case ast.IfExp(test=test, body=body, orelse=other):
                tested = self.evaluate(test, site, local)
                if isinstance(tested, Known):
                    return self.evaluate(body if tested.value else other, site, local)
                return None
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return _compare(self.evaluate(left, site, local), op, self.evaluate(right, site, local))
            case ast.Call():
                return self._call(node, site, local)
        held = self.resolver.evaluate(node, site)
        constants = [v.value for v in held if isinstance(v, Constant)]
        return Known(constants[0]) if len(held) == 1 and constants else None

    def _absent_read(self, node: ast.expr, site: Site, local: Mapping[str, Result] | None) -> Result:
        match node:
            case ast.Subscript():
                return Raises()
            case ast.Compare(ops=[op]):
                return Known(isinstance(op, ast.NotIn))
            case ast.Call(func=func, args=arguments, keywords=keywords):
                is_getattr = isinstance(func, ast.Name) and func.id == "getattr"
                rest = arguments[2:] if is_getattr else arguments[1:]
                rest += [k.value for k in keywords if k.arg == "default"]
                if rest:
                    return self.evaluate(rest[0], site, local)
                raises = is_getattr or (isinstance(func, ast.Attribute) and func.attr == "pop")
                return Raises() if raises else Known(None)
        return None

    def _bool_op(
        self, op: ast.boolop, values: Sequence[ast.expr], site: Site, local: Mapping[str, Result] | None
    ) -> Result:
        is_or = isinstance(op, ast.Or)
        unknown = False
        last: Result = None
        for value in values:
            last = self.evaluate(value, site, local)
            if isinstance(last, Raises):
                return None if unknown else last
            if last is None:
                unknown = True
            elif bool(last.value) is is_or:
                return Known(is_or) if unknown else last
        return None if unknown else last

    def _call(self, node: ast.Call, site: Site, local: Mapping[str, Result] | None) -> Result:
        if isinstance(node.func, ast.Attribute):
            owner = self.evaluate(node.func.value, site, local)
            if isinstance(owner, Known) and isinstance(owner.value, str) and node.func.attr in _TEXT_METHODS:
                return Known(getattr(owner.value, node.func.attr)())
            if isinstance(owner, Known) and isinstance(owner.value, dict) and node.func.attr == "get":
                arguments = [self.evaluate(a, site, local) for a in node.args]
                if all(isinstance(a, Known) for a in arguments) and arguments:
                    plain = [a.value for a in arguments if isinstance(a, Known)]
                    return Known(owner.value.get(*plain[:2]))
            return None
        if len(node.args) != 1 or node.keywords:
            return None
        argument = self.evaluate(node.args[0], site, local)
        name = getattr(node.func, "id", "")
        if name in _CONVERSIONS and isinstance(argument, Known):
            try:
                return Known(_CONVERSIONS[name](argument.value))
            except (TypeError, ValueError):
                return Raises()
        if any(isinstance(v, OwnClass) and _is_enum(v) for v in self.resolver.evaluate(node.func, site)):
            return argument
        return None


def _compare(left: Result, op: ast.cmpop, right: Result) -> Result:
    if isinstance(left, Raises):
        return left
    if not isinstance(left, Known) or not isinstance(right, Known):
        return right if isinstance(right, Raises) else None
    try:
        match op:
            case ast.Eq() | ast.Is():
                return Known(left.value == right.value)
            case ast.NotEq() | ast.IsNot():
                return Known(left.value != right.value)
            case ast.In():
                return Known(left.value in right.value)
            case ast.NotIn():
                return Known(left.value not in right.value)
    except TypeError:
        return None
    return None


def _is_enum(own: OwnClass) -> bool:
    return any("Enum" in ast.unparse(base) for base in own.node.bases)
