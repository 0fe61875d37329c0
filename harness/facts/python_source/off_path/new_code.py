"""Which additions to a hooked file do nothing while the switch is off."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial

from harness.facts.python_source.names import dotted, resolve_relative
from harness.facts.python_source.off_path.bases import Bases, members_of
from harness.facts.python_source.off_path.bindings import FunctionNode
from harness.facts.python_source.off_path.fields import Fields
from harness.facts.python_source.off_path.residue import effect_of_expression, is_total
from harness.facts.python_source.off_path.scopes import Scopes
from harness.facts.python_source.off_path.signatures import Options
from harness.facts.python_source.tree import SourceTree

Reason = tuple[str, bool] | None
"""Why something matters with the switch off, and whether it surely does; None when it does not."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a statement is added."""

    names: Collection[str]
    """Names that the file, class or function used before."""
    owner: ast.ClassDef | None = None
    """The class whose body it is."""
    is_function: bool = False
    shared: Collection[str] = ()
    """Locals of the function that others see too."""
    is_followed: bool = False
    """Whether assignments of before come after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCode:
    """What a hooked file may gain without changing anything while the switch is off."""

    path: str
    scopes: Scopes
    tree: SourceTree
    bases: Bases
    owned: Callable[[str], bool]
    """Whether a module is the subject's."""
    is_closed: Callable[[str], bool]
    where_known: Callable[[str], str]
    """`path:line` of code outside the change that uses a name."""
    is_looked_up: Callable[[str], bool]
    """Whether shared code asks objects for an attribute of that name."""
    is_asked_for: Callable[[str], bool]
    """Whether shared code that reads signatures names a parameter."""
    reads: Collection[str]
    """`module:name` of what shared code may read the switch by."""
    old_imports: Collection[str]
    """Top-level packages that the file imported before."""
    old_names: Collection[str]
    """Variables that the file used before, parameters, imports and definitions included."""
    changed_lines: Collection[int]
    options: Options
    """Parameters that the file's functions gained."""

    def why_matters(self, node: ast.stmt, place: Place) -> Reason:
        """Why a new statement matters with the switch off."""
        if isinstance(node, ast.Import | ast.ImportFrom):
            return self._import(node, place)
        if isinstance(node, FunctionNode | ast.ClassDef):
            return self._definition(node, place)
        if isinstance(node, ast.Global | ast.Nonlocal):
            return None
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            reasons = [self._target(target, place) for target in targets]
            reasons += [self._field(node, place.owner)]
            found = next((r for r in reasons if r and r[1]), next(filter(None, reasons), None))
            is_field = (
                place.owner is not None and node.value is not None and self._fields.is_field_call(node.value)
            )
            value = self._value(node.value) if node.value is not None and not is_field else None
            return found if found and found[1] else value if value and value[1] else found or value
        effect = effect_of_expression(node.value, calls_are_sure=True) if isinstance(node, ast.Expr) else None
        return (effect.text, False) if effect and not effect.is_sure else ("runs with the switch off", True)

    @property
    def _fields(self) -> Fields:
        absolute = partial(self.scopes.absolute, self.path)
        return Fields(tree=self.tree, bases=self.bases, absolute=absolute)

    def _field(self, node: ast.stmt, owner: ast.ClassDef | None, *, is_added: bool = True) -> Reason:
        """Why a field of a decorated class may matter to others who make or derive from it."""
        if owner is None or not owner.decorator_list or not isinstance(node, ast.AnnAssign):
            return None
        text = self._fields.why_matters(node, owner, is_added=is_added)
        return (text, False) if text else None

    def _import(self, node: ast.Import | ast.ImportFrom, place: Place) -> Reason:
        package = self.tree.package_of(self.path)
        for alias in node.names:
            if isinstance(node, ast.Import):
                module, name = alias.name, ""
            else:
                module, name = resolve_relative(package, node.level, node.module) or "", alias.name
            bound = alias.asname or alias.name.partition(".")[0]
            if reason := self._imported(module, name) or self._name(bound, place):
                is_package = isinstance(node, ast.Import) and not alias.asname and self._imports_top(bound)
                if not is_package or reason[0].startswith("imports"):
                    return reason
        return None

    def _imports_top(self, name: str) -> bool:
        """Whether the file's name already stands for the package of that name, as `import a.b` makes it."""
        return self.scopes.imports.get(self.path, {}).get(name) == name and not self.scopes.is_rebound(
            self.path, name
        )

    def _imported(self, module: str, name: str) -> Reason:
        full = f"{module}.{name}" if name else module
        if self.owned(module) or self.owned(full):
            if f"{module}:{name}" in map(_imported_name, self.reads):
                return None
            return f"imports {full} of the subject with the switch off; it is not among [switch] reads", True
        if module == "__future__":
            return f"imports {full}, which changes how the whole file is compiled", False
        if name == "*":
            return f"imports every name of {module}, and which that are cannot be told", False
        top = module.partition(".")[0]
        if top in sys.stdlib_module_names or top in self.old_imports:
            return None
        if self.tree.path_of(module) or self.tree.path_of(full):
            return None
        return f"imports {module} with the switch off, which the file did not need before", True

    def _name(self, name: str, place: Place) -> Reason:
        """Why a new name matters where it is bound."""
        if place.owner is not None:
            return self._member(name, place.owner, place.names)
        if name in place.names:
            return f"gives {name}, which was used here before, another value with the switch off too", True
        if place.is_function:
            return None
        if _is_special(name):
            return f"Python itself uses {name}", True
        if self.is_looked_up(name):
            where = self.where_known(name)
            return f"{name} is a name that shared code looks for ({where}), with the switch off too", True
        return None

    def _member(self, name: str, owner: ast.ClassDef, names: Collection[str] = ()) -> Reason:
        """Why a new member of a class matters."""
        if _is_special(name):
            return f"Python itself calls {name}", True
        if name in names:
            return f"{owner.name} used {name} before", True
        if self.is_looked_up(name):
            where = self.where_known(name)
            return f"{name} is a name that shared code looks for ({where}), with the switch off too", True
        if base := self.bases.having(self.path, owner, name):
            return f"{name} overrides that of {base}, with the switch off too", True
        if not self.is_closed(name):
            return f"{name} is a name that other code uses too ({self.where_known(name)})", False
        if base := self.bases.unread(self.path, owner):
            return (
                f"{owner.name} gains {name}, and whether its base {base} uses that name cannot be read",
                False,
            )
        return None

    def _definition(self, node: FunctionNode | ast.ClassDef, place: Place) -> Reason:
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            text = dotted(called) or "a computed decorator"
            is_quiet = text in _QUIET_DECORATORS or text.endswith((".setter", ".getter", ".deleter"))
            if not is_quiet and self.scopes.wrapper_by(self.path, decorator) is None:
                return f"@{text} runs when {node.name} is defined, with the switch off", True
        if reason := self._name(node.name, place):
            return reason
        if isinstance(node, ast.ClassDef):
            return self._class(node)
        defaults = (*node.args.defaults, *filter(None, node.args.kw_defaults))
        found = [reason for default in defaults if (reason := self._value(default))]
        return next((r for r in found if r[1]), found[0] if found else None)

    def _class(self, node: ast.ClassDef) -> Reason:
        if node.keywords:
            made_by = ast.unparse(node.keywords[0].value)
            return f"class {node.name} is made by {made_by} with the switch off", True
        quiet = ast.Import | ast.ImportFrom | FunctionNode | ast.ClassDef | ast.Pass
        for statement in node.body:
            if isinstance(statement, quiet):
                continue
            value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else statement
            if isinstance(statement, ast.AnnAssign) and node.decorator_list:
                if reason := self._field(statement, node, is_added=False):
                    return reason
                if isinstance(value, ast.expr) and self._fields.is_field_call(value):
                    continue
            effect = effect_of_expression(value) if value is not None else None
            if effect or not isinstance(statement, ast.Assign | ast.AnnAssign):
                text = f"the body of class {node.name} runs with the switch off: line {statement.lineno}"
                return text, True
        return None

    def _value(self, value: ast.expr) -> Reason:
        if effect := effect_of_expression(value, calls_are_sure=True):
            return (effect.text if not effect.is_sure else "runs with the switch off"), effect.is_sure
        if is_total(value):
            return None
        return f"computes `{ast.unparse(value)[:60]}` with the switch off, which may fail or cost", False

    def _target(self, target: ast.expr, place: Place) -> Reason:
        if isinstance(target, ast.Tuple | ast.List):
            return next((reason for e in target.elts if (reason := self._target(e, place))), None)
        if isinstance(target, ast.Name):
            if reason := self._name(target.id, place):
                return reason
            is_read = place.owner is not None and place.is_followed and bool(place.owner.decorator_list)
            text = f"{target.id} comes before what {place.owner and place.owner.name} had"
            return (text, False) if is_read else None
        is_own = isinstance(target, ast.Attribute) and self.is_closed(target.attr)
        if is_own and not self.scopes.is_import(self.path, target):
            is_of_self = isinstance(target, ast.Attribute) and getattr(target.value, "id", "") == "self"
            text = f"sets {ast.unparse(target)}, and whether the class of that object uses the name cannot be read"
            return None if is_of_self else (text, False)
        return "runs with the switch off", True

    def why_class_matters(self, old: ast.ClassDef, new: ast.ClassDef) -> Iterator[tuple[str, bool]]:
        """Why another list of base classes, keywords or decorators matters."""
        before = [ast.dump(base) for base in old.bases]
        after = [ast.dump(base) for base in new.bases]
        if [b for b in after if b in before] != before:
            yield f"class {new.name} has other base classes", True
        for kind in ("keywords", "decorator_list"):
            if [ast.dump(x) for x in getattr(old, kind)] != [ast.dump(x) for x in getattr(new, kind)]:
                yield f"class {new.name} is made in another way", True
        for base in new.bases:
            if ast.dump(base) not in before:
                yield from self._base(base, old)

    def _base(self, base: ast.expr, node: ast.ClassDef) -> Iterator[tuple[str, bool]]:
        """Why a new base class matters: for what it has, whether it comes before or after the old ones."""
        absolute = self.scopes.absolute(self.path, base) or ast.unparse(base)
        module, _, name = absolute.rpartition(".")
        where = self.tree.path_of(module)
        found = [c for path, c in self.scopes.classes.get(name, ()) if path == where]
        if not found or where is None or found[0].keywords or found[0].decorator_list:
            yield f"class {node.name} gains the base class {absolute}, which cannot be read here", True
            return
        members = members_of(found[0])
        for inherited, inner in self.bases.chain(where, found[0]):
            members |= members_of(inner) if inner is not None else set()
            if inner is None and inherited != "object":
                yield f"class {node.name} gains the base class {inherited}, by {absolute}", False
        for member in sorted(members - {"__doc__"}):
            if reason := self._member(member, node):
                yield f"class {node.name} gains {name}.{member}: {reason[0]}", reason[1]


def _imported_name(read: str) -> str:
    """`module:name` of what must be imported for a read: the class of `module:Class.method`."""
    module, _, name = read.partition(":")
    return f"{module}:{name.partition('.')[0]}"


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
