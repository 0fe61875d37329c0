"""Laws of drawn weights: what ran is what is told, a failure is no refusal, other weights have another digest."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from harness.engine.probe.drawn_weights import (
    WeightsDrawer,
    describe_ranks,
    describe_weights,
    digest_parameters,
)
from harness.model.probe import DRAWN_FORMAT, DUMMY_LOADER, WeightsSource

FILL = "def fill(model):\n    for p in model.parameters():\n        p.data.fill_({value})\n"


class Model(nn.Module):
    """Parameters of an odd size, of one byte and two, and one that is part of another's memory."""

    def __init__(self) -> None:
        super().__init__()
        whole = torch.arange(15, dtype=torch.bfloat16)
        self.part = nn.Parameter(whole[3:8])
        self.codes = nn.Parameter(torch.arange(7, dtype=torch.uint8), requires_grad=False)
        self.turned = nn.Parameter(torch.arange(12.0).view(3, 4).T)


def drawer_of(folder: Path, text: str) -> WeightsDrawer:
    (folder / "weights.py").write_text(text)
    return WeightsDrawer(WeightsSource(name="a/weights.py:fill", file=str(folder / "weights.py")))


def engine_of(load_format: str) -> SimpleNamespace:
    config = SimpleNamespace(load_config=SimpleNamespace(load_format=load_format))
    return SimpleNamespace(vllm_config=config)


def test_what_drew_the_weights_is_told_with_its_file_and_their_digest(tmp_path: Path) -> None:
    drawer, model, text = drawer_of(tmp_path, FILL.format(value=2)), Model(), FILL.format(value=2)
    drawer.fill(model)
    found = drawer.describe(engine_of(DRAWN_FORMAT))
    assert found is not None and not drawer.is_drawing
    assert (found.by, found.source) == ("a/weights.py:fill", hashlib.sha256(text.encode()).hexdigest())
    assert found.digest == digest_parameters(model) != digest_parameters(Model())


@pytest.mark.parametrize("text", ["def fill(model):\n    raise RuntimeError\n", "1 / 0\n", "pass\n"])
def test_a_function_that_fails_leaves_the_drawer_drawing_so_that_it_is_no_refusal(
    tmp_path: Path, text: str
) -> None:
    drawer = drawer_of(tmp_path, text)
    with pytest.raises((RuntimeError, ZeroDivisionError, KeyError)):
        drawer.fill(Model())
    assert drawer.is_drawing and drawer.describe(engine_of(DRAWN_FORMAT)) is None


def test_an_engine_with_other_weights_is_not_said_to_have_drawn_ones(tmp_path: Path) -> None:
    drawer = drawer_of(tmp_path, FILL.format(value=2))
    drawer.fill(Model())
    assert drawer.describe(engine_of("auto")) is None
    dummy = drawer.describe(engine_of("dummy"))
    assert dummy == describe_weights(engine_of("dummy")) and dummy is not None and dummy.by == DUMMY_LOADER


@pytest.mark.parametrize("name", ["part", "codes", "turned"])
def test_one_bit_anywhere_is_another_digest(name: str) -> None:
    model = Model()
    before, seen = digest_parameters(model), set()
    weight = dict(model.named_parameters())[name].data
    for index in range(weight.numel()):
        flat = weight.reshape(-1).clone()
        flat.view(torch.uint8)[index * weight.element_size()] ^= 1
        other = Model()
        dict(other.named_parameters())[name].data.copy_(flat.view(weight.shape))
        seen.add(digest_parameters(other))
    assert before not in seen and len(seen) == weight.numel()


def test_numbers_that_change_places_are_another_digest() -> None:
    model, other = Model(), Model()
    other.turned.data[0, 0], other.turned.data[0, 1] = model.turned.data[0, 1], model.turned.data[0, 0]
    assert digest_parameters(model) != digest_parameters(other)
    assert digest_parameters(model) == digest_parameters(Model())


def test_vllm_gives_the_loader_to_who_asks_for_its_format(tmp_path: Path) -> None:
    loaders = pytest.importorskip("vllm.model_executor.model_loader")
    from vllm.config import LoadConfig

    drawer, model = drawer_of(tmp_path, FILL.format(value=3)), Model()
    drawer.register()
    loaders.get_model_loader(LoadConfig(load_format=DRAWN_FORMAT)).load_weights(model, None)
    assert set(model.turned.flatten().tolist()) == {3.0} and set(model.codes.tolist()) == {3}


def test_a_function_that_asks_for_its_rank_is_told_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.engine.probe.drawn_weights._rank", lambda: 3)
    text = "def fill(model, rank=0):\n    for p in model.parameters():\n        p.data.fill_(rank)\n"
    (tmp_path / "weights.py").write_text(text)
    model = Model()
    WeightsDrawer(WeightsSource(name="a/weights.py:fill", file=str(tmp_path / "weights.py"))).fill(model)
    assert all((p == 3).all() for p in model.parameters())


def test_ranks_that_changed_places_have_other_weights_together() -> None:
    told = [{"weights": {"by": "f", "source": "s", "digest": name}} for name in "ab"]
    both = describe_ranks(told)
    assert both is not None and (both.by, both.source) == ("f", "s")
    assert both.digest not in ("a", "b") and both != describe_ranks(told[::-1])
    assert describe_ranks([{"weights": None}] * 2) is None
