"""The settings through which users reach a change: what code reads, what tests set, what documents say."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from harness.model.record import Record

FLAG_OF_THE_ENGINE = "--additional-config"
"""What vLLM's command line has had since 0.8: source that does not hold it does not say which flags there are."""


class SettingKind(StrEnum):
    """How a setting is given."""

    ENVIRONMENT = "environment variable"
    FLAG = "flag"
    CONFIG_KEY = "key of additional_config"
    FIELD = "field"
    """A field of a configuration class."""


class SettingUse(Record):
    """One place that reads, declares, sets or documents a setting."""

    kind: SettingKind
    name: str
    """A field's name is `Class.field`."""
    role: Literal["reads", "declares", "sets", "documents", "mentions"]
    """`documents` tells a user to set it; `mentions` is any other word in a document."""
    path: str
    line: int
    default: str | None = None
    """What holds when it is absent, as the code writes it; None where that is not said in this place."""
    text: str = ""
    """The line, cut to 160 characters."""


class SwitchRead(Record):
    """One place that reads the switch's key, and what follows when the key is absent."""

    path: str
    line: int
    text: str
    when_absent: Literal["off", "on", "raises", "unknown"]
    value: str = ""
    """What the code then uses, as Python writes it; empty where it is not known."""
