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
from harness.model.record import Record

R = TypeVar("R", bound=Record)
MIN_NAME_CHARACTERS = 3
"""A shorter name of a user or host is found in every text and names nobody."""
VERSION_FIELDS = frozenset({"packages", "versions"})
"""A version of four numbers looks like an IPv4 address; in these fields it is one."""

_MAX_PASSES = 16
"""What stands in a name's place can lay bare where the next one begins."""
_BEFORE = r"(?<![A-Za-z0-9])"
_AFTER = r"(?![A-Za-z0-9])"
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)+")
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_KEY_BLOCK = r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:.|\n)*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
_TOKEN = (
    r"hf_[A-Za-z0-9]{16,}|gh[opsur]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|npm_[A-Za-z0-9]{20,}"
    r"|sk-(?:ant-[a-z]+[0-9]+|proj|svcacct|admin|or-v1)-(?=[\w-]*[0-9])[\w-]{32,}"
    r"|sk-(?=[A-Za-z]{0,60}[0-9])[A-Za-z0-9]{16,}"
    r"|xox[abeprs]-[A-Za-z0-9-]{10,}|A[KS]IA[A-Z0-9]{16}|AIza[\w-]{30,}|ya29\.[\w-]{16,}"
    r"|pypi-AgE[\w-]{16,}|dckr_pat_[\w-]{16,}|nvapi-[\w-]{20,}|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"
    r"|hooks\.slack\.com/services/[\w/]{12,}|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]+"
)
_VALUE = r"[^\s\"',;<>{}()\[\]]{6,}"
_ASSIGNED = (
    r"(?i:(?:pass(?:word|wd|phrase)|secret(?:_?key)?|api[_-]?key|access[_-]?key|(?:auth|access|refresh|bearer)[_-]?token)"
    rf"[\"']?\s*[:=]\s*[\"']?)(?P<assigned>{_VALUE})"
    rf"|(?<=[A-Z0-9]_)(?:TOKEN|KEY|SECRET|PASS|PAT)=[\"']?(?P<variable>{_VALUE})"
    rf"|(?<![\w-])(?i:pwd)=(?![/~])(?P<pwd>{_VALUE})"
    r"|(?<![\w-])(?i:token)[\"']?\s*[:=]\s*[\"']?(?P<token>(?=[\w-]{0,64}[0-9])(?=[\w-]{0,64}[A-Za-z])[\w-]{12,})"
    rf"|--(?:[a-z]{{1,16}}-){{0,3}}(?:api-key|token|password|passphrase|secret)[ =]+[\"']?(?P<option>(?!-){_VALUE})"
)
"""A value behind a name that says what it is. Of models' tokens this says nothing: they are short, or not assigned."""
_BEARER = (
    r"(?i:authorization[\"']?\s*[:=]\s*[\"']?)?\b(?:Bearer|Basic) (?P<bearer>[A-Za-z0-9+/_.=~-]{12,})"
    r"|(?i:authorization[\"']?\s*[:=]\s*[\"']?token )(?P<scheme>[^\s\"']{6,})"
)
_PERSON = r"[^\s/\\\"'<>:,;)\]]+(?:(?: [A-Z][\w.-]{0,31}){1,2}(?=[/\\]))?"
"""The name of a home folder; of words with spaces between them the next ones begin large and a separator follows."""
_LOGIN_IN_URL = r"(?<=://)(?P<login>[^\s/@:]*:[^\s/@]+)(?=@)"
_PATTERNS: tuple[tuple[str, str], ...] = (
    ("secret", _KEY_BLOCK),
    ("secret", _LOGIN_IN_URL),
    ("secret", rf"{_BEFORE}(?:{_TOKEN})"),
    ("secret", _ASSIGNED),
    ("secret", _BEARER),
    ("email", r"(?<![\w.+-])(?!git@)[\w.+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}" + _AFTER),
    ("home", rf"(?<![\w.-])(?:/[\w.-]+){{0,3}}?/(?:home|[Uu]sers|scratch)/{_PERSON}"),
    ("home", rf"(?i:(?<![A-Za-z0-9])[a-z]:(?:\\{{1,2}}|/)Users(?:\\{{1,2}}|/)){_PERSON}"),
    ("home", r"(?i:%2F(?:home|Users)%2F)[^\s/%&\"'<>]+"),
    ("mac", r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])"),
    ("mac", r"(?<![\w-])(?=[0-9-]{0,16}[A-Fa-f])(?:[0-9A-Fa-f]{2}-){5}[0-9A-Fa-f]{2}(?![\w-])"),
    ("ip", rf"(?<![\w.])(?<!==)(?:{_OCTET}\.){{3}}{_OCTET}(?![\w.]?[0-9])"),
    ("ip", rf"{_BEFORE}ip(?:-{_OCTET}){{4}}{_AFTER}"),
    ("ip", r"(?<![\w:.])(?=[0-9A-Fa-f]{0,4}:)[0-9A-Fa-f:]{3,40}+(?![\w:])"),
    ("gpu", r"\b(?:GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"),
    ("serial", r"(?i:\bserial(?: number)?\s*[:=]\s*)(?P<serial>(?=[A-Za-z]{0,32}[0-9])[A-Za-z0-9]{8,})"),
    (
        "user>@<host",
        r"(?<![\w.+-])[a-z_][\w.-]{0,31}@[a-z][a-z0-9]{0,31}(?:-[a-z0-9]{1,32})*-[a-z]{0,8}[0-9]{1,6}(?![\w.-])",
    ),
)
_FORMS = frozenset({"<email>", "<ip>", "<mac>", "<gpu>"})
"""Of what gives itself away by its form, all that may be published: not secrets, and not where somebody lives."""
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
        if written in self.left or (written in _FORMS and whole in self.public):
            return whole
        if written == "<ip>":
            # A colon may end the clause and not the address.
            address = whole[:-1] if whole.endswith(":") and not whole.endswith("::") else whole
            return written + whole[len(address) :] if _names_a_machine(address) else whole
        inner = next((value for value in found.groupdict().values() if value is not None), None)
        return whole.replace(inner, written) if inner is not None else written

    @cached_property
    def _patterns(self) -> tuple[tuple[re.Pattern[str], str], ...]:
        folders = [
            (re.compile(rf"(?<![\w.-]){re.escape(path)}(?![\w-]|\.\w)"), f"<{written}>")
            for path, written in sorted(self.names.folders.items(), key=lambda pair: -len(pair[0]))
        ]
        words = [
            (re.compile(f"{_BEFORE}{re.escape(word)}{_AFTER}", re.IGNORECASE), f"<{written}>")
            for word, written in sorted(self.names.words.items(), key=lambda pair: -len(pair[0]))
        ]
        private = [(pattern, written) for pattern, written in words if not pattern.search(self.public)]
        forms = [(re.compile(pattern), f"<{written}>") for written, pattern in _PATTERNS]
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
