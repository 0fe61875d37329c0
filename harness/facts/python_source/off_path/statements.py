"""Statements while the switch is off: what is left of a block, and what it does to names and attributes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from harness.facts.python_source.off_path.bindings import FunctionNode
from harness.facts.python_source.off_path.expressions import Expressions
from harness.facts.python_source.off_path.frames import Frame, is_surely_bound, merge_frames, stored_names
from harness.facts.python_source.off_path.knowledge import Knowledge
from harness.facts.python_source.off_path.patterns import matches
from harness.facts.python_source.off_path.residue import (
    effect_of,
    effect_of_condition,
    has_no_effect,
    tidy,
)
from harness.facts.python_source.off_path.scopes import Key
from harness.facts.python_source.off_path.values import (
    ANYTHING,
    BOTTOM,
    Value,
    join,
    join_all,
    kept,
    known,
    unknown,
)
from harness.facts.python_source.walk import walk


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Lines that do not run while the switch is off, and the condition that keeps them from it."""

    path: str
    first_line: int
    last_line: int
    condition: str
    line: int


A = TypeVar("A", bound=ast.AST)
Left = tuple[list[ast.stmt], bool]
"""What is left of a block, and whether nothing after it is reached."""
_NOT_REACHED: Left = ([], True)
"""A value that it needs has not been found so far."""


class Statements:
    """Reads blocks of one function or module."""

    def __init__(self, knowledge: Knowledge, guards: set[Guard], key: Key | None = None) -> None:
        """For the function of `key`, whose returns are recorded; None: for a module or class body."""
        self._knowledge = knowledge
        self._expressions = Expressions(knowledge)
        self._guards = guards
        self._key = key
        self._class_body = False
        self._hangs_on = ""
        """Why it cannot be told whether the statements that are read run."""
        self._readers: dict[type[ast.stmt], Callable[..., Left]] = {
            ast.If: self._if,
            ast.Assign: self._assign,
            ast.AnnAssign: self._ann_assign,
            ast.AugAssign: self._aug_assign,
            ast.Return: self._return,
            ast.Raise: self._ends,
            ast.Break: self._ends,
            ast.Continue: self._ends,
            ast.Expr: self._expr,
            ast.For: self._loop,
            ast.AsyncFor: self._loop,
            ast.While: self._while,
            ast.With: self._with,
            ast.AsyncWith: self._with,
            ast.Try: self._try,
            ast.TryStar: self._try,
            ast.Match: self._match,
            ast.Assert: self._assert,
            ast.FunctionDef: self._function,
            ast.AsyncFunctionDef: self._function,
            ast.ClassDef: self._class,
            ast.Pass: lambda _node, _frame: ([], False),
        }

    def block(self, body: Sequence[ast.stmt], frame: Frame) -> Left:
        """What is left of statements that run one after the other."""
        left: list[ast.stmt] = []
        for index, statement in enumerate(body):
            remaining, ends = self._readers.get(type(statement), self._other)(statement, frame)
            left += remaining
            if ends:
                if isinstance(statement, ast.If | ast.Match):
                    self._dropped(body[index + 1 :], statement, frame)
                return left, True
        return left, False

    def _dropped(self, body: Sequence[ast.stmt], cause: ast.stmt, frame: Frame) -> None:
        if not body:
            return
        test = cause.test if isinstance(cause, ast.If | ast.While) else getattr(cause, "subject", None)
        self._guards.add(
            Guard(
                path=frame.path,
                first_line=_first_line(body[0]),
                last_line=body[-1].end_lineno or body[-1].lineno,
                condition=ast.unparse(test) if test is not None else "",
                line=cause.lineno,
            )
        )

    def _if(self, node: ast.If, frame: Frame) -> Left:
        value, test = self._expressions.read(node.test, frame)
        if value.is_bottom:
            return _NOT_REACHED
        if value.truth is not None and (value.derived or isinstance(node.test, ast.Constant)):
            self._dropped(node.orelse if value.truth else node.body, node, frame)
            taken, ends = self.block(node.body if value.truth else node.orelse, frame)
            return [*self._left_of_test(node, node.test, test, value.doubt, frame), *taken], ends
        body_frame, else_frame = frame.copy(), frame.copy()
        outer, self._hangs_on = self._hangs_on, value.doubt or self._hangs_on
        body, body_ends = self.block(node.body, body_frame)
        orelse, else_ends = self.block(node.orelse, else_frame)
        self._hangs_on = outer
        merge_frames(frame, [f for f, ends in ((body_frame, body_ends), (else_frame, else_ends)) if not ends])
        _mark((*body, *orelse), value.doubt)
        if not body and not orelse:
            return self._left_of_test(node, node.test, test, value.doubt, frame), body_ends and else_ends
        left = ast.copy_location(ast.If(test=test, body=body or [ast.Pass()], orelse=orelse), node)
        return [_marked(left, value.doubt)], body_ends and else_ends

    def _left_of_test(
        self, node: ast.stmt, test: ast.expr, left: ast.expr, doubt: str, frame: Frame
    ) -> list[ast.stmt]:
        """What a condition does on the way to an answer that settles what runs: it binds names, and it calls."""
        if self._expressions.has_effects(test, frame):
            return [*_named_in(left, doubt), ast.copy_location(ast.Expr(value=left), node)]
        effect = effect_of_condition(left)
        if effect is None:
            return _named_in(left, doubt)
        calls = ast.copy_location(ast.Expr(value=left), node)
        return [*_named_in(left, doubt), _marked(calls, "" if effect.is_sure else effect.text)]

    def _assign(self, node: ast.Assign, frame: Frame) -> Left:
        value, left = self._expressions.read(node.value, frame)
        if value.is_bottom:
            return _NOT_REACHED
        values = [self._store(target, value, frame) for target in node.targets]
        if all(values) or self._changes_nothing(node.targets, left, frame):
            return [], False
        targets = [self._target(target, frame) for target in node.targets]
        stored = ast.copy_location(ast.Assign(targets=targets, value=left), node)
        return [_marked(stored, value.taint or self._doubt(node.targets))], False

    def _changes_nothing(self, targets: Sequence[ast.expr], left: ast.expr, frame: Frame) -> bool:
        """Whether a local is given what it is, as `x = x if fast is None else ...` is with the switch off."""
        names = {target.id if isinstance(target, ast.Name) else "" for target in targets}
        function = self._knowledge.scopes.functions.get(self._key) if self._key else None
        is_same = isinstance(left, ast.Name) and names == {left.id} and not names & frame.global_names
        return (
            is_same
            and function is not None
            and all(map(partial(is_surely_bound, function.node, left), names))
        )

    def _ann_assign(self, node: ast.AnnAssign, frame: Frame) -> Left:
        if node.value is None:
            return ([node] if self._class_body else []), False
        value, left = self._expressions.read(node.value, frame)
        if value.is_bottom:
            return _NOT_REACHED
        if self._store(node.target, value, frame):
            return [], False
        target = self._target(node.target, frame)
        stored: ast.stmt = ast.Assign(targets=[target], value=left)
        if self._class_body:
            stored = ast.AnnAssign(target=node.target, annotation=node.annotation, value=left, simple=1)
        return [_marked(ast.copy_location(stored, node), value.taint or self._doubt([node.target]))], False

    def _doubt(self, targets: Sequence[ast.expr]) -> str:
        attributes = [t.attr for t in targets if isinstance(t, ast.Attribute)]
        if self._class_body:
            attributes += [t.id for t in targets if isinstance(t, ast.Name)]
        return next((doubt for name in attributes if (doubt := self._knowledge.doubt(name))), "")

    def _aug_assign(self, node: ast.AugAssign, frame: Frame) -> Left:
        value, left = self._expressions.read(node.value, frame)
        if value.is_bottom:
            return _NOT_REACHED
        self._store(node.target, unknown(value.taint), frame)
        return [_replaced(node, target=self._target(node.target, frame), value=left)], False

    def _return(self, node: ast.Return, frame: Frame) -> Left:
        value, left = (known(None), None) if node.value is None else self._expressions.read(node.value, frame)
        self._returns(value)
        if value.is_bottom:
            return _NOT_REACHED
        return [_marked(ast.copy_location(ast.Return(value=left), node), value.taint)], True

    def _ends(self, node: ast.stmt, frame: Frame) -> Left:
        return [self._parts(node, frame)], True

    def _expr(self, node: ast.Expr, frame: Frame) -> Left:
        if isinstance(node.value, ast.Constant):
            return [], False
        value, left = self._expressions.read(node.value, frame)
        if value.is_bottom:
            return _NOT_REACHED
        if isinstance(left, ast.Constant) or getattr(left, "is_quiet", False):
            return [], False
        return [_marked(ast.copy_location(ast.Expr(value=left), node), value.taint)], False

    def _loop(self, node: ast.For | ast.AsyncFor, frame: Frame) -> Left:
        value, iterated = self._expressions.read(node.iter, frame)
        if value.is_bottom:
            return _NOT_REACHED
        self._forget(node.body, frame)
        each = self._each(node.iter, value, frame)
        body_frame = frame.copy()
        self._store(node.target, each, body_frame)
        body, _ = self.block(node.body, body_frame)
        ends = [body_frame]
        if each.constants is None:
            ends.append(frame.copy())
        else:
            # It runs at least once.
            self._store(node.target, each, frame)
            ends.append(frame.copy())
        merge_frames(frame, ends)
        orelse, _ = self.block(node.orelse, frame)
        return [_replaced(node, iter=iterated, body=body or [ast.Pass()], orelse=orelse)], False

    def _each(self, iterated: ast.expr, value: Value, frame: Frame) -> Value:
        """What a loop's variable can be: one of the constants that are written out."""
        items = iterated.elts if isinstance(iterated, ast.Tuple | ast.List) else []
        if items and all(isinstance(item, ast.Constant) for item in items):
            return join_all(self._expressions.read(item, frame)[0] for item in items)
        return unknown(value.taint)

    def _while(self, node: ast.While, frame: Frame) -> Left:
        self._forget(node.body, frame)
        value, test = self._expressions.read(node.test, frame)
        if value.is_bottom:
            return _NOT_REACHED
        if value.truth is False and value.derived:
            self._dropped(node.body, node, frame)
            return self.block(node.orelse, frame)
        body_frame = frame.copy()
        body, _ = self.block(node.body, body_frame)
        _mark(body, value.doubt)
        merge_frames(frame, [frame.copy(), body_frame])
        orelse, _ = self.block(node.orelse, frame)
        return [_replaced(node, test=test, body=body or [ast.Pass()], orelse=orelse)], False

    def _with(self, node: ast.With | ast.AsyncWith, frame: Frame) -> Left:
        items = []
        for item in node.items:
            value, context = self._expressions.read(item.context_expr, frame)
            if item.optional_vars is not None:
                self._store(item.optional_vars, unknown(value.taint), frame)
            items.append(ast.withitem(context_expr=context, optional_vars=item.optional_vars))
        before = frame.copy()
        body, ends = self.block(node.body, frame)
        # What is entered may stop an error in the middle of the block.
        for name, value in before.env.items():
            if name in frame.env and frame.env[name] != value:
                frame.env[name] = join(value, frame.env[name])
        return [_replaced(node, items=items, body=body or [ast.Pass()])], ends

    def _try(self, node: ast.Try | ast.TryStar, frame: Frame) -> Left:
        start = frame.copy()
        frame.is_caught = start.is_caught or any(_catches_key_error(h) for h in node.handlers)
        body, ends = self.block(node.body, frame)
        frame.is_caught = start.is_caught
        orelse: list[ast.stmt] = []
        if not ends:
            orelse, ends = self.block(node.orelse, frame)
        self._forget(node.body, start)
        open_ends = [] if ends else [frame.copy()]
        handlers = []
        for handler in node.handlers:
            handler_frame = start.copy()
            if handler.name:
                handler_frame.env[handler.name] = ANYTHING
            handled, handler_ends = self.block(handler.body, handler_frame)
            if handler.name:
                handler_frame.open_names.add(handler.name)
            handlers.append(_replaced(handler, body=handled or [ast.Pass()]))
            open_ends += [] if handler_ends else [handler_frame]
        merge_frames(frame, open_ends)
        finalbody, final_ends = self.block(node.finalbody, frame)
        is_handled = _may_raise(node.body) and not all(map(has_no_effect, handlers))
        if not body and not orelse and not finalbody and not is_handled:
            return [], False
        left = _replaced(
            node, body=body or [ast.Pass()], handlers=handlers, orelse=orelse, finalbody=finalbody
        )
        left.may_raise = is_handled  # type: ignore[union-attr]
        return [left], final_ends or not open_ends

    def _match(self, node: ast.Match, frame: Frame) -> Left:
        value, subject = self._expressions.read(node.subject, frame)
        if value.is_bottom:
            return _NOT_REACHED
        cases: list[ast.match_case] = []
        ends: list[tuple[Frame, bool]] = []
        for case in node.cases:
            hit = matches(case, value, lambda e: self._expressions.read(e, frame)[0])
            if hit is False:
                self._dropped(case.body, node, frame)
                continue
            if hit is True and not cases:
                for later in node.cases[node.cases.index(case) + 1 :]:
                    self._dropped(later.body, node, frame)
                self._bind_pattern(case.pattern, frame)
                taken, is_end = self.block(case.body, frame)
                return [*self._left_of_test(node, node.subject, subject, value.doubt, frame), *taken], is_end
            inner = frame.copy()
            self._bind_pattern(case.pattern, inner)
            body, body_ends = self.block(case.body, inner)
            _mark(body, value.doubt)
            cases.append(ast.match_case(pattern=case.pattern, guard=case.guard, body=body or [ast.Pass()]))
            ends.append((inner, body_ends))
            if hit is True:
                break
        else:
            ends.append((frame.copy(), False))
        if not cases:
            return self._left_of_test(node, node.subject, subject, value.doubt, frame), False
        merge_frames(frame, [inner for inner, ended in ends if not ended])
        return [_replaced(node, subject=subject, cases=cases)], all(ended for _, ended in ends)

    def _assert(self, node: ast.Assert, frame: Frame) -> Left:
        value, test = self._expressions.read(node.test, frame)
        if value.is_bottom:
            return _NOT_REACHED
        if value.truth and value.derived:
            return [], False
        return [_replaced(node, test=test)], False

    def _function(self, node: FunctionNode, frame: Frame) -> Left:
        """Methods and functions of a module are read on their own; one inside a function is read here."""
        frame.bind(node.name, ANYTHING)
        if self._key is None:
            return [node], False
        inner = frame.captured()
        inner.stored = stored_names(node.body)
        for argument in walk(node.args):
            if isinstance(argument, ast.arg):
                inner.env[argument.arg] = ANYTHING
        nested = Statements(
            self._knowledge, self._guards, (frame.path, f"{self._key[1]}.<locals>.{node.name}")
        )
        body, ends = nested.block(node.body, inner)
        if not ends:
            nested._returns(known(None))
        if nested._key is not None and not self._knowledge.effects.get(nested._key):
            self._knowledge.effects[nested._key] = effect_of(tidy(body))
        left = _replaced(node, body=body or [ast.Pass()])
        left.as_written = node  # type: ignore[union-attr]
        return [left], False

    def _class(self, node: ast.ClassDef, frame: Frame) -> Left:
        frame.bind(node.name, ANYTHING)
        inner = Statements(self._knowledge, self._guards)
        inner._class_body = True
        body, _ = inner.block(node.body, Frame(path=frame.path, is_class=True))
        return [_replaced(node, body=body or [ast.Pass()])], False

    def _other(self, node: ast.stmt, frame: Frame) -> Left:
        for name in _bound(node):
            frame.env.pop(name, None)
        for target in node.targets if isinstance(node, ast.Delete) else ():
            if isinstance(target, ast.Name):
                frame.bind(target.id, ANYTHING)
                frame.open_names.add(target.id)
        return [self._parts(node, frame)], False

    def _returns(self, value: Value) -> None:
        if self._key is not None:
            table = self._knowledge.returns
            table[self._key] = join(table.get(self._key, BOTTOM), kept(value))

    def _store(self, target: ast.expr, value: Value, frame: Frame) -> bool:
        """Binds a target; whether the assignment does nothing but keep a known constant in a name of the change."""
        knowledge = self._knowledge
        value = kept(value)
        if self._hangs_on and not value.is_bottom:
            value = replace(value, taint=value.taint or self._hangs_on)
        if isinstance(target, ast.Tuple | ast.List):
            parts = value.constant if value.single and isinstance(value.constant, tuple) else None
            fits = parts is not None and len(parts) == len(target.elts)
            values = (
                [known(p) for p in parts] if fits and parts else [unknown(value.taint)] * len(target.elts)
            )
            stored = [self._store(t, v, frame) for t, v in zip(target.elts, values, strict=True)]
            return all(stored)
        if isinstance(target, ast.Starred):
            return self._store(target.value, unknown(value.taint), frame)
        if isinstance(target, ast.Attribute):
            if not knowledge.is_closed(target.attr) or knowledge.scopes.is_import(frame.path, target):
                return False
            knowledge.attributes[target.attr] = join(
                knowledge.attributes.get(target.attr, BOTTOM), _shared(value)
            )
            # Of another object it stays: its class may be another library's and use the name.
            is_of_self = isinstance(target.value, ast.Name) and target.value.id == "self"
            return is_of_self and value.single and knowledge.attribute(target.attr).single
        if not isinstance(target, ast.Name):
            return False
        name = target.id
        if self._class_body:
            frame.bind(name, value.derive())
            if not knowledge.is_closed(name):
                return False
            # It stays: what a class has and in which order is read by decorators and metaclasses.
            knowledge.attributes[name] = join(knowledge.attributes.get(name, BOTTOM), _shared(value))
            return False
        if frame.is_module or name in frame.global_names:
            key = (frame.path, name)
            knowledge.globals[key] = join(knowledge.globals.get(key, BOTTOM), _shared(value))
            return value.single and knowledge.globals[key].single and knowledge.is_closed(name)
        frame.bind(name, value.derive())
        return False

    def _forget(self, body: Sequence[ast.stmt], frame: Frame) -> None:
        """Before a block that may run again or half: what it stores can be what it is, or what the block makes it."""
        names = set(stored_names(body)) & set(frame.env)
        if not names:
            return
        trial = frame.copy()
        Statements(self._knowledge, set(), None if self._key is None else self._key).block(body, trial)
        for name in names:
            frame.env[name] = join(frame.env[name], trial.env.get(name, ANYTHING))

    def _target(self, target: ast.expr, frame: Frame) -> ast.expr:
        if isinstance(target, ast.Attribute | ast.Subscript):
            self._expressions.read(target.value, frame)
        return target

    def _parts(self, node: ast.stmt, frame: Frame) -> ast.stmt:
        fields = {
            name: self._expressions.read(part, frame)[1] if isinstance(part, ast.expr) else part
            for name, part in ast.iter_fields(node)
            if not isinstance(node, ast.Delete)
        }
        return _replaced(node, **fields) if fields else node

    def _bind_pattern(self, pattern: ast.pattern, frame: Frame) -> None:
        for inner in walk(pattern):
            name = getattr(inner, "name", None) or getattr(inner, "rest", None)
            if isinstance(name, str):
                frame.bind(name, ANYTHING)


def _shared(value: Value) -> Value:
    """What other code finds where a value is kept: an empty dict may be filled by then."""
    return ANYTHING if value.mapping == "empty" else value


def _may_raise(body: Iterable[ast.stmt]) -> bool:
    """Whether a statement looks something up or calls something, outside conditions: a handler may then run."""
    plain = (
        s for s in body if isinstance(s, ast.Expr | ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return)
    )
    return any(isinstance(node, ast.Subscript | ast.Call) for s in plain for node in walk(s))


def _catches_key_error(handler: ast.ExceptHandler) -> bool:
    caught = [handler.type] if not isinstance(handler.type, ast.Tuple) else handler.type.elts
    names = ("KeyError", "LookupError", "Exception", "BaseException")
    return any(c is None or (isinstance(c, ast.Name) and c.id in names) for c in caught)


def _marked(statement: ast.stmt, taint: str) -> ast.stmt:
    if taint and not getattr(statement, "undecided", ""):
        statement.undecided = taint  # type: ignore[attr-defined]
    return statement


def _mark(body: Iterable[ast.stmt], taint: str) -> None:
    """Notes on every statement that whether it runs hangs on something undecided."""
    for statement in body:
        for node in walk(statement):
            if isinstance(node, ast.stmt) and taint and not getattr(node, "undecided", ""):
                node.undecided = taint  # type: ignore[attr-defined]


def _named_in(test: ast.expr, taint: str) -> list[ast.stmt]:
    """What a condition that is left out binds on the way (`:=`), as assignments."""
    return [
        _marked(ast.copy_location(ast.Assign(targets=[node.target], value=node.value), node), taint)
        for node in walk(test)
        if isinstance(node, ast.NamedExpr)
    ]


def _replaced(node: A, **fields: object) -> A:
    """A copy of a node with other parts."""
    copied = type(node)(**{**dict(ast.iter_fields(node)), **fields})
    return ast.copy_location(copied, node)


def _bound(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    return []


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)])
