"""The part of SARIF 2.1.0 that a report needs. Written from OASIS's specification of the format."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
Level = Literal["note", "warning", "error"]


class _Object(BaseModel):
    """A SARIF object: keys in camel case, absent ones left out."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class Message(_Object):
    """Plain text."""

    text: str


class ArtifactLocation(_Object):
    """A file, relative to the repository."""

    uri: str
    uri_base_id: str = "%SRCROOT%"


class Region(_Object):
    """Lines of a file."""

    start_line: int
    end_line: int


class PhysicalLocation(_Object):
    """Where in a file."""

    artifact_location: ArtifactLocation
    region: Region


class ResultLocation(_Object):
    """Where a result is."""

    physical_location: PhysicalLocation


class Result(_Object):
    """One finding. Its `kind` stays "fail", the only one that may carry a level: the outcome is in `properties`."""

    rule_id: str
    rule_index: int
    level: Level
    message: Message
    locations: tuple[ResultLocation, ...]
    partial_fingerprints: dict[str, str]
    properties: dict[str, str]


class Rule(_Object):
    """One check."""

    id: str
    short_description: Message
    full_description: Message
    help_uri: str | None = None
    """Where the check's page can be read; absolute."""
    help: Message
    properties: dict[str, Any]


class Driver(_Object):
    """fasttrack."""

    name: str = "fasttrack"
    version: str
    rules: tuple[Rule, ...]


class Tool(_Object):
    """What made the log."""

    driver: Driver


class RuleReference(_Object):
    """Which rule a notification is about."""

    id: str


class Notification(_Object):
    """What has no place in a file: a check that was not run, or that broke."""

    level: Level
    message: Message
    associated_rule: RuleReference | None = None


class Invocation(_Object):
    """The run of the judge."""

    execution_successful: bool
    tool_execution_notifications: tuple[Notification, ...]


class Run(_Object):
    """One judgement."""

    tool: Tool
    invocations: tuple[Invocation, ...]
    results: tuple[Result, ...]
    properties: dict[str, str]


class SarifLog(_Object):
    """The document."""

    schema_uri: str = SCHEMA
    version: Literal["2.1.0"] = "2.1.0"
    runs: tuple[Run, ...]
