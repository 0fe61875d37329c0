"""JSON of a bundle: two fixed byte forms to write, one strict way to read."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from pydantic import BaseModel
from pydantic_core import from_json

from bundles.error import BundleError

_ONE_LINE_CHARACTERS = 100
_COMPACT = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def render_pretty_json(value: Any) -> bytes:
    """Sorted keys, two spaces, UTF-8, a newline at the end; NaN and infinity raise ValueError."""
    text = json.dumps(_plain(value), sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode("utf-8")


def render_evidence_json(value: Any) -> bytes:
    """One top-level key a line, and one for each element of a long top-level list; otherwise compact.

    Large records stay small, and a person with grep or diff can still read them.
    """
    return render_both_forms(_plain(value))[0]


def render_both_forms(value: dict[str, Any]) -> tuple[bytes, bytes]:
    """An evidence record as its file holds it, and as `render_canonical_json` writes it for the digest that names it.

    Both in one pass: they differ in the white space between elements alone.
    """
    spread, canonical = [], []
    for key in sorted(value):
        name, (open_form, closed_form) = _compact(key), _spread(value[key])
        spread.append(f"{name}: {open_form}")
        canonical.append(f"{name}:{closed_form}")
    return (
        ("{\n" + ",\n".join(spread) + "\n}\n").encode("utf-8"),
        ("{" + ",".join(canonical) + "}").encode("utf-8"),
    )


def parse_json(data: bytes, path: str) -> Any:
    """The value of a JSON file; `path` names the file in errors.

    Raises:
        BundleError: not UTF-8, not JSON, NaN or infinity, a key twice, half a character, nested too deep.
    """
    try:
        value = json.loads(
            data.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_unique_keys
        )
        if b"\\ud" in data or b"\\uD" in data:
            _compact(value).encode("utf-8")
        return value
    except UnicodeEncodeError as error:
        message = "an escape names half of a character."
        raise BundleError("evidence-malformed-json", path, message) from error
    except UnicodeDecodeError as error:
        raise BundleError("evidence-not-utf8", path, f"byte {error.start} is not UTF-8.") from error
    except json.JSONDecodeError as error:
        message = f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        raise BundleError("evidence-malformed-json", path, message) from error
    except RecursionError as error:
        raise BundleError("evidence-malformed-json", path, "nested too deep.") from error
    except ValueError as error:
        raise BundleError("evidence-malformed-json", path, f"not JSON: {error}.") from error


def parse_written_json(data: bytes, path: str) -> tuple[Any, tuple[bytes, bytes] | None]:
    """As `parse_json`; where the bytes are the writer's, with what `render_both_forms` makes of the value.

    In the writer's bytes is nothing that `parse_json` refuses, so that a quicker parser will do for them.
    """
    try:
        value = from_json(data, allow_inf_nan=False)
        forms = render_both_forms(value) if isinstance(value, dict) else (b"", b"")
        if forms[0] == data:
            return value, forms
    except ValueError:
        # What is wrong, the strict parser says.
        pass
    return parse_json(data, path), None


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


def _compact(value: Any) -> str:
    return _COMPACT.encode(value)


def _spread(value: Any) -> tuple[str, str]:
    if not isinstance(value, list):
        text = _compact(value)
        return text, text
    elements = [_compact(element) for element in value]
    text = f"[{','.join(elements)}]"
    if len(text) <= _ONE_LINE_CHARACTERS:
        return text, text
    return "[\n  " + ",\n  ".join(elements) + "\n]", text


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} occurs twice in one object")
        found[key] = value
    return found
