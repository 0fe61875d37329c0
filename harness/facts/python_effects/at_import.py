"""What matters only because an import does it: files that are written, contexts that are entered and never left."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness.facts.python_effects.operators import is_builtin
from harness.facts.python_effects.scopes import Site
from harness.facts.python_effects.values import (
    Made,
    OwnClass,
    OwnInstance,
    Values,
    dotted_names,
    paths,
    texts,
)
from harness.facts.python_source.names import dotted
from harness.model.effects import EffectKind

if TYPE_CHECKING:
    from harness.facts.python_effects.resolve import Resolver

_ENTERING = ("__enter__", "enter_context")
_WRITING = (
    "write_text",
    "write_bytes",
    "touch",
    "mkdir",
    "unlink",
    "rename",
    "replace",
    "symlink_to",
    "chmod",
)


def done_at_import(
    resolver: Resolver, site: Site, call: ast.Call, callee: Values
) -> Iterator[tuple[EffectKind, str]]:
    """What a call that an import runs does beyond its caller, and its name."""
    if is_builtin(callee, "exit", "quit", "input"):
        yield EffectKind.AT_IMPORT, ast.unparse(call.func)
    if is_builtin(callee, "open") and _opens_to_write(resolver, site, call):
        yield EffectKind.FILES, "open"
    if name := _device(resolver, site, call):
        yield EffectKind.DEVICE, name
    if not isinstance(call.func, ast.Attribute):
        return
    owner = resolver.evaluate(call.func.value, site)
    if call.func.attr in _WRITING:
        for name in sorted(path.name for path in paths(owner)):
            yield EffectKind.FILES, f"{name}.{call.func.attr}"
    if call.func.attr in _ENTERING:
        if call.func.attr == "enter_context":
            owner = resolver.evaluate(call.args[0], site) if call.args else frozenset()
        for name in _contexts(resolver, owner):
            if name.startswith("torch."):
                yield EffectKind.GLOBAL_SETTING, f"{name}.__enter__"


def _device(resolver: Resolver, site: Site, call: ast.Call) -> str:
    """How a call puts something on a GPU: by a `device` or by the methods of tensors; empty when it does not."""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if method == "cuda":
        return ".cuda()"
    given = [k.value for k in call.keywords if k.arg == "device"] + (call.args[:1] if method == "to" else [])
    for value in given:
        is_device = (
            isinstance(value, ast.Call) and bool(value.args) and (dotted(value.func) or "").endswith("device")
        )
        text = value.args[0] if is_device and isinstance(value, ast.Call) else value
        if any(found.startswith("cuda") for found in texts(resolver.evaluate(text, site))):
            return f"{method or dotted(call.func) or 'a call'}(… cuda)"
    return ""


def _contexts(resolver: Resolver, values: Values) -> Iterator[str]:
    """The outside classes of context managers."""
    for value in values:
        if isinstance(value, Made):
            yield value.name
        elif isinstance(value, OwnInstance):
            yield from dotted_names(resolver.bases(OwnClass(value.node, value.module)))


def _opens_to_write(resolver: Resolver, site: Site, call: ast.Call) -> bool:
    modes = [k.value for k in call.keywords if k.arg == "mode"] or call.args[1:2]
    return any(set(text) & set("wax+") for mode in modes for text in texts(resolver.evaluate(mode, site)))
