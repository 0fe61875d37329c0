"""Operators that code defines or implements through `torch.library`, and names that it enters into registries."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from harness.facts.python_effects.resolve import Resolver
from harness.facts.python_effects.scopes import Site
from harness.facts.python_effects.values import (
    Builtin,
    Constant,
    Imported,
    Items,
    Made,
    OwnClass,
    OwnFunction,
    OwnInstance,
    Value,
    Values,
    dotted_names,
    texts,
)
from harness.model.effects import EffectKind

OnDuplicate = Literal["keeps", "overwrites", "unknown"]
_LIBRARY = re.compile(r"torch\.library\.Library\((.*)\)")
_ENGINE = "vllm"
_DEFINES = frozenset({"custom_op", "triton_op", "define"})
_IMPLEMENTS = re.compile(
    r"impl|impl_abstract|_?register_(fake|kernel|autograd|vmap|torch_dispatch|autocast|effectful_op)"
)
_OP_OBJECT = re.compile(r"torch\.ops\.(\w+)\.(\w+)")
_PY_IMPL = re.compile(r"torch\.ops\.(\w+)\.(\w+)(\.\w+)*\.(py_impl|py_functionalize_impl|register_\w+)")
_REGISTERS = re.compile(r"_?(register|add_to_registry)(_\w+)?")
_KEYWORDS = ("name", "key", "model_type", "model_arch", "op_name", "method", "backend")
_KNOWN: tuple[tuple[re.Pattern[str], OnDuplicate], ...] = (
    (re.compile(r"vllm\.(\w+\.)*ModelRegistry\.register_model"), "overwrites"),
    (re.compile(r"vllm\.(\w+\.)*(CustomOp|PluggableLayer)\.register"), "keeps"),
    (re.compile(r"vllm\.(\w+\.)*register_quantization_config"), "overwrites"),
)
"""What vLLM 0.32 does with a name that exists: its model registry warns and replaces, its layers assert."""
_AUTO_CLASS = re.compile(r"transformers\.(\w+\.)*(Auto\w+|CONFIG_MAPPING|\w+_MAPPING)\.register")
_NO_REGISTRY = re.compile(r"torch\.(nn\.|cuda\.|distributed\.|monitor\.)[\w.]+|(abc|atexit|weakref)\.[\w.]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One operator or name, and what becomes of an earlier one."""

    kind: EffectKind
    target: str
    key: str | None = None
    key_is_own: bool = False
    key_is_foreign: bool = False
    on_duplicate: OnDuplicate = "unknown"
    is_sure: bool = True


class EntryReader:
    """Reads registrations out of calls and decorators."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    def entries(self, node: ast.expr, site: Site, callee: Value) -> Iterator[Entry]:
        """The entries that calling `callee` at `node` makes; `node` is a bare decorator or a call."""
        if isinstance(callee, Imported):
            last = callee.name.rpartition(".")[2]
            if match := _PY_IMPL.fullmatch(callee.name):
                yield _operator(f"{match[1]}::{match[2]}", "overwrites")
            elif callee.name.startswith("torch.library.") or callee.name.startswith("torch._library."):
                yield from self._library_function(node, site, last)
            elif last == "direct_register_custom_op":
                yield from self._direct(node, site)
            elif last in ("define", "impl") and (
                names := self._operator_names(self._argument(node, site, 0))
            ):
                # A library that others made: of the engine's modules it is the engine's.
                owner = callee.name.rpartition(".")[0]
                namespace = _ENGINE if owner.partition(".")[0] == _ENGINE else owner
                for text in names:
                    yield _operator(_joined(namespace, text), "keeps" if last == "define" else "overwrites")
            elif _REGISTERS.fullmatch(last) and not _NO_REGISTRY.fullmatch(callee.name):
                yield self._registration(node, site, callee.name)

    def library_method(self, node: ast.Call, site: Site, owner: Values, name: str) -> Iterator[Entry]:
        """What a method of a `torch.library.Library` object does."""
        for value in owner:
            match = _LIBRARY.fullmatch(value.name) if isinstance(value, Made) else None
            if match is None or not (name == "define" or _IMPLEMENTS.fullmatch(name)):
                continue
            found = self._operator_names(self._argument(node, site, 0))
            for text in found:
                yield _operator(_joined(match[1], text), "keeps" if name == "define" else "overwrites")
            if not found:
                yield _operator(f"{match[1]}::…", "unknown", is_sure=False)

    def _library_function(self, node: ast.expr, site: Site, name: str) -> Iterator[Entry]:
        defines = name in _DEFINES
        if not defines and not _IMPLEMENTS.fullmatch(name):
            return
        first = self._argument(node, site, 0)
        libraries = [m[1] for v in first if isinstance(v, Made) and (m := _LIBRARY.fullmatch(v.name))]
        names = self._operator_names(self._argument(node, site, 1) if libraries else first)
        if not names and first and all(isinstance(v, (OwnFunction, OwnClass)) for v in first):
            return
        for text in names:
            yield _operator(
                _joined(libraries[0] if libraries else "", text), "keeps" if defines else "overwrites"
            )
        if not names:
            yield _operator("…", "unknown", is_sure=False)

    def _direct(self, node: ast.expr, site: Site) -> Iterator[Entry]:
        """vLLM's `direct_register_custom_op`: into the `vllm` namespace unless a library is given."""
        library = self._argument(node, site, 99, "target_lib")
        given = [m[1] for v in library if isinstance(v, Made) and (m := _LIBRARY.fullmatch(v.name))]
        names = texts(self._argument(node, site, 0, "op_name"))
        for text in names:
            yield _operator(f"{given[0] if given else _ENGINE}::{text}", "keeps")
        if not names:
            yield _operator(f"{_ENGINE}::…", "unknown", is_sure=False)

    def _registration(self, node: ast.expr, site: Site, name: str) -> Entry:
        registry = name.rpartition(".")[0]
        on_duplicate: OnDuplicate = next((d for p, d in _KNOWN if p.fullmatch(name)), "unknown")
        if _AUTO_CLASS.fullmatch(name):
            exist_ok = self._argument(node, site, 99, "exist_ok")
            on_duplicate = (
                "overwrites" if exist_ok - {Constant(False)} and _has_keyword(node, "exist_ok") else "keeps"
            )
        keys = self._key(node, site)
        own = isinstance(node, ast.Call) is False or node in site.scope.module.decorated
        named = texts(keys)
        is_python = any(isinstance(v, Builtin) for v in keys)
        is_own = all_own(keys) or (own and not named and not dotted_names(keys) and not is_python)
        return Entry(
            kind=EffectKind.REGISTRY,
            target=name if not registry else f"{registry}.{name.rpartition('.')[2]}",
            key=named[0] if len(named) == 1 else (dotted_names(keys) or (None,))[0],
            key_is_own=is_own,
            key_is_foreign=not named and bool(dotted_names(keys)),
            on_duplicate=on_duplicate,
            is_sure=len(keys) == 1 or is_own,
        )

    def _key(self, node: ast.expr, site: Site) -> Values:
        if not isinstance(node, ast.Call):
            return self._dispatched_type(node, site)
        for keyword in node.keywords:
            if keyword.arg in _KEYWORDS:
                return self._resolver.evaluate(keyword.value, site)
        return self._argument(node, site, 0)

    def _dispatched_type(self, decorator: ast.expr, site: Site) -> Values:
        """The type of its first parameter, for which `@function.register` of `functools.singledispatch` enters it."""
        definition = site.scope.module.decorated.get(decorator)
        if not isinstance(definition, ast.FunctionDef) or not definition.args.args:
            return frozenset()
        annotation = definition.args.args[0].annotation
        return frozenset() if annotation is None else self._resolver.evaluate(annotation, site)

    def _argument(self, node: ast.expr, site: Site, index: int, keyword: str = "") -> Values:
        if not isinstance(node, ast.Call):
            return frozenset()
        for given in node.keywords:
            if given.arg == keyword or (index == 0 and given.arg in ("qualname", "name", "schema")):
                return self._resolver.evaluate(given.value, site)
        if index < len(node.args) and not isinstance(node.args[index], ast.Starred):
            return self._resolver.evaluate(node.args[index], site)
        return frozenset()

    def _operator_names(self, values: Values) -> list[str]:
        names = [re.split(r"[(\s]", text.strip(), maxsplit=1)[0] for text in texts(values)]
        for dotted in dotted_names(values):
            if match := _OP_OBJECT.match(dotted):
                names.append(f"{match[1]}::{match[2]}")
        for value in values:
            if isinstance(value, Items):
                names += self._operator_names(self._resolver.elements(frozenset({value})))
        return names


def all_own(values: Iterable[Value]) -> bool:
    """Whether a key can only be a class, function or instance of the change."""
    found = list(values)
    return bool(found) and all(isinstance(v, (OwnClass, OwnFunction, OwnInstance)) for v in found)


def _operator(name: str, on_duplicate: OnDuplicate, *, is_sure: bool = True) -> Entry:
    return Entry(kind=EffectKind.OPERATOR, target=name, on_duplicate=on_duplicate, is_sure=is_sure)


def _joined(namespace: str, name: str) -> str:
    return name if "::" in name or not namespace else f"{namespace}::{name}"


def _has_keyword(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and any(k.arg in (name, None) for k in node.keywords)


def is_builtin(values: Values, *names: str) -> bool:
    """Whether a value may be one of these built-in functions."""
    return any(
        (isinstance(v, Builtin) and v.name in names)
        or (
            isinstance(v, Imported)
            and v.name.removeprefix("builtins.") in names
            and v.name.startswith("builtins.")
        )
        for v in values
    )
