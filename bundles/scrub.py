"""Keeps out of evidence what names a person, a machine or a secret; what stands in its place stays readable.

Two sources: what this machine is known to be called (`bundles.machine_names`), and forms that give themselves away
wherever they come from: addresses, home folders, tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any, TypeVar

from pydantic import ValidationError

from bundles.error import BundleError
from bundles.scrub_forms import AFTER, BEFORE, PATTERNS, PUBLISHED
from harness.model.record import Record

R = TypeVar("R", bound=Record)
MIN_NAME_CHARACTERS = 3
"""A shorter name of a user or host is found in every text and names nobody."""
VERSION_FIELDS = frozenset({"packages", "versions"})
"""A version of four numbers looks like an IPv4 address; in these fields it is one."""

_MAX_PASSES = 16
"""What stands in a name's place can lay bare where the next one begins."""
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)+")
_PLAIN_ADDRESSES = tuple(ip_network(n) for n in ("127.0.0.0/8", "0.0.0.0/32", "255.255.255.255/32"))
_IPV6_OF_MACHINES = tuple(ip_network(n) for n in ("2000::/3", "fc00::/7", "fe80::/10"))
_JSON_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineNames:
    """What one machine and its user are called."""

    folders: Mapping[str, str] = field(default_factory=dict)
    """Absolute path to what is written for it, without brackets."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Name of a user or host to what is written for it."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Secret value to the name of the environment variable that holds it."""


@dataclass(frozen=True, kw_only=True)
class Scrubber:
    """Replaces what must not travel; the same text gives the same text, and scrubbing twice changes nothing."""

    names: MachineNames = field(default_factory=MachineNames)
    public: str = ""
    """Text that is published anyway, as the repository's own: a name that stands in it as a word, or an address that
    stands in it at all, is no secret."""
    verbatim: str = ""
    """A whole text that stays as it is; a part of it in another text does not."""
    left: frozenset[str] = frozenset()
    """What is written for forms that stay, wherever they stand."""

    def text(self, text: str) -> str:
        """The text with everything replaced, each by a word in angle brackets."""
        if text == self.verbatim:
            return text
        for _ in range(_MAX_PASSES):
            before, text = text, self._pass(text)
            if text == before:
                break
        return text

    def _pass(self, text: str) -> str:
        for value, name in self.names.secrets.items():
            text = text.replace(value, f"<{name}>")
        for pattern, written in self._patterns:
            text = pattern.sub(partial(self._written, written), text)
        return text

    def value(self, value: Any, under: str = "") -> Any:
        """A JSON value with every text in it scrubbed, keys included.

        Raises:
            BundleError: two keys of one object would become the same.
        """
        if isinstance(value, str):
            is_version = under in VERSION_FIELDS and _VERSION.fullmatch(value)
            return value if is_version else self.text(value)
        if isinstance(value, list):
            return [self.value(element, under) for element in value]
        if isinstance(value, dict):
            inner = {key: under if under in VERSION_FIELDS else key for key in value}
            scrubbed = {self.text(key): self.value(element, inner[key]) for key, element in value.items()}
            if len(scrubbed) != len(value):
                raise _refusal("two of its keys would become the same")
            return scrubbed
        return value

    def record(self, record: R) -> R:
        """The record as it may be kept; the same object where nothing was to be replaced.

        Raises:
            BundleError: without what had to be replaced it is no such record.
        """
        if not self.touches(record.model_dump_json()):
            return record
        before = record.model_dump(mode="json")
        after = self.value(before)
        if after == before:
            return record
        try:
            return type(record).model_validate(after)
        except ValidationError as error:
            raise _refusal("a name that had to be taken out stands where nothing else may") from error

    def touches(self, json_text: str) -> bool:
        """Whether any string of a JSON text would change; quicker than scrubbing it."""
        strings = set(_JSON_STRING.findall(json_text))
        return any(self.text(s) != s for s in (json.loads(f'"{s}"') if "\\" in s else s for s in strings))

    def _written(self, written: str, found: re.Match[str]) -> str:
        whole = found[0]
        if written in self.left or (written in PUBLISHED and whole in self.public):
            return whole
        if written == "<ip>":
            # A colon may end the clause and not the address.
            address = whole[:-1] if whole.endswith(":") and not whole.endswith("::") else whole
            return written + whole[len(address) :] if _names_a_machine(address) else whole
        if found.lastgroup is None:
            return written
        start, end = (place - found.start() for place in found.span(found.lastgroup))
        return whole[:start] + written + whole[end:]

    @cached_property
    def _patterns(self) -> tuple[tuple[re.Pattern[str], str], ...]:
        folders = [
            (re.compile(rf"(?<![\w.-]){re.escape(path)}(?![\w-]|\.\w)"), f"<{written}>")
            for path, written in sorted(self.names.folders.items(), key=lambda pair: -len(pair[0]))
        ]
        words = [
            (re.compile(f"{BEFORE}{re.escape(word)}{AFTER}", re.IGNORECASE), f"<{written}>")
            for word, written in sorted(self.names.words.items(), key=lambda pair: -len(pair[0]))
        ]
        private = [(pattern, written) for pattern, written in words if not pattern.search(self.public)]
        forms = [(re.compile(pattern), f"<{written}>") for written, pattern in PATTERNS]
        # Secrets before all else, folders before the names in them.
        num_secrets = sum(written == "<secret>" for _, written in forms)
        return (*forms[:num_secrets], *folders, *forms[num_secrets:], *private)


class TakenOver(Scrubber):
    """For evidence of sealed bundles, which was scrubbed where it was made: replaces nothing."""

    def text(self, text: str) -> str:
        """The text as it is."""
        return text


def names_machine(where: str) -> BundleError:
    """The refusal of something that should have been scrubbed when it was recorded, and was not."""
    message = "it names this machine, its user or a secret, and was not scrubbed when it was recorded."
    return BundleError("bundle-names-machine", where, message, "Nothing of it was written. Please report it.")


def _names_a_machine(text: str) -> bool:
    if text.startswith("ip-"):
        return True
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        return any(address in network for network in _IPV6_OF_MACHINES)
    return not any(address in network for network in _PLAIN_ADDRESSES)


def _refusal(why: str) -> BundleError:
    advice = "Run it under a user and on a host whose names are no words of the evidence."
    return BundleError("evidence-not-scrubbable", "", f"The record cannot be kept: {why}.", advice)
