"""One way of being off stands for another only where it was asked nothing that the other answers otherwise."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.facts.python_source.off_path.switch import EMPTY, SWITCHES, SwitchOff, ways_of_being_off
from harness.facts.python_source.off_path.values import known

WAYS = ways_of_being_off("additional_config", "backend", "auto")
ASKED: dict[str, tuple[Callable[[SwitchOff], object], bool]] = {
    "nothing": (lambda way: way.name, True),
    "default-is-off": (lambda way: way.get(SWITCHES, known("auto")), True),
    "default-is-on": (lambda way: way.get(SWITCHES, known("fast")), False),
    "get-of-an-empty-one": (lambda way: way.get(EMPTY, known("fast")), True),
    "item": (lambda way: way.item(SWITCHES, is_caught=False), False),
    "caught-item": (lambda way: way.item(SWITCHES, is_caught=True), False),
    "in": (lambda way: way.contains(SWITCHES), False),
    "in-an-empty-one": (lambda way: way.contains(EMPTY), True),
    "is-it-filled": (lambda way: way.fills(SWITCHES), False),
    "is-an-empty-one-filled": (lambda way: way.fills(EMPTY), True),
}


@pytest.mark.parametrize("asked", ASKED)
def test_a_way_reads_as_another_where_every_answer_is_the_same(asked: str) -> None:
    ask, is_alike = ASKED[asked]
    for ways in (WAYS, WAYS[::-1]):
        first, second = (way.afresh() for way in ways)
        ask(first)
        assert second.reads_as(first) is is_alike


def test_another_switch_never_stands_for_one() -> None:
    (other, _), (unset, _) = ways_of_being_off("additional_config", "other", "auto"), WAYS
    assert not unset.reads_as(other.afresh())
    assert not unset.afresh().asked
