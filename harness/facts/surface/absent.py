"""What code does when a key is absent, by evaluating it as far as its text allows."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from typing import Literal

from harness.facts.python_effects.resolve import Resolver
from harness.facts.python_effects.scopes import Block, Module, Site
from harness.facts.python_effects.values import texts
from harness.facts.python_source.walk import children, walk
from harness.facts.surface.places import readings, text_at
from harness.facts.surface.run import Run
from harness.facts.surface.without_key import Known, Raises, Result, WithoutKey
from harness.model.surface import SwitchRead

Absent = Literal["off", "on", "raises", "unknown"]


class SwitchReader:
    """Reads of one switch in modules that were parsed together.

    What is true in one of the functions `asked` means on; elsewhere a function may as well answer whether it is off.
    """

    def __init__(
        self, resolver: Resolver, *, key: str, on: str, off: str, asked: Collection[str] = ()
    ) -> None:
        self._resolver = resolver
        self._without = WithoutKey(resolver, key)
        self._key, self._on, self._off = key, on, off
        self._asked = {target.rpartition(":")[2].rpartition(".")[2] for target in asked}

    def reads(self) -> tuple[SwitchRead, ...]:
        """Every place that reads the key, in the order of the text; one a statement."""
        found: dict[tuple[str, int], SwitchRead] = {}
        for module in self._resolver.modules:
            parents: dict[ast.AST, ast.AST] = {}
            for node, site in readings(module):
                if self._without.reads_key(node, site):
                    parents = parents or _parents(module.tree)
                    if _is_dropped(node, parents):
                        continue
                    read = self._judge(module, node, site, parents)
                    found.setdefault((read.path, read.line), read)
            for field in self._fields(module):
                found.setdefault((field.path, field.line), field)
        return tuple(found[place] for place in sorted(found))

    def _judge(
        self, module: Module, node: ast.expr, site: Site, parents: Mapping[ast.AST, ast.AST]
    ) -> SwitchRead:
        absent, value = self._settle(node, site, parents)
        statement = next(p for p in _around(node, parents) if isinstance(p, ast.stmt))
        line = getattr(node, "lineno", 1)
        text = text_at(module, statement if isinstance(statement, ast.Assign | ast.Return) else node)
        return SwitchRead(path=module.path, line=line, text=text, when_absent=absent, value=value)

    def _settle(self, node: ast.expr, site: Site, parents: Mapping[ast.AST, ast.AST]) -> tuple[Absent, str]:
        """What the value that is read leads to: the outermost expression around it that the text decides."""
        statement = next(p for p in _around(node, parents) if isinstance(p, ast.stmt))
        if isinstance(node, ast.Subscript) or (
            isinstance(node, ast.Compare) and isinstance(statement, ast.If)
        ):
            return self._settle_in_function(node, statement, site)
        result = first = self._without.evaluate(node, site)
        inner: ast.AST = node
        while isinstance(result, Known):
            if isinstance(result.value, str) and result.value in (self._on, self._off):
                return ("off" if result.value == self._off else "on"), repr(result.value)
            outer = parents.get(inner)
            if isinstance(outer, ast.Compare) and (said := self._compared(outer, site)):
                return said, repr(result.value)
            if isinstance(outer, ast.Attribute):
                outer = parents.get(outer)  # a method of the value: its call is what has a value
            if not isinstance(outer, ast.expr) or isinstance(outer, ast.UnaryOp):
                break
            wider = self._without.evaluate(outer, site)
            if wider is None:
                break
            inner, result = outer, wider
        if isinstance(result, Raises):
            return "raises", ""
        if not isinstance(result, Known):
            return "unknown", ""
        if isinstance(result.value, bool):
            if isinstance(statement, ast.If) and first != result:  # only says whether the key is there
                said = self._returned_answer(site) or ("unknown" if result.value else "off")
                return said, repr(first.value) if isinstance(first, Known) else ""
            return ("on" if result.value else "off"), repr(result.value)
        return self._of_open_value(result, inner, site, parents), repr(result.value)

    def _of_open_value(
        self, result: Known, node: ast.AST, site: Site, parents: Mapping[ast.AST, ast.AST]
    ) -> Absent:
        """What a value leads to that is neither on, off nor a truth value: what the code then asks of it."""
        outer = parents.get(node)
        if isinstance(outer, (ast.If, ast.While, ast.IfExp, ast.UnaryOp, ast.BoolOp, ast.Assert)):
            return "unknown" if result.value else "off"
        match outer:
            case ast.Assign(targets=[ast.Name(id=name)]):
                said = self._asked_of(name, result, site)
                if len(said) != 1 or "unknown" in said:
                    return self._returned_answer(site) or "unknown"
            case ast.Assign(targets=[ast.Attribute(attr=name)]):
                said = self._asked_of(f".{name}", result, site)
            case _:
                return "unknown"
        return said.pop() if len(said) == 1 else "unknown"

    def _returned_answer(self, site: Site) -> Absent | None:
        """What a function that does nothing but answer returns without the key; None where the text does not say."""
        function, module = site.scope.function, site.scope.module
        if not isinstance(function, ast.FunctionDef) or any(
            place.scope is site.scope and not _only_answers(statement)
            for statement, place in module.sites.items()
        ):
            return None
        run = Run(self._without, module)
        run.block(function.body)
        answers = (str, bool, type(None))
        said = {
            "unknown" if isinstance(r, Known) and not isinstance(r.value, answers) else self._of_result(r)
            for r in run.returned
        }
        is_asked = function.name in self._asked or Known(self._on) in run.returned
        return said.pop() if len(said) == 1 and (is_asked or "on" not in said) else None

    def _asked_of(self, name: str, result: Known, site: Site) -> set[Absent]:
        """What comparisons of a variable, or of an attribute (`.name`), with `on` or `off` mean; and its truth."""
        module, said = site.scope.module, set[Absent]()
        for node, place in readings(module):
            if isinstance(node, ast.Compare) and any(_is_called(side, name) for side in _sides(node)):
                said.add(self._compared(node, place, {name: result}) or "unknown")
        for statement, place in module.sites.items():
            test = getattr(statement, "test", None)
            while isinstance(test, ast.UnaryOp):
                test = test.operand
            here = name.startswith(".") or place.scope is site.scope
            if here and isinstance(test, ast.expr) and _is_called(test, name):
                said.add("unknown" if result.value else "off")
        return said

    def _compared(
        self, node: ast.Compare, site: Site, local: Mapping[str, Result] | None = None
    ) -> Absent | None:
        """What a comparison of the absent value with `on` or `off` means."""
        result = self._without.evaluate(node, site, local)
        if len(node.ops) != 1 or not isinstance(result, Known):
            return None
        others: set[str] = set()
        for side in (node.left, node.comparators[0]):
            for part in side.elts if isinstance(side, (ast.Tuple, ast.List, ast.Set)) else [side]:
                others |= set(texts(self._resolver.evaluate(part, site)))
        named = others & {self._on, self._off}
        if len(named) != 1:
            return None
        is_that = result.value is not isinstance(node.ops[0], (ast.NotEq, ast.IsNot, ast.NotIn))
        return "on" if is_that is (named == {self._on}) else "off"

    def _settle_in_function(self, node: ast.expr, statement: ast.stmt, site: Site) -> tuple[Absent, str]:
        """Runs the function around a membership test or an index, the key taken as absent."""
        function = site.scope.function
        run = Run(self._without, site.scope.module)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            run.block(function.body)
            if node not in run.evaluated:
                return "off", "not reached"
            said = {self._of_result(result) for result in run.returned}
            if len(said) == 1 and said != {"unknown"}:
                first = run.returned[0]
                return said.pop(), repr(first.value) if isinstance(first, Known) else ""
        if isinstance(node, ast.Subscript):
            return "unknown", ""
        tested = self._without.evaluate(statement.test, site) if isinstance(statement, ast.If) else None
        if (
            isinstance(statement, ast.If)
            and isinstance(tested, Known)
            and not tested.value
            and not statement.orelse
        ):
            return "off", "the branch is not entered"
        return "unknown", ""

    def _of_result(self, result: Result) -> Absent:
        if isinstance(result, Raises):
            return "raises"
        if result is None:
            return "unknown"
        if result.value == self._off or result.value in (None, False, "", 0):
            return "off"
        return "on" if result.value in (self._on, True) else "unknown"

    def _of_field(self, result: Result) -> Absent:
        """What a field's default means: a value that is neither on nor off is judged by what the code asks of it."""
        if (
            not isinstance(result, Known)
            or isinstance(result.value, bool)
            or result.value in (self._on, self._off)
        ):
            return self._of_result(result)
        said: set[Absent] = set()
        for module in self._resolver.modules:
            said |= self._asked_of(f".{self._key}", result, Site(module.root, Block(), 0))
        return said.pop() if len(said) == 1 else "unknown"

    def _fields(self, module: Module) -> list[SwitchRead]:
        """Fields of that name in classes: their default."""
        found = []
        for node, site in module.sites.items():
            match node:
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if (
                    name == self._key and site.scope.kind == "class"
                ):
                    if isinstance(value, ast.Call):
                        given = {k.arg: k.value for k in value.keywords}
                        value = given.get("default", value.args[0] if value.args else value)
                    absent = self._of_field(self._without.evaluate(value, site))
                    found.append(
                        SwitchRead(
                            path=module.path,
                            line=node.lineno,
                            text=text_at(module, node),
                            when_absent=absent,
                            value=ast.unparse(value),
                        )
                    )
        return found


def _only_answers(statement: ast.AST) -> bool:
    """Whether a statement can lead to nothing but a local name, a returned value or an error."""
    match statement:
        case ast.If() | ast.Return() | ast.Raise() | ast.Try() | ast.Pass():
            return True
        case ast.Expr(value=ast.Constant()) | ast.AnnAssign(target=ast.Name()):
            return True
        case ast.Assign(targets=targets):
            return all(isinstance(target, ast.Name) for target in targets)
    return not isinstance(statement, ast.stmt)


def _sides(node: ast.Compare) -> list[ast.expr]:
    return [node.left, *node.comparators]


def _is_called(node: ast.expr, name: str) -> bool:
    """Whether an expression is the variable, or for `.name` an attribute of that name."""
    if name.startswith("."):
        return isinstance(node, ast.Attribute) and node.attr == name[1:]
    return isinstance(node, ast.Name) and node.id == name


def _parents(tree: ast.Module) -> dict[ast.AST, ast.AST]:
    return {child: node for node in walk(tree) for child in children(node)}


def _around(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> Iterator[ast.AST]:
    """The nodes around one, innermost first."""
    while node in parents:
        node = parents[node]
        yield node


def _is_dropped(node: ast.expr, parents: Mapping[ast.AST, ast.AST]) -> bool:
    """Whether a statement takes a key away, or asks for it, with a default, and nothing gets the value."""
    match node:
        case (
            ast.Call(func=ast.Attribute(attr="get" | "pop"), args=[_, _])
            | ast.Call(func=ast.Attribute(attr="get"))
        ):
            return isinstance(parents.get(node), ast.Expr)
    return False
