"""Expressions while the switch is off: their value, and what is left of them."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from harness.facts.python_source.names import dotted
from harness.facts.python_source.off_path.calls import Calls
from harness.facts.python_source.off_path.enums import Enums, value_of_member
from harness.facts.python_source.off_path.folds import Folds
from harness.facts.python_source.off_path.frames import Frame
from harness.facts.python_source.off_path.knowledge import Knowledge
from harness.facts.python_source.off_path.residue import effect_of_condition
from harness.facts.python_source.off_path.switch import CONFIG_NAME, EMPTY, SWITCHES
from harness.facts.python_source.off_path.values import (
    ANYTHING,
    BOTTOM,
    COMPARISONS,
    Value,
    combine,
    display,
    join,
    join_all,
    known,
    unknown,
)
from harness.facts.python_source.walk import walk

Reduced = tuple[Value, ast.expr]
_BUILTINS = frozenset(dir(builtins))
N = TypeVar("N", bound=ast.AST)


class Expressions:
    """Reads expressions with what is known."""

    def __init__(self, knowledge: Knowledge) -> None:
        self.knowledge = knowledge
        self.switch = knowledge.switch
        self._calls = Calls(knowledge, self.attribute_value)
        self._enums = Enums(knowledge.scopes)
        self._folds = Folds(knowledge=knowledge, read=self.read)
        self._is_sometimes = False
        self._readers: dict[type[ast.expr], Callable[..., Reduced]] = {
            ast.Constant: self._constant,
            ast.Name: self._name,
            ast.Attribute: self._attribute,
            ast.Call: self._call,
            ast.Compare: self._compare,
            ast.BoolOp: self._bool_op,
            ast.UnaryOp: self._unary_op,
            ast.IfExp: self._if_exp,
            ast.NamedExpr: self._named,
            ast.Subscript: self._subscript,
            ast.Tuple: self._sequence,
            ast.List: self._sequence,
            ast.Set: self._sequence,
            ast.Dict: self._dict,
            ast.Lambda: self._lambda,
        }

    def read(self, node: ast.expr, frame: Frame) -> Reduced:
        """Value and remainder of an expression; what is known because the switch is off becomes a constant."""
        value, left = self._readers.get(type(node), self._other)(node, frame)
        if isinstance(left, ast.Constant) or not (value.single and value.derived and _spellable(value)):
            return value, left
        if self.has_effects(node, frame) or any(map(_binds_unsettled, walk(left))):
            return value, left
        if _asks_first(left):
            return value, left
        return value, ast.copy_location(ast.Constant(value.constant), node)

    def has_effects(self, node: ast.expr, frame: Frame) -> bool:
        """Whether an expression calls an analysed function that does more than return a value."""
        return any(self._calls.effect(n, frame.path) for n in walk(node) if isinstance(n, ast.Call))

    def attribute_value(self, node: ast.expr, owner_value: Value, attribute: str, path: str) -> Value:
        """The value of `node.attribute`, of which `node` has a value."""
        switch = self.switch
        if switch.kind == "additional_config" and attribute == CONFIG_NAME:
            return SWITCHES
        if switch.kind == "flag" and attribute == switch.name:
            return switch.value
        absolute = self.knowledge.scopes.absolute(
            path, ast.Attribute(value=node, attr=attribute, ctx=ast.Load())
        )
        if switch.kind == "env":
            if absolute == "os.environ":
                return SWITCHES
            if attribute == switch.key:
                return self._environment_getter(node, path)
        if absolute is not None:
            module, _, name = absolute.rpartition(".")
            owner = self.knowledge.scopes.tree.path_of(module)
            if owner is not None and owner in self.knowledge.scopes.imports:
                whole = ast.Attribute(value=node, attr=attribute, ctx=ast.Load())
                doubt = self.knowledge.scopes.why_unsure(path, whole)
                return unknown(doubt) if doubt else self.knowledge.global_value(owner, name)
            first = absolute.partition(".")[0]
            if self.knowledge.scopes.is_import(path, node) and first not in self.knowledge.scopes.roots:
                return ANYTHING
        return self.knowledge.attribute_of(path, node, owner_value, attribute)

    def _constant(self, node: ast.Constant, _frame: Frame) -> Reduced:
        return known(node.value), node

    def _name(self, node: ast.Name, frame: Frame) -> Reduced:
        if self._is_bound(node.id, frame):
            node.is_bound = True  # type: ignore[attr-defined]
        if node.id in frame.env:
            node.is_mapping = bool(frame.env[node.id].mapping)  # type: ignore[attr-defined]
            value = frame.env[node.id]
            if node.id in frame.open_names and value.constants:
                taint = f"{node.id} has no value on some ways" if value.switched else ""
                value = unknown(taint) if taint else replace(value, derived=False)
            return value, node
        return self._global(node.id, frame.path), node

    def _is_bound(self, name: str, frame: Frame) -> bool:
        """Whether a name has a value here, as far as the order of the statements shows."""
        scopes = self.knowledge.scopes
        at_top = name in scopes.imports.get(frame.path, {}) or (frame.path, name) in scopes.functions
        is_here = name in frame.env and name not in frame.open_names
        return is_here or name in _BUILTINS or (at_top and name not in frame.stored)

    def _global(self, name: str, path: str) -> Value:
        imported = self.knowledge.scopes.imports.get(path, {}).get(name)
        if imported is None:
            if (path, name) not in self.knowledge.globals:
                return ANYTHING
            return self._unsure(path, name) or self.knowledge.global_value(path, name)
        if imported == "os.environ" and self.switch.kind == "env":
            return SWITCHES
        module, _, attribute = imported.rpartition(".")
        owner = self.knowledge.scopes.tree.path_of(module)
        if imported == "typing.TYPE_CHECKING":
            return known(False, derived=True)
        if owner is None or owner not in self.knowledge.scopes.imports:
            return ANYTHING
        return self._unsure(path, name) or self.knowledge.global_value(owner, attribute)

    def _unsure(self, path: str, name: str) -> Value | None:
        """The unknown value of a name that may be bound again; None when it is not."""
        doubt = self.knowledge.scopes.why_unsure(path, ast.Name(id=name, ctx=ast.Load()))
        return unknown(doubt) if doubt else None

    def _attribute(self, node: ast.Attribute, frame: Frame) -> Reduced:
        if dotted(node) == "typing.TYPE_CHECKING":
            return known(False, derived=True), node
        return self._attribute_of(node, *self.read(node.value, frame), frame)

    def _attribute_of(self, node: ast.Attribute, inner: Value, left: ast.expr, frame: Frame) -> Reduced:
        kept = _with(node, value=left)
        # What the file read before the change, it can read now; a name of the change may be missing.
        kept.is_bound = node.attr not in self.knowledge.fresh  # type: ignore[attr-defined]
        if node.attr == "__dict__" and frame.path in self.knowledge.hooks:
            self.knowledge.blur = "attributes are reached through their dictionary"
        is_sure = dotted(node.value) not in frame.env and not self.knowledge.scopes.why_unsure(
            frame.path, node
        )
        member = self._enums.by_name(frame.path, node) if is_sure else None
        if member is not None:
            return known(member), kept
        if node.attr == "value" and (of_member := value_of_member(inner)) is not None:
            return of_member, kept
        if properties := self._calls.properties(node):
            value = join_all(map(self._calls.returned, properties))
            doubt = "" if value.is_bottom else self._calls.why_replaced(node)
            return unknown(doubt) if doubt else value, kept
        if self._calls.is_method(node):
            kept.is_bound = True  # type: ignore[attr-defined]
            return ANYTHING, kept
        value = self.attribute_value(node.value, inner, node.attr, frame.path)
        if value.mapping:
            kept.is_bound = kept.is_mapping = True  # type: ignore[attr-defined]
        if value.constants is None and not value.mapping:
            value = replace(value, taint=value.taint or inner.taint)
        return value, kept

    def _call(self, node: ast.Call, frame: Frame) -> Reduced:
        owner, callee = self._callee(node.func, frame)
        arguments = [self.read(a, frame) for a in node.args]
        keywords = [(k.arg, *self.read(k.value, frame)) for k in node.keywords]
        left = _with(
            node,
            func=callee if not isinstance(callee, ast.Constant) else node.func,
            args=[a for _, a in arguments],
            keywords=[
                ast.copy_location(ast.keyword(arg=k.arg, value=a), k)
                for k, (_, _, a) in zip(node.keywords, keywords, strict=True)
            ],
        )
        values = [value for value, _ in arguments]
        named = {name: value for name, value, _ in keywords if name is not None}
        if doubt := self._shadow(node.func, frame):
            return unknown(doubt), left
        made = (
            self._enums.by_value(frame.path, node.func, values[0]) if len(values) == 1 and not named else None
        )
        value = made or self._folded(node, frame) or self._calls.value(node, frame, owner, values, named)
        is_read = bool(owner.mapping) and self._calls.only_reads(node, values)
        if is_read or self._calls.does_nothing(node, frame.path):
            left.is_quiet = True  # type: ignore[attr-defined]
        if effect := self._calls.effect(node, frame.path):
            left.effect = effect  # type: ignore[attr-defined]
        return value, left

    def _folded(self, node: ast.Call, frame: Frame) -> Value | None:
        """The value of a call of `any` or `all`, or of the `get` of a dictionary that is written out."""
        match node:
            case ast.Call(func=ast.Name(id="any" | "all" as name) as callee, args=[given], keywords=[]):
                is_builtin = self._calls.is_builtin(callee, frame)
                return self._folds.quantified(name, given, frame) if is_builtin else None
            case ast.Call(func=ast.Attribute(value=table, attr="get"), args=[key], keywords=[]):
                return self._folds.looked_up(table, key, ast.Constant(None), frame)
            case ast.Call(func=ast.Attribute(value=table, attr="get"), args=[key, default], keywords=[]):
                return self._folds.looked_up(table, key, default, frame)
        return None

    def _callee(self, node: ast.expr, frame: Frame) -> Reduced:
        """The value of `x` in `x.method(...)`, and what is left of all that is called."""
        if not isinstance(node, ast.Attribute) or dotted(node) == "typing.TYPE_CHECKING":
            return ANYTHING, self.read(node, frame)[1]
        owner, left = self.read(node.value, frame)
        value, callee = self._attribute_of(node, owner, left, frame)
        is_constant = value.single and value.derived and _spellable(value)
        return owner, node if is_constant else callee

    def _shadow(self, callee: ast.expr, frame: Frame) -> str:
        """Why a name is not what the top of its file says; empty when it is."""
        name = (dotted(callee) or "").partition(".")[0]
        scopes = self.knowledge.scopes
        if name in frame.env and not frame.is_module and not scopes.is_nested(frame.path, name):
            known_as = scopes.imports.get(frame.path, {}).get(name) or (frame.path, name) in scopes.functions
            return (
                f"{name} is bound again in the function, so what it calls cannot be told" if known_as else ""
            )
        if scopes.is_nested(frame.path, name) and frame.stored.get(name):
            return f"{name} is bound again in the function, so what it calls cannot be told"
        return scopes.why_unsure(frame.path, callee)

    def _compare(self, node: ast.Compare, frame: Frame) -> Reduced:
        pairs = [self.read(e, frame) for e in (node.left, node.comparators[0])]
        pairs += [self._read_maybe(e, frame) for e in node.comparators[1:]]
        left = _with(node, left=pairs[0][1], comparators=[e for _, e in pairs[1:]])
        results = []
        for operation, (a, _), (b, _) in zip(node.ops, pairs, pairs[1:], strict=False):
            name = type(operation).__name__
            if b.mapping and name in ("In", "NotIn"):
                results.append(self._contains(a, b, negated=name == "NotIn"))
            else:
                results.append(combine(COMPARISONS[name], a, b))
        if len(results) == 1:
            return results[0], left
        return combine(lambda *found: all(found), *results), left

    def _contains(self, key: Value, mapping: Value, *, negated: bool) -> Value:
        if not key.single or key.constant != self.switch.key:
            return unknown("" if key.single else "a key that is computed")
        return combine(lambda found: found != negated, self.switch.contains(mapping))

    def _bool_op(self, node: ast.BoolOp, frame: Frame) -> Reduced:
        """Drops operands that decide nothing, and those after one that decides."""
        ends_at = isinstance(node.op, ast.Or)
        kept: list[Reduced] = []
        last: Reduced = (ANYTHING, node)
        for operand in node.values:
            last = (self._read_maybe if kept else self.read)(operand, frame)
            if self.switch.fills(last[0]):
                kept += [last] if ends_at else []
                if ends_at:
                    break
            elif not last[0].derived or last[0].truth is None:
                kept.append(last)
            elif last[0].truth is ends_at:
                if not kept:
                    return last
                kept.append(last)
                if last[0].single and isinstance(last[0].constant, bool):
                    return known(ends_at, derived=True), _with(node, values=[left for _, left in kept])
                break
        if len(kept) <= 1:
            value, left = kept[0] if kept else last
            return value.derive(), left
        return _one_of([value for value, _ in kept]), _with(node, values=[left for _, left in kept])

    def _unary_op(self, node: ast.UnaryOp, frame: Frame) -> Reduced:
        value, left = self.read(node.operand, frame)
        if isinstance(node.op, ast.Not):
            truth = value.truth
            if truth is not None:
                return known(not truth, derived=value.derived, switched=value.switched), _with(
                    node, operand=left
                )
            return combine(lambda x: not x, value), _with(node, operand=left)
        if isinstance(node.op, ast.USub):
            return combine(lambda x: -x, value), _with(node, operand=left)
        return unknown(of=(value,)), _with(node, operand=left)

    def _if_exp(self, node: ast.IfExp, frame: Frame) -> Reduced:
        test, left_test = self.read(node.test, frame)
        if test.is_bottom:
            return BOTTOM, node
        if test.truth is not None and test.derived:
            value, left = self.read(node.body if test.truth else node.orelse, frame)
            return value, _with(node, test=left_test) if _asks_first(left_test) else left
        body, left_body = self._read_maybe(node.body, frame)
        orelse, left_orelse = self._read_maybe(node.orelse, frame)
        left = _with(node, test=left_test, body=left_body, orelse=left_orelse)
        value = join(body, orelse)
        if value.constants is None and not value.mapping:
            value = replace(value, taint=value.taint or test.doubt)
        if test.doubt and not value.single:
            value = unknown(test.doubt)
        return value, left

    def _named(self, node: ast.NamedExpr, frame: Frame) -> Reduced:
        value, left = self.read(node.value, frame)
        (frame.bind_maybe if self._is_sometimes else frame.bind)(node.target.id, value.derive())
        return value, _with(node, value=left)

    def _read_maybe(self, node: ast.expr, frame: Frame) -> Reduced:
        """As `read`, of a part that need not be evaluated."""
        outer, self._is_sometimes = self._is_sometimes, True
        try:
            return self.read(node, frame)
        finally:
            self._is_sometimes = outer

    def _subscript(self, node: ast.Subscript, frame: Frame) -> Reduced:
        owner, left = self.read(node.value, frame)
        index, left_index = self.read(node.slice, frame)
        kept = _with(node, value=left, slice=left_index)
        if found := self._folds.looked_up(node.value, node.slice, None, frame):
            return found, kept
        if owner.mapping:
            if index.single and index.constant == self.switch.key:
                return self.switch.item(owner, is_caught=frame.is_caught), kept
            return unknown("" if index.single else "a key that is computed"), kept
        return unknown(of=(owner, index)), kept

    def _sequence(self, node: ast.Tuple | ast.List | ast.Set, frame: Frame) -> Reduced:
        read = [self.read(e, frame) for e in node.elts]
        left = _with(node, elts=[e for _, e in read])
        if all(value.single for value, _ in read):
            return display([value for value, _ in read], is_mutable=not isinstance(node, ast.Tuple)), left
        return unknown(of=(value for value, _ in read)), left

    def _dict(self, node: ast.Dict, frame: Frame) -> Reduced:
        if not node.keys:
            return EMPTY, node
        return self._other(node, frame)

    def _lambda(self, node: ast.Lambda, frame: Frame) -> Reduced:
        inner = frame.captured()
        for argument in walk(node.args):
            if isinstance(argument, ast.arg):
                inner.env[argument.arg] = ANYTHING
        value, body = self.read(node.body, inner)
        return unknown(value.taint), _with(node, body=body)

    def _other(self, node: ast.expr, frame: Frame) -> Reduced:
        """Any other expression: its parts are read, its value is not known."""
        inner = frame
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            bound = [n.id for n in walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
            inner = frame.copy()
            inner.env.update(dict.fromkeys(bound, ANYTHING))
            for named in walk(node):
                if isinstance(named, ast.NamedExpr):
                    frame.bind_maybe(named.target.id, unknown())
        reader = _Parts(self, inner)
        left = reader.generic_visit(_shallow(node))
        assert isinstance(left, ast.expr)
        return unknown(of=reader.values), left

    def _environment_getter(self, node: ast.expr, path: str) -> Value:
        """The value of `envs.KEY`, by the function that the module keeps under that key."""
        tree = self.knowledge.scopes.tree
        module = tree.path_of(self.knowledge.scopes.absolute(path, node) or "")
        parsed = tree.parse(module) if module is not None else None
        for inner in walk(parsed) if parsed is not None else ():
            if isinstance(inner, ast.Dict):
                for key, value in zip(inner.keys, inner.values, strict=True):
                    is_key = isinstance(key, ast.Constant) and key.value == self.switch.key
                    if is_key and isinstance(value, ast.Lambda) and module is not None:
                        return self.read(value.body, Frame(path=module))[0].derive()
        return unknown(f"what {self.switch.key} is parsed to cannot be read")


class _Parts(ast.NodeTransformer):
    """Reads the expressions directly inside another."""

    def __init__(self, expressions: Expressions, frame: Frame) -> None:
        self.expressions, self.frame = expressions, frame
        self.values: list[Value] = []

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            value, left = self.expressions.read(node, self.frame)
            self.values.append(value)
            return left
        return self.generic_visit(_shallow(node))


def _with(node: ast.expr, **fields: object) -> ast.expr:
    """A copy of a node with other parts."""
    return ast.copy_location(type(node)(**{**dict(ast.iter_fields(node)), **fields}), node)


def _asks_first(left: ast.expr) -> bool:
    """Whether it is `call() and on`, say: the call runs, whatever the whole is worth, and may do something."""
    condition = left.operand if isinstance(left, ast.UnaryOp) and isinstance(left.op, ast.Not) else left
    return isinstance(condition, ast.BoolOp) and effect_of_condition(condition) is not None


def _binds_unsettled(node: ast.AST) -> bool:
    """Whether it is a `:=` of what the switch does not settle: the name keeps it, whatever the whole is worth."""
    return isinstance(node, ast.NamedExpr) and not isinstance(node.value, ast.Constant)


def _one_of(values: Sequence[Value]) -> Value:
    """The value of an `and` or `or` of which nothing is decided."""
    if any(value.is_bottom for value in values):
        return BOTTOM
    if any(value.mapping for value in values):
        return join_all(values)
    return unknown(of=values)


def _shallow(node: N) -> N:
    copied = type(node)(**{k: list(v) if isinstance(v, list) else v for k, v in ast.iter_fields(node)})
    return ast.copy_location(copied, node)


def _spellable(value: Value) -> bool:
    return value.constants is not None and value.constants[0][0] in (
        "NoneType",
        "bool",
        "int",
        "float",
        "str",
    )
