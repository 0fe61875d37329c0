"""Objects of the change's own: which expressions give one, and classes whose objects are made of their fields."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.facts.python_source.names import dotted
from harness.facts.python_source.off_path.bindings import FunctionNode, why_class_not_plain
from harness.facts.python_source.off_path.scopes import Scopes
from harness.facts.python_source.walk import children, walk

_DYNAMIC = ("__new__", "__getattr__", "__getattribute__", "__setattr__", "__init__", "__post_init__")
"""Methods by which an object has other fields, or other values in them, than its class was called with."""
_SPECIAL_FIELDS = ("ClassVar", "InitVar", "KW_ONLY")
_OF_CLASSES = ("cls", "__class__", "type", "super")
"""Names by which a method may make further objects of its class."""
_TRUSTED_BASES = ("object", "torch.nn.Module", "typing.NamedTuple")
_MADE_OF_FIELDS = ("dataclasses.dataclass", "typing.NamedTuple")


@dataclass(slots=True)
class Records:
    """The classes of the analysed files and what is read of objects."""

    scopes: Scopes
    _fields: dict[ast.ClassDef, tuple[str, ...] | None] = field(default_factory=dict)
    _members: list[frozenset[str]] | None = None
    _read_of: dict[str, dict[str, set[str]]] = field(default_factory=dict)

    def class_called(self, path: str, callee: ast.expr) -> tuple[str, ast.ClassDef] | None:
        """The analysed class that a call makes an object of, and its file; None where that is not sure."""
        absolute = self.scopes.absolute(path, callee)
        module, _, name = (absolute or "").rpartition(".")
        where = self.scopes.tree.path_of(module) if module else path
        found = [(p, c) for p, c in self.scopes.classes.get(name, ()) if p == where]
        return found[0] if len(found) == 1 and not self.scopes.why_unsure(path, callee) else None

    def is_plain(self, path: str, node: ast.ClassDef) -> bool:
        """Whether objects of a class have the attributes that the analysed files set, and no others."""
        absolute = [self.scopes.absolute(path, base) for base in node.bases]
        methods = {s.name for s in node.body if isinstance(s, FunctionNode)}
        is_own = all(
            b in _TRUSTED_BASES or self.class_called(path, n)
            for b, n in zip(absolute, node.bases, strict=True)
        )
        known = lambda expression: self.scopes.absolute(path, expression)  # noqa: E731
        return is_own and not methods & set(_DYNAMIC[:4]) and not why_class_not_plain(node, known)

    def fields(self, path: str, node: ast.ClassDef) -> tuple[str, ...] | None:
        """The fields of a dataclass or named tuple in order; None for classes that do more than hold them."""
        if node not in self._fields:
            self._fields[node] = self._fields_of(path, node)
        return self._fields[node]

    @property
    def all_fields(self) -> frozenset[str]:
        """The fields of every class that was called so far and is made of them."""
        return frozenset(name for fields in self._fields.values() for name in fields or ())

    def _fields_of(self, path: str, node: ast.ClassDef) -> tuple[str, ...] | None:
        made_by = [d.func if isinstance(d, ast.Call) else d for d in (*node.decorator_list, *node.bases)]
        options = [k for d in node.decorator_list if isinstance(d, ast.Call) for k in d.keywords]
        names = [self.scopes.absolute(path, n) for n in made_by]
        if (
            len(names) != 1
            or names[0] not in _MADE_OF_FIELDS
            or node.keywords
            or any(k.arg == "init" for k in options)
        ):
            return None
        fields: list[str] = []
        for statement in node.body:
            match statement:
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                    is_special = any(word in ast.unparse(annotation) for word in _SPECIAL_FIELDS)
                    if is_special or not isinstance(value, ast.Constant | None):
                        return None
                    fields.append(name)
                case ast.FunctionDef(name=name) if name not in _DYNAMIC and not statement.decorator_list:
                    if any(isinstance(n, ast.Name) and n.id in _OF_CLASSES for n in walk(statement)):
                        return None
                case ast.Pass() | ast.Expr(value=ast.Constant()):
                    continue
                case _:
                    return None
        return tuple(fields) if self._is_only_called(node.name) else None

    def _is_only_called(self, name: str) -> bool:
        """Whether the analysed files use a class for nothing but calls, annotations and `isinstance`."""
        for path in self.scopes.paths:
            parsed = self.scopes.tree.parse(path) if self.scopes.tree.may_name(path, name) else None
            pending: list[ast.AST] = [parsed] if parsed is not None else []
            while pending:
                node = pending.pop()
                if name in (getattr(node, "id", ""), getattr(node, "attr", "")):
                    return False
                is_query = isinstance(node, ast.Call) and dotted(node.func) in ("isinstance", "issubclass")
                skipped = [getattr(node, "annotation", None), getattr(node, "returns", None)]
                skipped += node.args[1:] if is_query and isinstance(node, ast.Call) else []
                skipped += [node.func] if isinstance(node, ast.Call) and _last(node.func) == name else []
                pending += [child for child in children(node) if not any(child is s for s in skipped)]
        return True

    def is_like_own(
        self, path: str, owner: ast.expr, attribute: str, is_closed: Callable[[str], bool]
    ) -> bool:
        """Whether a file uses an object as one of a class that sets the attribute: by another of its own names."""
        text = dotted(owner)
        if text is None:
            return False
        if path not in self._read_of:
            self._read_of[path] = self._attributes_read(path)
        others = {name for name in self._read_of[path].get(text, set()) - {attribute} if is_closed(name)}
        if self._members is None:
            self._members = [_members(c) for found in self.scopes.classes.values() for _, c in found]
        return any(attribute in members and others & members for members in self._members)

    def _attributes_read(self, path: str) -> dict[str, set[str]]:
        parsed = self.scopes.tree.parse(path)
        found: dict[str, set[str]] = defaultdict(set)
        for node in walk(parsed) if parsed is not None else ():
            if isinstance(node, ast.Attribute) and (text := dotted(node.value)) is not None:
                found[text].add(node.attr)
        return found


def _members(node: ast.ClassDef) -> frozenset[str]:
    """The methods of a class and the attributes that they set on `self`."""
    names = {s.name for s in node.body if isinstance(s, FunctionNode)}
    for inner in walk(node):
        if (
            isinstance(inner, ast.Attribute)
            and isinstance(inner.ctx, ast.Store)
            and dotted(inner.value) == "self"
        ):
            names.add(inner.attr)
    return frozenset(names)


def _last(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
