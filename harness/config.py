"""Loads the manifest and the policy, and says everything that is wrong with them at once."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from harness.config_fields import BadField, describe_date, describe_errors
from harness.config_rules import kernel_problems, manifest_problems, policy_problems
from harness.model.errors import ConfigurationError
from harness.model.kernels import KernelsFile, KernelsSection
from harness.model.manifest import Manifest
from harness.model.paths import MANIFEST
from harness.model.policy import Policy
from harness.model.selftest import FaultDescription
from harness.model.words import Tier

DEFAULT_MANIFEST = MANIFEST
DEFAULT_POLICY = ".github/fasttrack-policy.toml"
_MAX_BYTES = 2**20
_ADVICE = {
    "manifest": "docs/manifest.md describes every key of a manifest.",
    "policy": "docs/policy.md describes every key of a policy.",
    "fault": "docs/selftest.md describes every key of a fault.",
}
M = TypeVar("M", bound=BaseModel)


def read_configuration(path: Path, kind: str) -> bytes:
    """The bytes of a manifest or policy file (`kind` says which)."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ConfigurationError(f"no-{kind}", f"There is no {kind} at {path}.", _ADVICE[kind]) from None
    except OSError as error:
        raise ConfigurationError(
            f"no-{kind}", f"The {kind} {path} cannot be read: {error.strerror}."
        ) from error
    return content


def load_manifest(text: str | bytes, name: str = DEFAULT_MANIFEST) -> Manifest:
    """The manifest in `text`.

    Args:
        text: TOML, UTF-8 when given as bytes.
        name: how messages call the file.

    Raises:
        ConfigurationError: with every bad field as `path: got X, expected Y`.
    """
    manifest = _load(text, name, "manifest", Manifest)
    _raise_bad_fields(manifest_problems(manifest), name, "manifest")
    return manifest


def load_kernels(text: str | bytes, name: str = DEFAULT_MANIFEST) -> KernelsSection:
    """The `[kernels]` of a manifest, or of a file that has nothing else: enough for an audit, not for a judgement.

    Raises:
        ConfigurationError: as `load_manifest`.
    """
    sections = set(_parse_toml(decode_configuration(text, name, "manifest"), name, "manifest"))
    if not sections <= set(KernelsFile.model_fields):
        return load_manifest(text, name).kernels
    section = _load(text, name, "manifest", KernelsFile).kernels
    _raise_bad_fields(kernel_problems(section), name, "manifest")
    return section


def load_policy(
    text: str | bytes, name: str = DEFAULT_POLICY, *, known_checks: Mapping[str, Tier] | None = None
) -> Policy:
    """The policy in `text`.

    Args:
        text: TOML, UTF-8 when given as bytes.
        name: how messages call the file.
        known_checks: tier by id of the checks that exist; None leaves the required ids unchecked.

    Raises:
        ConfigurationError: with every bad field as `path: got X, expected Y`.
    """
    policy = _load(text, name, "policy", Policy)
    if known_checks is not None:
        _raise_bad_fields(policy_problems(policy, known_checks), name, "policy")
    return policy


def load_fault(text: str | bytes, name: str) -> FaultDescription:
    """The description of a seeded fault in `text`; raises ConfigurationError as `load_manifest`."""
    return _load(text, name, "fault", FaultDescription)


def _load(text: str | bytes, name: str, kind: str, model: type[M]) -> M:
    data = _parse_toml(decode_configuration(text, name, kind), name, kind)
    dates = [describe_date(location, value, model) for location, value in _dates(data)]
    try:
        loaded = model.model_validate_json(json.dumps(data, default=str), strict=True)
        others = []
    except ValidationError as error:
        dated = {field.path for field in dates}
        others = [field for field in describe_errors(error, data, model) if field.path not in dated]
    _raise_bad_fields(dates + others, name, kind)
    return loaded


def decode_configuration(text: str | bytes, name: str, kind: str) -> str:
    """The text of a configuration file; raises ConfigurationError when it is too large or not UTF-8."""
    if len(text) > _MAX_BYTES:
        raise ConfigurationError(f"bad-{kind}", f"{name} is larger than 1 MiB.", _ADVICE[kind])
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text[: error.start].count(b"\n") + 1
        raise ConfigurationError(
            f"bad-{kind}",
            f"{name} is not UTF-8: byte 0x{text[error.start]:02x} in line {line}.",
            _ADVICE[kind],
        ) from None


def _parse_toml(text: str, name: str, kind: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ConfigurationError(f"bad-{kind}", f"{name} is not TOML: {reason}.", _ADVICE[kind]) from None


def _dates(value: Any, location: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], str]]:
    """Dates and times by location: TOML has them, and no field here takes one."""
    if isinstance(value, dict):
        return [found for key, item in value.items() for found in _dates(item, (*location, key))]
    if isinstance(value, list):
        return [found for index, item in enumerate(value) for found in _dates(item, (*location, index))]
    return [(location, str(value))] if isinstance(value, (date, datetime, time)) else []


def _raise_bad_fields(fields: Sequence[BadField], name: str, kind: str) -> None:
    if fields:
        count = "1 error" if len(fields) == 1 else f"{len(fields)} errors"
        lines = "\n".join(f"  {field}" for field in fields)
        raise ConfigurationError(f"bad-{kind}", f"{name} has {count}:\n{lines}", _ADVICE[kind])
