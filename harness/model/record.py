"""The base of every type that crosses a file, a process or the network."""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, model_validator

_WITH_TEXT = (str, tuple, dict)


class Record(BaseModel):
    """Immutable, strict about unknown keys, free of NaN, infinity and text without UTF-8 once serialised."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False, validate_default=True
    )

    @model_validator(mode="after")
    def _escape_lone_surrogates(self) -> Self:
        """Python literals and JSON can hold half a surrogate pair, which no UTF-8 file can: it becomes `\\udcNN`."""
        for name, value in self.__dict__.items():
            if isinstance(value, _WITH_TEXT) and (plain := encodable(value)) is not value:
                self.__dict__[name] = plain
        return self

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with fields replaced; nothing that was computed of the old ones is kept."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields:
            del copied.__dict__[name]
        return copied


def encodable(value: Any) -> Any:
    """The value with every lone surrogate in its texts written as an escape; itself where there is none."""
    if isinstance(value, str):
        if value.isascii():
            return value
        escaped = value.encode("utf-8", errors="backslashreplace").decode()
        return value if escaped == value else escaped
    if type(value) is tuple:
        # Thousands of numbers are looked at by their few types.
        if not any(issubclass(kind, _WITH_TEXT) for kind in set(map(type, value))):
            return value
        parts = tuple(map(encodable, value))
        return value if all(map(operator.is_, parts, value)) else parts
    if type(value) is dict:
        items = {encodable(k): encodable(v) for k, v in value.items()}
        same = all(a is b for a, b in zip((*items, *items.values()), (*value, *value.values()), strict=False))
        return value if same and len(items) == len(value) else items
    return value


def render_canonical_json(value: Any) -> bytes:
    """The one byte form of a JSON value: sorted keys, no spaces, UTF-8, no NaN (raises ValueError)."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def digest_of(value: Any) -> str:
    """The sha256, in hexadecimal, of the canonical JSON of `value`."""
    return hashlib.sha256(render_canonical_json(value)).hexdigest()
