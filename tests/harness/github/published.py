"""GitHub's published API description, as far as it was extracted, and what is wrong with a request by it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

_FOLDER = Path(__file__).parent / "published"
_NAMES = ("properties", "patternProperties")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One call of the API."""

    method: str
    path: str
    parameters: tuple[dict[str, Any], ...]
    body: dict[str, Any] | None
    status: int
    """Of a success."""
    answer: Any
    """The description's own example."""

    def values(self, path: str) -> dict[str, str] | None:
        """The path's parameters; None when it is another path."""
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(self.path))
        found = re.fullmatch(pattern, path)
        return found.groupdict() if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What reached the server."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case."""
    body: Any


def published_events(name: str) -> list[Any]:
    """GitHub's published examples of an event."""
    return json.loads((_FOLDER / "events.json").read_text())["events"][name]  # type: ignore[no-any-return]


@cache
def published_operations() -> tuple[Operation, ...]:
    """Every call that the client may make."""
    document = json.loads((_FOLDER / "api.json").read_text())
    return tuple(
        Operation(**{**o, "parameters": tuple(o["parameters"]), "body": _strict(o["body"])})
        for o in document["operations"]
    )


def find_operation(
    operations: tuple[Operation, ...], request: Request
) -> tuple[Operation, dict[str, str]] | None:
    """The call that a request makes, and the parameters of its path."""
    for operation in operations:
        values = operation.values(request.path)
        if operation.method.upper() == request.method and values is not None:
            return operation, values
    return None


def find_problems(operation: Operation, values: Mapping[str, str], request: Request) -> list[str]:
    """Where a request is not what the description, or GitHub's rules on headers, ask for."""
    problems = []
    given = {"path": dict(values), "query": dict(request.query)}
    for parameter in operation.parameters:
        place, name = parameter["in"], parameter["name"]
        text = given.get(place, {}).pop(name, None)
        if text is None:
            problems += [f"{place} {name} is missing"] if parameter.get("required") else []
        else:
            problems += _schema_problems(_typed(text, parameter["schema"]), parameter["schema"], name)
    problems += [f"{place} {name} is unknown" for place, rest in given.items() for name in rest]
    if operation.body is not None:
        problems += _schema_problems(request.body, operation.body, "body")
        if request.headers.get("content-type") != "application/json":
            problems.append("content-type is not JSON")
    elif request.body is not None:
        problems.append("a body where none belongs")
    wanted = {"accept": "application/vnd.github+json", "x-github-api-version": "2022-11-28"}
    problems += [f"header {name}" for name, value in wanted.items() if request.headers.get(name) != value]
    problems += [] if request.headers.get("user-agent") else ["no user-agent, which GitHub refuses"]
    return problems


def _schema_problems(value: Any, schema: dict[str, Any], name: str) -> list[str]:
    validator = jsonschema.Draft4Validator(schema, format_checker=jsonschema.FormatChecker())
    return [f"{name}/{'/'.join(map(str, e.path))}: {e.message[:200]}" for e in validator.iter_errors(value)]


def _typed(text: str, schema: Mapping[str, Any]) -> Any:
    return int(text) if schema.get("type") == "integer" and text.isdecimal() else text


def _strict(schema: Any, *, names: bool = False) -> Any:
    """OpenAPI 3.0 as JSON Schema, and no property but the named ones: a misspelt one would do nothing."""
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _strict(item, names=not names and key in _NAMES) for key, item in schema.items()}
    if names:
        return made
    if made.pop("nullable", False) and "type" in made:
        made["type"] = [made["type"], "null"]
    if "properties" in made:
        made.setdefault("additionalProperties", False)
    return made
