"""What calls give while the switch is off."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from harness.facts.python_source.names import dotted
from harness.facts.python_source.off_path.frames import Frame
from harness.facts.python_source.off_path.knowledge import Knowledge
from harness.facts.python_source.off_path.residue import Effect
from harness.facts.python_source.off_path.scopes import Function
from harness.facts.python_source.off_path.switch import EMPTY, SWITCHES
from harness.facts.python_source.off_path.values import (
    ANYTHING,
    BOTTOM,
    PURE_BUILTINS,
    PURE_METHODS,
    Value,
    combine,
    join,
    join_all,
    kept,
    known,
    unknown,
)

K = TypeVar("K")
_UNREAD = Effect("has not been read", is_sure=False)
_READS = frozenset(("get", "copy", "keys", "values", "items"))
_CLASSES: dict[str, type] = {
    kind.__name__: kind for kind in (bool, bytes, dict, float, frozenset, int, list, set, str, tuple)
}
_REPLACES = ("replace", "_replace", "__replace__")
"""Functions that make a record with other fields out of one."""
_OF_CLASSES = ("classmethod", "staticmethod")
_PROPERTIES = frozenset(("property", "cached_property", "functools.cached_property"))


class Calls:
    """Reads calls: of the switch's mapping, of folded built-ins, of analysed functions."""

    def __init__(
        self, knowledge: Knowledge, attribute_value: Callable[[ast.expr, Value, str, str], Value]
    ) -> None:
        self._knowledge = knowledge
        self._attribute_value = attribute_value

    def value(
        self,
        node: ast.Call,
        frame: Frame,
        owner: Value,
        arguments: Sequence[Value],
        keywords: Mapping[str, Value],
    ) -> Value:
        """The value of a call.

        Args:
            node: the call as written.
            frame: the names where it stands.
            owner: value of `x` in `x.method(...)`.
            arguments: values of the positional arguments.
            keywords: values of the named arguments.
        """
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        path = frame.path
        absolute = self._knowledge.scopes.absolute(path, node.func)
        builtin = absolute if self.is_builtin(node.func, frame) else ""
        if owner.mapping:
            return self._of_mapping(method, owner, arguments, keywords)
        if absolute in ("os.getenv", "os.environ.get") and self._knowledge.switch.kind == "env":
            return self._of_mapping("get", SWITCHES, arguments, keywords)
        if builtin in ("getattr", "hasattr"):
            return self._by_name(builtin, node, path, arguments)
        if builtin == "setattr" or method == "__setattr__":
            if len(arguments) >= 2:
                self._knowledge.set_by_name(arguments[-2], arguments[-1])
            return known(None)
        if absolute == "vars" or method == "__dict__":
            self._knowledge.blur = "attributes are reached through their dictionary"
        if builtin == "dict":
            return arguments[0] if arguments and arguments[0].mapping else unknown() if arguments else EMPTY
        if builtin in PURE_BUILTINS and not keywords and arguments:
            return combine(PURE_BUILTINS[builtin], *arguments)
        if builtin == "isinstance" and len(arguments) == 2 and not keywords:
            return self._isinstance(node.args[1], frame, kept(arguments[0]))
        if method in PURE_METHODS and owner.constants is not None and not keywords:
            return combine(lambda text, *rest: getattr(text, method)(*rest), owner, *arguments)
        if functions := self._knowledge.functions_called(path, node.func):
            for function in functions:
                self._bind(function, node, arguments, keywords)
            value = join_all(self.returned(function) for function in functions)
            doubt = "" if value.is_bottom else self.why_replaced(node.func)
            return unknown(doubt) if doubt else value
        return self._of_unknown(node, path, owner, arguments, keywords)

    def is_builtin(self, callee: ast.expr, frame: Frame) -> bool:
        """Whether a name means the built-in of that name, which nothing here binds."""
        scopes = self._knowledge.scopes
        return (
            isinstance(callee, ast.Name)
            and callee.id not in frame.env
            and callee.id not in frame.stored
            and not scopes.binds(frame.path, callee.id)
        )

    def _isinstance(self, classes: ast.expr, frame: Frame, value: Value) -> Value:
        """`isinstance` of a constant and classes of constants."""
        names = classes.elts if isinstance(classes, ast.Tuple) else [classes]
        found = [n.id for n in names if isinstance(n, ast.Name) and self.is_builtin(n, frame)]
        if len(found) < len(names) or not set(found) <= _CLASSES.keys():
            return unknown(of=(value,))
        return combine(lambda constant: isinstance(constant, tuple(_CLASSES[name] for name in found)), value)

    def returned(self, function: Function) -> Value:
        """What a call of a function gives, or reading a property; it makes the function run."""
        self._knowledge.live.add(function.node.name)
        if any(dotted(d) in _OF_CLASSES for d in function.node.decorator_list):
            self._knowledge.live.add(function.class_name)
        value = self._knowledge.returns.get(function.key, BOTTOM)
        if value.is_bottom and self._knowledge.calls_settled:
            return unknown(f"what {function.qualname} returns cannot be told")
        doubt = self._knowledge.scopes.why_not_plain(function)
        if doubt and not value.is_bottom and (value.constants is not None or value.mapping or value.taint):
            return unknown(doubt)
        return value.derive()

    def why_replaced(self, callee: ast.expr) -> str:
        """Why an attribute may be another one than the method or property of its name: something assigns it."""
        name = callee.attr if isinstance(callee, ast.Attribute) else ""
        is_set = not self._knowledge.attributes.get(name, BOTTOM).is_bottom
        return f"something assigns .{name}, so what it calls cannot be told" if is_set else ""

    def effect(self, node: ast.Call, path: str) -> Effect | None:
        """What a call of analysed functions does besides returning a value."""
        functions = self._knowledge.functions_called(path, node.func)
        found = [effect for f in functions if (effect := self._knowledge.effects.get(f.key))]
        return next((effect for effect in found if effect.is_sure), found[0] if found else None)

    def does_nothing(self, node: ast.Call, path: str) -> bool:
        """Whether a call only returns a value: of analysed functions without effects, or of the environment."""
        if self._knowledge.scopes.absolute(path, node.func) in ("os.getenv", "os.environ.get"):
            return True
        made = self._knowledge.records.class_called(path, node.func)
        if made is not None and self._knowledge.records.fields(*made) is not None:
            return True
        functions = self._knowledge.functions_called(path, node.func)
        plain = [f for f in functions if not self._knowledge.scopes.why_not_plain(f)]
        return (
            bool(plain)
            and all(self._knowledge.effects.get(f.key, _UNREAD) is None for f in functions)
            and (len(plain) == len(functions))
        )

    def only_reads(self, node: ast.Call, arguments: Sequence[Value]) -> bool:
        """Whether a method of the mapping that holds the switch leaves all keys but the switch's own as they are."""
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        is_own = (
            bool(arguments) and arguments[0].single and arguments[0].constant == self._knowledge.switch.key
        )
        return method in _READS or (method == "pop" and is_own)

    def properties(self, node: ast.Attribute) -> tuple[Function, ...]:
        """Analysed properties of that name."""
        if not self._knowledge.is_closed(node.attr):
            return ()
        found = self._knowledge.scopes.by_name.get(node.attr, ())
        return tuple(f for f in found if any(dotted(d) in _PROPERTIES for d in f.node.decorator_list))

    def is_method(self, node: ast.Attribute) -> bool:
        """Whether `self.name` is a method of its file's classes that nothing else is called."""
        knowledge = self._knowledge
        if (
            not isinstance(node.value, ast.Name)
            or node.value.id != "self"
            or not knowledge.is_closed(node.attr)
        ):
            return False
        is_set = not knowledge.attributes.get(node.attr, BOTTOM).is_bottom
        found = knowledge.scopes.by_name.get(node.attr, ())
        return not is_set and bool(found) and all(f.class_name and not f.node.decorator_list for f in found)

    def _of_mapping(
        self, method: str, owner: Value, arguments: Sequence[Value], keywords: Mapping[str, Value]
    ) -> Value:
        switch = self._knowledge.switch
        if method == "copy":
            return owner
        if method not in ("get", "pop") or not arguments:
            return unknown(f"the switch may be in what .{method}() gives or changes")
        if not arguments[0].single:
            return unknown("a key that is computed")
        if arguments[0].constant != switch.key:
            return ANYTHING
        default = arguments[1] if len(arguments) > 1 else keywords.get("default", known(None))
        return switch.get(owner, default)

    def _by_name(self, name: str, node: ast.Call, path: str, arguments: Sequence[Value]) -> Value:
        """`getattr` and `hasattr`."""
        if len(arguments) < 2 or not arguments[1].single:
            return unknown(f"{name} with a computed name")
        attribute = str(arguments[1].constant)
        is_own = self._knowledge.is_own(path, node.args[0], arguments[0], attribute)
        is_switch = self._knowledge.switch.kind == "flag" and attribute == self._knowledge.switch.name
        if name == "hasattr":
            closed = self._knowledge.is_closed(attribute)
            if closed and is_own and self._knowledge.attributes.get(attribute, BOTTOM).is_bottom:
                return known(False, derived=True)
            return unknown(f"hasattr of {attribute}" if closed else "")
        is_closed = self._knowledge.is_closed(attribute)
        value = self._attribute_value(node.args[0], arguments[0], attribute, path)
        if len(arguments) < 3:
            return value
        if is_closed and self._knowledge.attributes.get(attribute, BOTTOM).is_bottom:
            open_to = f"whose object is asked for {attribute} cannot be told"
            return arguments[2].derive() if is_own or is_switch else unknown(open_to)
        return join(value, arguments[2].derive()) if value.constants is not None else value

    def _of_unknown(
        self,
        node: ast.Call,
        path: str,
        owner: Value,
        arguments: Sequence[Value],
        keywords: Mapping[str, Value],
    ) -> Value:
        knowledge = self._knowledge
        for function in knowledge.constructor_called(node.func):
            self._bind(function, node, arguments, keywords)
        for name, value in keywords.items():
            _record(knowledge.keywords, name, value)
            if name in knowledge.records.all_fields:
                _record(knowledge.attributes, name, kept(value))
        if any(k.arg is None for k in node.keywords) and _last(node.func) in _REPLACES:
            for name in knowledge.records.all_fields:
                _record(knowledge.attributes, name, ANYTHING)
        if path in knowledge.hooks and is_changed(node, knowledge.changed_lines(path)):
            for index, value in enumerate(arguments):
                _record(knowledge.positions, index, value)
        given = (owner, *arguments, *keywords.values())
        if made := self._made(node, path, arguments, keywords):
            return made
        called = dotted(node.func) or "a computed function"
        if knowledge.has_own_truth(node.func):
            return unknown(f"what {called}(...) counts as is for its own code to say")
        if any(value.mapping for value in given):
            return unknown(f"{called}(...) is given the mapping that holds the switch")
        return unknown(of=given)

    def _made(
        self, node: ast.Call, path: str, arguments: Sequence[Value], keywords: Mapping[str, Value]
    ) -> Value | None:
        """The object of an analysed class; what its constructor puts into fields of the same name is noted."""
        records, attributes = self._knowledge.records, self._knowledge.attributes
        found = records.class_called(path, node.func)
        if found is None or self._knowledge.has_own_truth(node.func):
            return None
        if any(value.is_bottom for value in (*arguments, *keywords.values())):
            return BOTTOM
        fields = records.fields(*found)
        if fields is not None:
            given = {**dict(zip(fields, arguments, strict=False)), **keywords}
            is_spread = any(isinstance(a, ast.Starred) for a in node.args) or any(
                k.arg is None for k in node.keywords
            )
            for name in fields if is_spread else given:
                _record(attributes, name, ANYTHING if is_spread else kept(given[name]))
        return Value(None, is_own=True) if records.is_plain(*found) else None

    def _bind(
        self,
        function: Function,
        node: ast.Call,
        arguments: Sequence[Value],
        keywords: Mapping[str, Value],
    ) -> None:
        """Adds the arguments of a call to what the parameters can be."""
        parameters = self._knowledge.parameters
        given = dict(zip(function.parameters, arguments, strict=False)) | dict(keywords)
        is_spread = any(isinstance(a, ast.Starred) for a in node.args) or any(
            k.arg is None for k in node.keywords
        )
        is_spread |= bool(self._knowledge.scopes.why_not_plain(function))
        for name in function.parameters:
            if is_spread:
                _record(parameters, (function.key, name), ANYTHING)
            elif name in given:
                _record(parameters, (function.key, name), given[name])
            elif isinstance(default := function.default(name), ast.Constant):
                _record(parameters, (function.key, name), known(default.value))
            else:
                _record(parameters, (function.key, name), ANYTHING)


def is_changed(node: ast.Call, changed_lines: Collection[int]) -> bool:
    """Whether a line of a call is one that the change wrote."""
    return any(line in changed_lines for line in range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _last(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def _record(table: dict[K, Value], key: K, value: Value) -> None:
    table[key] = join(table.get(key, BOTTOM), value)
