"""Laws of counting experts: what routing functions return is read as ids or weights, layer by layer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.engine.expert_tally import ExpertTally, counts_of

IDS = torch.tensor([[0, 2], [2, 3]], dtype=torch.int32)
WEIGHTS = torch.tensor([[0.7, 0.0, 0.3, 0.0], [0.0, 0.0, 0.5, 0.5]])


@pytest.mark.parametrize("result", [IDS, (IDS, torch.rand(2, 2)), [torch.rand(2, 2), IDS.long()], WEIGHTS])
def test_ids_alone_or_beside_weights_and_a_weight_an_expert_are_the_same_choice(result: Any) -> None:
    assert counts_of(result).tolist() == [1, 0, 2, 1]


@pytest.mark.parametrize("result", [None, "ids", torch.rand(4), (torch.rand(2, 2), torch.rand(2, 2)), ()])
def test_what_says_nothing_of_experts_is_not_counted(result: Any) -> None:
    with pytest.raises(TypeError, match="says nothing of experts"):
        counts_of(result)


def routed(tally: ExpertTally, *results: Any) -> None:
    """One step in which a routing function returns these, a layer after the other."""
    found = iter(results)
    function = tally.wrapper(lambda: next(found), "m:route")
    tally.begin_step()
    for result in results:
        assert function() is result


def test_each_call_of_a_step_is_a_layer_and_steps_add_up() -> None:
    tally = ExpertTally()
    tally.start()
    routed(tally, IDS, torch.tensor([[1]]))
    routed(tally, torch.tensor([[5]]), torch.tensor([[0]]))
    assert tally.stop()["layers"] == [[1, 0, 2, 1, 0, 1], [1, 1]]


def test_nothing_is_counted_before_the_start_or_after_the_stop_and_a_start_forgets() -> None:
    tally = ExpertTally()
    routed(tally, IDS)
    tally.start()
    assert tally.stop() == {"layers": [], "problem": ""}
    routed(tally, IDS)
    tally.start()
    routed(tally, IDS)
    tally.start()
    assert tally.stop()["layers"] == []


def test_a_function_that_routes_nothing_serves_on_and_is_named() -> None:
    tally = ExpertTally()
    tally.start()
    routed(tally, "not a choice")
    found = tally.stop()
    assert found["layers"] == [] and "m:route" in found["problem"]


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=6))
def test_every_choice_is_counted_once(steps: list[list[int]]) -> None:
    tally = ExpertTally()
    tally.start()
    for ids in steps:
        routed(tally, torch.tensor([ids]))
    (layer,) = tally.stop()["layers"]
    assert layer == [sum(ids.count(expert) for ids in steps) for expert in range(len(layer))]
    assert sum(layer) == sum(map(len, steps))
