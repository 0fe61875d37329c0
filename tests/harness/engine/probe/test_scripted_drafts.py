"""Laws of scripted drafts: their length and their number of right tokens are the script's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engine.probe.scripted_drafts import ScriptedDrafts, other_token, undrafted_scenario
from harness.model.probe import ProbeEvent, ProbeRequest, Scenario

PROMPT, OUTPUT = (1, 2, 3), (10, 11, 12, 13, 14, 15, 16)


def propose(drafts: ScriptedDrafts, context: tuple[int, ...], most: int = 5) -> list[int]:
    tokens = np.zeros((1, 64), dtype=np.int32)
    tokens[0, : len(context)] = context
    return drafts.propose(most, [[context[-1]]], np.array([len(context)]), tokens)[0]


def scripted(*script: tuple[int, int]) -> ScriptedDrafts:
    def own(*_: Any, **__: Any) -> list[list[int]]:
        return [[99]]

    drafts = ScriptedDrafts(own)
    drafts.know(PROMPT, OUTPUT)
    drafts.script(PROMPT, script)
    return drafts


@given(st.integers(0, 5).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), st.integers(1, 2))
def test_a_draft_has_the_scripts_length_and_as_many_right_tokens_as_it_says(
    script: tuple[int, int], done: int
) -> None:
    length, right = script
    found = propose(scripted(script), PROMPT + OUTPUT[:done])
    expected = OUTPUT[done : done + length]
    assert len(found) == len(expected)
    assert [a == b for a, b in zip(found, expected, strict=True)] == [i < right for i in range(len(expected))]


def test_the_script_goes_round() -> None:
    drafts = scripted((1, 1), (2, 0))
    lengths = [len(propose(drafts, PROMPT + OUTPUT[:1])) for _ in range(4)]
    assert lengths == [1, 2, 1, 2]


def test_an_empty_script_drafts_nothing_and_no_script_leaves_it_to_the_engine() -> None:
    drafts = scripted()
    assert propose(drafts, PROMPT + OUTPUT[:1]) == []
    drafts.clear()
    assert propose(drafts, PROMPT + OUTPUT[:1]) == [99]


def test_a_draft_is_never_longer_than_the_engine_asks_for() -> None:
    assert len(propose(scripted((5, 5)), PROMPT + OUTPUT[:1], most=2)) == 2


@pytest.mark.parametrize(("token", "alternative"), [(0, 0), (5, 5), (5, 6), (1, 0)])
def test_a_wrong_token_exists_and_is_another_one(token: int, alternative: int) -> None:
    assert other_token(token, alternative) != token
    assert other_token(token, alternative) >= 0


def test_every_drafted_prompt_runs_once_without_drafts_at_its_greatest_length() -> None:
    def request(name: str, text: str, max_tokens: int, drafts: tuple[tuple[int, int], ...]) -> ProbeRequest:
        return ProbeRequest(name=name, text=text, max_tokens=max_tokens, drafts=drafts)

    def scenario(name: str, *requests: ProbeRequest) -> Scenario:
        return Scenario(name=name, events=(ProbeEvent(before_step=0, add=requests),))

    once = scenario("s", request("a", "x", 4, ((1, 1),)), request("b", "y", 5, ()))
    scenarios = [once, scenario("t", request("c", "x", 9, ((1, 0),)))]
    undrafted = undrafted_scenario(scenarios)
    assert undrafted is not None
    assert [(r.text, r.max_tokens) for r in undrafted.events[0].add] == [("x", 9)]
    assert undrafted_scenario([]) is None
