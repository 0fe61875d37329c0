"""Effects as records: a write to an attribute or a container of others, at a place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from harness.facts.python_effects.guards import is_guarded
from harness.facts.python_effects.operators import all_own
from harness.facts.python_effects.program import Program
from harness.facts.python_effects.scopes import Module, Site
from harness.facts.python_effects.tables import attribute_kind, container_kind
from harness.facts.python_effects.values import (
    NOTHING_KNOWN,
    UNSPELT,
    Imported,
    Namespace,
    Shared,
    Values,
    dotted_names,
    spelt,
    texts,
)
from harness.facts.python_effects.when import ImportTime, is_script
from harness.model.effects import Effect, EffectKind

_MAX_TEXT = 160
_LAYER_TABLE = ".compilation_config.static_forward_context"
"""Where every attention layer of vLLM enters itself under its own prefix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an effect stands."""

    module: Module
    site: Site
    node: ast.AST


class Writes:
    """Makes the effects of one program."""

    def __init__(self, program: Program) -> None:
        self.resolver = program.resolver
        self._import_time = ImportTime(self.resolver)

    def _attribute(
        self, place: Place, values: Values, names: tuple[str, ...], *, removes: bool = False
    ) -> Iterator[Effect]:
        sure = all(isinstance(v, Imported) for v in values)
        for value in sorted((v for v in values if isinstance(v, (Imported, Shared))), key=lambda v: v.name):
            for name in names:
                target = f"{value.name}.{name}"
                if isinstance(value, Shared):
                    yield self._effect(
                        place, EffectKind.SHARED_OBJECT, target, is_sure=False, removes=removes
                    )
                else:
                    yield self._effect(place, attribute_kind(target), target, is_sure=sure, removes=removes)

    def _container(
        self,
        place: Place,
        values: Values,
        key: ast.expr | None,
        *,
        removes: bool,
        on_duplicate: Literal["keeps", "overwrites", "unknown"],
    ) -> Iterator[Effect]:
        sure = all(isinstance(v, Imported) for v in values)
        held = self.resolver.evaluate(key, place.site) if key is not None else NOTHING_KNOWN
        foreign = dotted_names(held)
        keys = (texts(held) and spelt(held)) or foreign[:1]
        for value in sorted((v for v in values if isinstance(v, (Imported, Shared))), key=lambda v: v.name):
            kind = EffectKind.SHARED_OBJECT if isinstance(value, Shared) else container_kind(value.name)
            if value.name.endswith(_LAYER_TABLE):
                kind = EffectKind.REGISTRY
            for text in [None if key == UNSPELT else key for key in keys] or [None]:
                yield self._effect(
                    place,
                    kind,
                    _target(kind, value, text),
                    is_sure=sure and len(keys) <= 1,
                    key=text,
                    key_is_own=all_own(held),
                    key_is_foreign=text in foreign,
                    removes=removes,
                    on_duplicate=on_duplicate,
                    is_guarded=key is not None and is_guarded(self.resolver, place.site, key, text),
                )

    def _when(self, place: Place) -> Literal["import", "call", "script"]:
        if is_script(place.site):
            return "script"
        return "import" if self._import_time.covers(place.site) else "call"

    def _effect(self, place: Place, kind: EffectKind, target: str, **fields: Any) -> Effect:
        node, module = place.node, place.module
        line = getattr(node, "lineno", 1)
        end = (
            line
            if isinstance(node, (ast.For, ast.AsyncFor, ast.With, ast.AsyncWith))
            else getattr(node, "end_lineno", line)
        )
        text = " ".join(part.strip() for part in module.lines[line - 1 : end])
        return Effect(
            path=module.path,
            line=line,
            end_line=end,
            kind=kind,
            target=target,
            when=self._when(place),
            function=place.site.scope.qualified_name,
            text=text[:_MAX_TEXT],
            **fields,
        )


def owners_of(values: Values) -> Values:
    """Whose attributes the dictionaries among the values are."""
    return frozenset(v.of for v in values if isinstance(v, Namespace))


def _target(kind: EffectKind, value: Imported | Shared, key: str | None) -> str:
    """What a finding calls the container: an environment variable by its name, an object by its place."""
    if kind is EffectKind.ENVIRONMENT and key:
        return key
    return f"{value.name}[…]" if isinstance(value, Shared) else value.name
