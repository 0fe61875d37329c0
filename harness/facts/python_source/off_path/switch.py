"""How source code reads the switch, and what it gets while the switch is off."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from harness.facts.python_source.off_path.values import BOTTOM, Value, join, known, unknown

A = TypeVar("A")
Kind = Literal["additional_config", "env", "flag"]
_LITERALS: dict[str, object] = {"true": True, "false": False, "none": None, "null": None}
CONFIG_NAME = "additional_config"
"""The attribute of vLLM's configuration that holds what the engine itself does not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchOff:
    """One way of being off: the key left out, or set to the value that means off."""

    kind: Kind
    key: str
    off: str
    is_set: bool
    asked: dict[tuple[str, tuple[Hashable, ...]], object] = field(
        default_factory=dict, compare=False, repr=False
    )
    """Questions in which ways can differ, with the answers that were given."""

    @property
    def described(self) -> str:
        """The way, as a sentence part."""
        return f'{self.key} set to "{self.off}"' if self.is_set else f"{self.key} unset"

    @property
    def name(self) -> str:
        """The key as an identifier: what a flag is called on a configuration object."""
        return identifier_of(self.key)

    @property
    def value(self) -> Value:
        """What a read gives that cannot fail: a flag's value, or the value that was set."""
        return known(self._literal() if self.kind == "flag" else self.off, switched=True)

    def get(self, mapping: Value, default: Value) -> Value:
        """`mapping.get(key, default)`."""
        return self._note(("get", (mapping, default)), self._get(mapping, default))

    def item(self, mapping: Value, *, is_caught: bool) -> Value:
        """`mapping[key]`; not reached where it raises and that is caught."""
        return self._note(("item", (mapping, is_caught)), self._item(mapping, is_caught))

    def contains(self, mapping: Value) -> Value:
        """`key in mapping`."""
        return self._note(("contains", (mapping,)), self._contains(mapping))

    def fills(self, mapping: Value) -> bool:
        """Whether a mapping holds the switch, so that it is not empty."""
        return self._note(("fills", (mapping,)), self._fills(mapping))

    def afresh(self) -> SwitchOff:
        """The same way, which nothing has asked anything so far."""
        return replace(self, asked={})

    def reads_as(self, other: SwitchOff) -> bool:
        """Whether it answers all that `other` was asked as that did: code that asked it reads alike under both."""
        if (self.kind, self.key, self.off) != (other.kind, other.key, other.off):
            return False
        answers: dict[str, Callable[..., object]] = {
            "get": self._get,
            "item": self._item,
            "contains": self._contains,
            "fills": self._fills,
        }
        return all(answers[name](*given) == answer for (name, given), answer in other.asked.items())

    def _note(self, question: tuple[str, tuple[Hashable, ...]], answer: A) -> A:
        self.asked[question] = answer
        return answer

    def _get(self, mapping: Value, default: Value) -> Value:
        fallback = replace(default.derive(), switched=True)
        if mapping.mapping == "empty" or not self.is_set:
            return fallback
        return self.value if mapping.mapping == "switches" else join(self.value, fallback)

    def _item(self, mapping: Value, is_caught: bool) -> Value:
        if self.is_set and mapping.mapping == "switches":
            return self.value
        if is_caught and not self.is_set:
            return BOTTOM
        return unknown(f"`[...]` raises with {self.key} unset")

    def _contains(self, mapping: Value) -> Value:
        if not self.is_set or mapping.mapping == "empty":
            return known(False, switched=True)
        return (
            known(True, switched=True) if mapping.mapping == "switches" else known(True, False, switched=True)
        )

    def _fills(self, mapping: Value) -> bool:
        return mapping.mapping == "switches" and self.is_set

    def _literal(self) -> object:
        text = self.off.lower()
        if text in _LITERALS:
            return _LITERALS[text]
        return int(text) if text.lstrip("-").isdigit() else self.off


def identifier_of(key: str) -> str:
    """What a flag is called on a configuration object: `foo_fast` of `--foo-fast`."""
    return key.lstrip("-").rpartition(".")[2].replace("-", "_")


SWITCHES = Value(None, mapping="switches")
EMPTY = Value(None, mapping="empty")


def ways_of_being_off(kind: Kind, key: str, off: str) -> tuple[SwitchOff, ...]:
    """Unset, and set to the value that means off."""
    return tuple(SwitchOff(kind=kind, key=key, off=off, is_set=is_set) for is_set in (False, True))
