"""One copy of the experts: whose bytes a layer's Marlin parameters are, and when they are restored."""

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("vllm")

from specialized_path.kernels.moe_experts.packing import PackedExperts
from specialized_path.kernels.moe_experts.restore import MarlinExperts
from specialized_path.kimi_k3 import experts
from specialized_path.kimi_k3.experts import MarlinRoom, PackedExpertsMethod, packed_experts

NAMES = ("w13_weight", "w2_weight", "w13_weight_scale", "w2_weight_scale")


def layer(value):
    """A loaded layer whose Marlin bytes are all `value`."""
    words = torch.full((2, 3), value, dtype=torch.int32)
    scales = torch.full((2, 3), value, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    values = (words, words.clone(), scales, scales.clone())
    return SimpleNamespace(
        **{name: torch.nn.Parameter(v, False) for name, v in zip(NAMES, values, strict=True)}
    )


def packed(value):
    return PackedExperts(gate_up=torch.tensor(value), down=torch.tensor(value))


@pytest.fixture(autouse=True)
def restoring(monkeypatch):
    """Restores a layer's number instead of its permuted bytes."""

    def restore(source: PackedExperts, _shape, out: MarlinExperts) -> None:
        for tensor in (out.w13, out.w2, out.w13_scale, out.w2_scale):
            tensor.fill_(int(source.gate_up))

    monkeypatch.setattr(experts, "restore_experts", restore)


def test_layers_share_one_room():
    room, first, second = MarlinRoom(), layer(3), layer(5)
    assert all(room.adopt(one, packed(value), None) for one, value in ((first, 3), (second, 5))) and {
        getattr(first, name).data_ptr() for name in NAMES
    } == {getattr(second, name).data_ptr() for name in NAMES}


def test_the_room_keeps_the_types_that_vllms_kernels_expect():
    room, one = MarlinRoom(), layer(3)
    types = [getattr(one, name).dtype for name in NAMES]
    room.adopt(one, packed(3), None)
    assert [getattr(one, name).dtype for name in NAMES] == types


@pytest.mark.parametrize("name", NAMES)
def test_a_layer_whose_bytes_are_not_restored_keeps_its_own(name):
    room, one = MarlinRoom(), layer(3)
    getattr(one, name).data.view(torch.uint8)[-1, -1] = 4
    address = getattr(one, name).data_ptr()
    assert not room.adopt(one, packed(3), None) and getattr(one, name).data_ptr() == address


def method(monkeypatch, value):
    """A method behind whose `apply` vLLM's would read the layer."""
    found = object.__new__(PackedExpertsMethod)
    room = MarlinRoom()
    room.adopt(layer(1), packed(1), None)
    found._room, found._shape, found.packed = room, None, value
    vllms = PackedExpertsMethod.__mro__[1]
    monkeypatch.setattr(vllms, "apply", lambda _self, one, *_: one.w13_weight.unique().tolist())
    return found, SimpleNamespace(w13_weight=room.held.w13)


def test_vllms_kernels_read_the_layers_own_experts(monkeypatch):
    found, one = method(monkeypatch, packed(7))
    assert found.apply(one) == [7]


def test_a_layer_that_is_not_packed_is_not_overwritten(monkeypatch):
    found, one = method(monkeypatch, None)
    assert found.apply(one) == [1]


def test_a_layer_with_another_method_has_no_packed_experts():
    assert packed_experts(SimpleNamespace(quant_method=object())) is None


def loaded(monkeypatch, pack):
    """A method whose layer was loaded, and that layer; vLLM makes all bytes 9 of it."""
    found = object.__new__(PackedExpertsMethod)
    found._room, found._shape, found.packed = MarlinRoom(), None, None
    one = layer(9)
    one.layer_name = "layers.1"
    for name in ("w13", "w2"):
        setattr(
            one, f"{name}_weight_packed", torch.nn.Parameter(torch.zeros(2, 4, 4, dtype=torch.uint8), False)
        )
    monkeypatch.setattr(experts, "pack_experts", pack)
    monkeypatch.setattr(PackedExpertsMethod.__mro__[1], "process_weights_after_loading", lambda *_: None)
    found.process_weights_after_loading(one)
    return found, one


def test_a_layer_whose_bytes_are_restored_is_packed(monkeypatch):
    found, _ = loaded(monkeypatch, lambda *_: packed(9))
    assert found.packed == packed(9)


def test_gates_are_the_first_half_of_the_rows_and_ups_the_second(monkeypatch):
    seen = []
    loaded(monkeypatch, lambda *arguments: seen.extend(arguments) or packed(9))
    assert [weight.packed.shape[1] for weight in seen[:3]] == [2, 2, 4]


def refuse(*_):
    raise ValueError("scale codes: got 200")


@pytest.mark.parametrize("pack", [lambda *_: packed(8), refuse], ids=["other bytes", "a scale too large"])
def test_a_layer_that_cannot_be_packed_is_vllms(monkeypatch, pack):
    found, _ = loaded(monkeypatch, pack)
    assert found.packed is None
