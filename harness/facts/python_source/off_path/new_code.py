"""Which additions to a hooked file do nothing while the switch is off."""

from __future__ import annotations

import ast
import copy
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from harness.facts.python_source.names import dotted, resolve_relative
from harness.facts.python_source.off_path.calls import is_changed
from harness.facts.python_source.off_path.residue import is_pure
from harness.facts.python_source.off_path.scopes import FunctionNode, Scopes, imported_names
from harness.facts.python_source.tree import SourceTree

_QUIET_DECORATORS = frozenset(
    (
        *("staticmethod", "classmethod", "property", "cached_property", "functools.cached_property"),
        *("cache", "functools.cache", "lru_cache", "functools.lru_cache", "override", "typing.override"),
        *("final", "typing.final", "overload", "typing.overload", "abstractmethod", "abc.abstractmethod"),
        *("dataclass", "dataclasses.dataclass", "contextmanager", "contextlib.contextmanager"),
        *("torch.no_grad", "torch.inference_mode", "functools.wraps", "wraps"),
    )
)
"""Decorators that only wrap what they are given."""
_MAX_DEPTH = 8
"""Base classes of base classes that are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCode:
    """What a hooked file may gain without changing anything while the switch is off."""

    path: str
    scopes: Scopes
    tree: SourceTree
    owned: Callable[[str], bool]
    """Whether a module is the subject's."""
    is_closed: Callable[[str], bool]
    where_known: Callable[[str], str]
    """`path:line` of code outside the change that uses a name."""
    is_looked_up: Callable[[str], bool]
    """Whether shared code asks objects for an attribute of that name."""
    reads: Collection[str]
    """`module:name` of what shared code may read the switch by."""
    old_imports: Collection[str]
    """Top-level packages that the file imported before."""
    old_names: Collection[str]
    """Variables that the file used before, parameters, imports and definitions included."""
    changed_lines: Collection[int]
    new_options: dict[object, object]
    """New parameters with a constant default, by name."""
    new_positions: dict[object, object]
    """The same by position."""

    def why_import_matters(self, node: ast.stmt) -> str:
        """Why an import that runs with the switch off matters; empty when it does not."""
        package = self.tree.package_of(self.path)
        if isinstance(node, ast.Import):
            targets = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = resolve_relative(package, node.level, node.module) or ""
            targets = [(source, alias.name) for alias in node.names]
        else:
            return ""
        return next((reason for module, name in targets if (reason := self._import_reason(module, name))), "")

    def _import_reason(self, module: str, name: str) -> str:
        full = f"{module}.{name}" if name else module
        if self.owned(module) or self.owned(full):
            if f"{module}:{name}" in self.reads:
                return ""
            return f"imports {full} of the subject with the switch off; it is not among [switch] reads"
        top = module.partition(".")[0]
        if top in sys.stdlib_module_names or top in self.old_imports:
            return ""
        if self.tree.path_of(module) or self.tree.path_of(full):
            return ""
        return f"imports {module} with the switch off, which the file did not need before"

    def why_definition_matters(
        self, node: FunctionNode | ast.ClassDef, owner: ast.ClassDef | None, *, in_function: bool
    ) -> tuple[str, bool]:
        """Why a new function or class matters with the switch off, empty when it does not, and whether it surely does.

        `owner` is the class that it is a member of.
        """
        name = node.name
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            text = dotted(called) or ""
            if text not in _QUIET_DECORATORS and not text.endswith((".setter", ".getter", ".deleter")):
                return (
                    f"@{text or 'a computed decorator'} runs when {name} is defined, with the switch off",
                    True,
                )
        if in_function:
            return "", True
        if name.startswith("__") and name.endswith("__"):
            return f"Python itself calls {name}", True
        if self.is_looked_up(name):
            where = self.where_known(name)
            return f"{name} is a name that shared code looks for ({where}), with the switch off too", True
        if owner is not None and (base := self._overridden(owner, name)):
            return f"{name} overrides that of {base}, with the switch off too", True
        if owner is not None and not self.is_closed(name):
            return f"{name} is a name that other code uses too ({self.where_known(name)})", False
        if isinstance(node, ast.ClassDef):
            return self._why_class_matters(node), True
        if not all(is_pure(d) for d in (*node.args.defaults, *filter(None, node.args.kw_defaults))):
            return f"the defaults of {name} are computed with the switch off", True
        return "", True

    def _why_class_matters(self, node: ast.ClassDef) -> str:
        if node.keywords:
            return f"class {node.name} is made by {ast.unparse(node.keywords[0].value)} with the switch off"
        quiet = ast.Import | ast.ImportFrom | FunctionNode | ast.ClassDef | ast.Pass | ast.AnnAssign
        for statement in node.body:
            is_value = isinstance(statement, ast.Assign) and is_pure(statement.value)
            if not isinstance(statement, quiet) and not is_value:
                return f"the body of class {node.name} runs with the switch off: line {statement.lineno}"
        return ""

    def _overridden(self, owner: ast.ClassDef, name: str, path: str = "", depth: int = 0) -> str:
        """The base class, as far as bases can be read, that has a member of a name."""
        path = path or self.path
        for base in owner.bases if depth < _MAX_DEPTH else ():
            module, _, class_name = (self._absolute(path, base) or "").rpartition(".")
            where = self.tree.path_of(module) if module else path
            parsed = self.tree.parse(where) if where else None
            found = next(
                (
                    n
                    for n in (parsed.body if parsed else ())
                    if isinstance(n, ast.ClassDef) and n.name == class_name
                ),
                None,
            )
            if found is None or where is None:
                continue
            if any(getattr(member, "name", "") == name for member in found.body):
                return class_name
            if inherited := self._overridden(found, name, where, depth + 1):
                return inherited
        return ""

    def _absolute(self, path: str, node: ast.expr) -> str | None:
        name = dotted(node)
        parsed = self.tree.parse(path)
        if name is None or parsed is None:
            return None
        first, _, rest = name.partition(".")
        imported = dict(imported_names(parsed, self.tree.package_of(path))).get(first, first)
        return f"{imported}.{rest}" if rest else imported

    def why_bases_matter(self, old: ast.ClassDef, new: ast.ClassDef) -> Iterator[str]:
        """Why another list of base classes, keywords or decorators matters."""
        before = [ast.dump(base) for base in old.bases]
        after = [ast.dump(base) for base in new.bases]
        if [b for b in after if b in before] != before:
            yield f"class {new.name} has other base classes"
        for kind in ("keywords", "decorator_list"):
            if [ast.dump(x) for x in getattr(old, kind)] != [ast.dump(x) for x in getattr(new, kind)]:
                yield f"class {new.name} is made in another way"
        for base in new.bases:
            if ast.dump(base) not in before:
                yield from self._why_base_matters(base, new)

    def _why_base_matters(self, base: ast.expr, node: ast.ClassDef) -> Iterator[str]:
        absolute = self.scopes.absolute(self.path, base) or ast.unparse(base)
        module, _, name = absolute.rpartition(".")
        found = [c for path, c in self.scopes.classes.get(name, ()) if path == self.tree.path_of(module)]
        if not found:
            yield f"class {node.name} gains the base class {absolute}, which cannot be read here"
            return
        for member in found[0].body:
            if not isinstance(member, FunctionNode) or member.name.startswith("__"):
                continue
            if self.is_looked_up(member.name) or self._overridden(node, member.name) not in ("", name):
                where = self.where_known(member.name)
                yield (
                    f"class {node.name} gains {name}.{member.name}, a name that other code uses ({where}),"
                    " with the switch off too"
                )

    def is_inert(self, statement: ast.stmt) -> bool:
        """Whether a statement only keeps a value, computed without calls, in a name that only the change uses."""
        if isinstance(statement, ast.Pass | ast.Global | ast.Nonlocal):
            return True
        if isinstance(statement, ast.AnnAssign):
            targets: list[ast.expr] = [statement.target]
        elif isinstance(statement, ast.Assign):
            targets = statement.targets
        else:
            return False
        if getattr(statement, "undecided", "") or (statement.value and not is_pure(statement.value)):
            return False
        return all(self._is_own(target) for target in targets)

    def _is_own(self, target: ast.expr) -> bool:
        if isinstance(target, ast.Tuple | ast.List):
            return all(self._is_own(element) for element in target.elts)
        if isinstance(target, ast.Name):
            return target.id not in self.old_names and not self.is_looked_up(target.id)
        is_of_others = self.scopes.is_import(self.path, target)
        return isinstance(target, ast.Attribute) and self.is_closed(target.attr) and not is_of_others

    def without_new_options(self, old: FunctionNode, new: FunctionNode) -> FunctionNode:
        """The new signature without parameters that a call which knows nothing of them leaves out."""
        known = {a.arg for a in (*old.args.posonlyargs, *old.args.args, *old.args.kwonlyargs)}
        args = new.args
        count = len(args.args) - len(args.defaults) + len(args.posonlyargs)
        positional = [*args.posonlyargs, *args.args]
        defaults = [None] * count + list(args.defaults)
        kept = [
            (a, d)
            for a, d in zip(positional, defaults, strict=True)
            if a.arg in known or not isinstance(d, ast.Constant)
        ]
        named = [
            (a, d)
            for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True)
            if a.arg in known or not isinstance(d, ast.Constant)
        ]
        posonly = {a.arg for a in args.posonlyargs}
        arguments = ast.arguments(
            posonlyargs=[a for a, _ in kept if a.arg in posonly],
            args=[a for a, _ in kept if a.arg not in posonly],
            vararg=args.vararg,
            kwonlyargs=[a for a, _ in named],
            kw_defaults=[d for _, d in named],
            kwarg=args.kwarg,
            defaults=[d for _, d in kept if d is not None],
        )
        return type(new)(**{**dict(ast.iter_fields(new)), "args": arguments})

    def without_defaults(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Statements whose calls leave out what a new parameter is by default."""
        if not self.new_options:
            return body
        # The trees are kept for other readings: only a copy may be cut.
        trimmed = _Trimmer(self).visit(ast.Module(body=copy.deepcopy(body), type_ignores=[]))
        found: list[ast.stmt] = trimmed.body
        return found


class _Trimmer(ast.NodeTransformer):
    """Takes arguments out of calls that equal the default of a new parameter."""

    def __init__(self, new_code: NewCode) -> None:
        self._code = new_code

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        node.keywords = [
            k
            for k in node.keywords
            if k.arg is None or not _is_default(k.value, k.arg, self._code.new_options)
        ]
        while node.args and is_changed(node, self._code.changed_lines):
            if not _is_default(node.args[-1], len(node.args) - 1, self._code.new_positions):
                break
            node.args = node.args[:-1]
        return node


def _is_default(value: ast.expr, key: object, defaults: dict[object, object]) -> bool:
    return isinstance(value, ast.Constant) and key in defaults and defaults[key] == value.value
