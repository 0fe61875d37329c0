"""The base classes of a class, as far as they can be read, and what they already have."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from harness.facts.python_source.names import dotted
from harness.facts.python_source.off_path.scopes import imported_names
from harness.facts.python_source.tree import SourceTree
from harness.facts.python_source.walk import walk

_MAX_DEPTH = 8
"""Base classes of base classes, and imports of imports, that are followed."""
_PLAIN = frozenset(
    ("object", "typing.Protocol", "typing.Generic", "typing_extensions.Protocol", "abc.ABC", "Protocol")
)
"""Bases that call no method which a subclass is not told of."""
_TORCH_MODULE = ("torch.nn.Module", "torch.nn.modules.module.Module", "torch.nn.modules.Module")
_TORCH_WORDS = """
    T_destination _apply _backward_hooks _backward_pre_hooks _buffers _call_impl _compiled_call_impl _forward_hooks
    _forward_hooks_always_called _forward_hooks_with_kwargs _forward_pre_hooks _forward_pre_hooks_with_kwargs
    _get_backward_hooks _get_backward_pre_hooks _get_name _is_full_backward_hook _load_from_state_dict
    _load_state_dict_post_hooks _load_state_dict_pre_hooks _maybe_warn_non_full_backward_hook _modules _named_members
    _non_persistent_buffers_set _parameters _register_load_state_dict_pre_hook _register_state_dict_hook
    _replicate_for_data_parallel _save_to_state_dict _slow_forward _state_dict_hooks _state_dict_pre_hooks _version
    _wrapped_call_impl add_module apply bfloat16 buffers call_super_init children compile cpu cuda double dump_patches
    eval extra_repr float forward get_buffer get_extra_state get_parameter get_submodule half ipu load_state_dict
    modules mtia named_buffers named_children named_modules named_parameters parameters register_backward_hook
    register_buffer register_forward_hook register_forward_pre_hook register_full_backward_hook
    register_full_backward_pre_hook register_load_state_dict_post_hook register_load_state_dict_pre_hook
    register_module register_parameter register_state_dict_post_hook register_state_dict_pre_hook requires_grad_
    set_extra_state set_submodule share_memory state_dict to to_empty train training type xpu zero_grad
"""
TORCH_MODULE_NAMES = frozenset(_TORCH_WORDS.split())
"""Names that torch.nn.Module of torch 2.13 has, those with two underscores on both sides left out."""


@dataclass(slots=True)
class Bases:
    """Finds base classes in one tree."""

    tree: SourceTree
    _imports: dict[str, dict[str, str]] = field(default_factory=dict)

    def having(self, path: str, node: ast.ClassDef, name: str) -> str:
        """The base class that has a member of a name; empty when none that can be read has."""
        for known_as, found in self.chain(path, node):
            if found is None:
                if known_as in _TORCH_MODULE and name in TORCH_MODULE_NAMES:
                    return known_as
            elif name in members_of(found):
                return found.name
        return ""

    def unread(self, path: str, node: ast.ClassDef) -> str:
        """The first base class that cannot be read, so that what it calls is not known."""
        known = {*_PLAIN, *_TORCH_MODULE}
        return next(
            (name for name, found in self.chain(path, node) if found is None and name not in known), ""
        )

    def chain(
        self, path: str, node: ast.ClassDef, depth: int = 0
    ) -> Iterator[tuple[str, ast.ClassDef | None]]:
        """Every base class by its dotted name, those of bases too, and its definition; None when that is not there."""
        for base in node.bases:
            expression = base.value if isinstance(base, ast.Subscript) else base
            name = self._absolute(path, expression)
            where, found = self._find(path, name)
            yield name, found
            if found is not None and depth < _MAX_DEPTH:
                yield from self.chain(where, found, depth + 1)

    def _find(self, path: str, name: str, depth: int = 0) -> tuple[str, ast.ClassDef | None]:
        """The class of a dotted name and its file, also where a package only imports it."""
        module, _, class_name = name.rpartition(".")
        where = self.tree.path_of(module) if module else path
        parsed = self.tree.parse(where) if where else None
        if where is None or parsed is None or depth > _MAX_DEPTH:
            return path, None
        classes = [n for n in parsed.body if isinstance(n, ast.ClassDef) and n.name == class_name]
        if classes:
            return where, classes[-1]
        imported = self._imports_of(where).get(class_name, name)
        return self._find(where, imported, depth + 1) if imported != name else (path, None)

    def _absolute(self, path: str, node: ast.expr) -> str:
        name = dotted(node)
        if name is None:
            return ast.unparse(node)
        first, _, rest = name.partition(".")
        imported = self._imports_of(path).get(first, first)
        return f"{imported}.{rest}" if rest else imported

    def _imports_of(self, path: str) -> dict[str, str]:
        if path not in self._imports:
            parsed = self.tree.parse(path)
            names = imported_names(parsed, self.tree.package_of(path)) if parsed is not None else ()
            self._imports[path] = dict(names)
        return self._imports[path]


def members_of(node: ast.ClassDef) -> set[str]:
    """Names that the body of a class binds."""
    names: set[str] = set()
    for statement in node.body:
        names |= {getattr(statement, "name", "")}
        targets = (
            statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        )
        names |= {n.id for t in targets if t is not None for n in walk(t) if isinstance(n, ast.Name)}
    return names - {""}
