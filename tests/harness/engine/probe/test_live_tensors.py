"""Laws of the live tensors: what a step wrote or left behind is told and named, and nothing else is."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from harness.engine.probe.live_tensors import LiveTensors


@dataclass(slots=True)
class Slotted:
    buffer: torch.Tensor


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(8), requires_grad=False)
        self.executor = SimpleNamespace(_scratch=torch.zeros(16), parts={"a": [torch.zeros(3)]})
        self.slotted = Slotted(torch.zeros(5))


@pytest.fixture
def model() -> Iterator[Model]:
    yield Model()
    gc.unfreeze()


def told(model: Model, step: Callable[[], object]) -> tuple[dict[str, int], dict[str, int]]:
    """By name: bytes that a step changed, and sizes of what it left behind."""
    live = LiveTensors({"model": model}, frozenset())
    live.look()
    result = step()
    written, left = live.take_writes(result)
    names = live.names(pointer for pointer, _ in (*written, *left))
    return {names[p]: n for p, n in written}, {names.get(p, ""): n for p, n in left}


def test_a_result_that_somebody_keeps_is_told_before_the_next_step(model: Model) -> None:
    live = LiveTensors({"model": model}, frozenset())
    live.look()
    model.executor.last = model.weight * 2
    assert live.take_writes(model.executor.last) == ([], [])
    kept = live.look()
    assert list(live.names(kept).values()) == ["model.executor.last"]


def test_a_result_that_is_let_go_is_not_told(model: Model) -> None:
    live = LiveTensors({"model": model}, frozenset())
    live.look()
    live.take_writes(model.weight * 2)
    assert live.look() == {}


def test_a_step_that_only_computes_wrote_nothing_and_left_nothing(model: Model) -> None:
    assert told(model, lambda: (model.weight * 2).sum()) == ({}, {})


@pytest.mark.parametrize(
    ("name", "pick"),
    [
        ("model.weight", lambda m: m.weight.data),
        ("model.executor._scratch", lambda m: m.executor._scratch),
        ("model.executor.parts.a.0", lambda m: m.executor.parts["a"][0]),
        ("model.slotted.buffer", lambda m: m.slotted.buffer),
    ],
)
def test_a_written_tensor_is_told_by_its_path(
    model: Model, name: str, pick: Callable[[Model], torch.Tensor]
) -> None:
    written, left = told(model, lambda: pick(model).__setitem__(0, 7.0))
    assert list(written) == [name]
    assert left == {}


def test_a_write_through_a_view_is_told_of_the_whole_tensor(model: Model) -> None:
    written, _ = told(model, lambda: model.executor._scratch[4:8].__setitem__(0, 1.0))
    assert "model.executor._scratch" in written


def test_a_tensor_that_outlives_the_step_is_left_behind(model: Model) -> None:
    written, left = told(model, lambda: setattr(model.executor, "grown", torch.zeros(100)))
    assert (written, left) == ({}, {"model.executor.grown": 400})


def test_what_the_step_returns_is_not_left_behind(model: Model) -> None:
    kept: list[torch.Tensor] = []

    def step() -> torch.Tensor:
        kept.append(torch.zeros(9))
        return kept[0]

    assert told(model, step) == ({}, {})


def test_garbage_in_a_cycle_is_not_left_behind(model: Model) -> None:
    def step() -> None:
        cycle = SimpleNamespace(tensor=torch.zeros(11))
        cycle.me = cycle

    assert told(model, step) == ({}, {})


def test_a_second_look_sees_tensors_that_came_after_the_first(model: Model) -> None:
    live = LiveTensors({"model": model}, frozenset())
    live.look()
    model.executor.late = torch.zeros(4)
    live.take_writes(None)
    live.look()
    model.executor.late += 1.0
    (((pointer, _),), left) = live.take_writes(None)
    assert live.names([pointer]) == {pointer: "model.executor.late"}
    assert left == []


def test_ignored_memory_is_not_told(model: Model) -> None:
    pointer = model.executor._scratch.untyped_storage().data_ptr()
    live = LiveTensors({"model": model}, frozenset({pointer}))
    live.look()
    model.executor._scratch += 1.0
    assert live.take_writes(None) == ([], [])
