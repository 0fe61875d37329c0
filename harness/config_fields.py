"""Bad fields of a configuration in the user's words: where, what was found, what is expected."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

_MAX_SHOWN = 80


@dataclass(frozen=True, slots=True)
class BadField:
    """One field that cannot be used."""

    path: str
    got: str
    expected: str

    def __str__(self) -> str:
        return f"{self.path}: got {self.got}, expected {self.expected}"


def describe_errors(error: ValidationError, data: object, model: type[BaseModel]) -> list[BadField]:
    """Every error of a validation, for the data as the user wrote it."""
    return [_describe(dict(entry), data, model) for entry in error.errors(include_url=False)]


def describe_date(location: Sequence[str | int], value: str, model: type[BaseModel]) -> BadField:
    """A date or time, which TOML knows and no field takes."""
    expected = _expected_type(_annotation_at(tuple(location), model))
    in_quotes = " in quotes" if expected == "a string" else ""
    return BadField(_dotted(location), f"the date or time {value}", expected + in_quotes)


def shown(value: object) -> str:
    """A value as a user recognises it: strings in quotes, tables and lists by kind."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"' if len(value) <= _MAX_SHOWN else f'"{value[:_MAX_SHOWN]}…"'
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, Sequence):
        return "a list" if value else "an empty list"
    return str(value)


def suggestion(word: str, known: Sequence[str]) -> str:
    """`; did you mean "…"?` for the nearest known word; empty when none is near."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f'; did you mean "{near[0]}"?' if near else ""


def _describe(entry: dict[str, Any], data: object, model: type[BaseModel]) -> BadField:
    location = tuple(part for part in entry["loc"] if part != "[key]")
    path = _dotted(location) or "the file"
    if entry["type"] == "extra_forbidden":
        return BadField(path, "an unknown key", _expected_key(location, model))
    if entry["type"] == "missing":
        return BadField(path, "nothing", _expected_type(_annotation_at(location, model)))
    got = f'"{location[-1]}"' if "[key]" in entry["loc"] else shown(_value_at(location, data))
    return BadField(path, got, _expected_value(entry, _annotation_at(location, model)))


def _expected_key(location: tuple[str | int, ...], model: type[BaseModel]) -> str:
    place = _unwrapped(_annotation_at(location[:-1], model))
    key = str(location[-1])
    known = list(place.model_fields) if isinstance(place, type) and issubclass(place, BaseModel) else []
    near = suggestion(key, known)
    if near:
        return f"a key of {_place(location[:-1])}{near}"
    elsewhere = [where for where, name in _all_keys(model, ()) if name == key]
    if elsewhere:
        return f'"{key}" below {_place(elsewhere[0])}'
    return f"one of {', '.join(known)}"


def _expected_value(entry: dict[str, Any], annotation: Any) -> str:
    kind, context = entry["type"], entry.get("ctx", {})
    if kind in ("literal_error", "enum"):
        return f"one of {context['expected']}" if "," in context["expected"] else context["expected"]
    if kind == "string_pattern_mismatch":
        return f"a string like {context['pattern']}"
    if kind == "too_short":
        return f"a list of at least {context['min_length']}"
    if kind == "finite_number":
        return "a finite number"
    if kind == "value_error":
        return str(context["error"])
    limits = {"greater_than": "more than", "greater_than_equal": "at least"}
    limits |= {"less_than": "less than", "less_than_equal": "at most"}
    if kind in limits:
        return f"{limits[kind]} {next(iter(context.values()))}"
    return _expected_type(annotation)


def _expected_type(annotation: Any) -> str:
    inner = _unwrapped(annotation)
    origin = get_origin(inner)
    if origin is tuple:
        return f"a list, each item {_expected_type(get_args(inner)[0])}"
    if origin is Literal:
        return " or ".join(shown(value) for value in get_args(inner))
    if origin is dict or (isinstance(inner, type) and issubclass(inner, BaseModel)):
        return "a table"
    names = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}
    return names.get(inner, "a string")


def _annotation_at(location: tuple[str | int, ...], model: Any) -> Any:
    """The annotation of the field at a location; None below an unknown key."""
    place: Any = model
    for part in location:
        place = _unwrapped(place)
        if isinstance(place, type) and issubclass(place, BaseModel):
            field = place.model_fields.get(str(part))
            place = None if field is None else field.annotation
        elif get_origin(place) is tuple:
            place = get_args(place)[0]
        elif get_origin(place) is dict:
            place = get_args(place)[1]
        else:
            return None
    return place


def _unwrapped(annotation: Any) -> Any:
    """The annotation without `Annotated` and `| None`."""
    if get_origin(annotation) is Annotated:
        return _unwrapped(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return _unwrapped(next(a for a in get_args(annotation) if a is not type(None)))
    return annotation


def _all_keys(model: Any, where: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    inner = _unwrapped(model)
    if get_origin(inner) is tuple:
        inner = _unwrapped(get_args(inner)[0])
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        for name, field in inner.model_fields.items():
            yield where, name
            yield from _all_keys(field.annotation, (*where, name))


def _value_at(location: tuple[str | int, ...], data: Any) -> object:
    for part in location:
        data = data[part]
    return data


def _dotted(location: Sequence[str | int]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".")


def _place(location: Sequence[str | int]) -> str:
    return f"[{_dotted(location)}]" if location else "the top of the file"
