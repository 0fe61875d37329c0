"""vLLM's experts in place: whose memory the kernels read, and what they leave to vLLM."""

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("vllm")

from specialized_path.kernels.moe_experts.shape import ExpertShape
from specialized_path.kimi_k3.experts import (
    CompressedTensorsW4A4Mxfp4MoEMethod,
    MarlinProducts,
    bind_experts,
    list_experts_reasons,
)

SMALL = ExpertShape(name="small", intermediate=64, held=128, latent=64, num_experts=2)
SIZES = {"w13_weight": (2, 4, 512), "w2_weight": (2, 8, 128)}
SCALES = {"w13_weight_scale": (2, 2, 256), "w2_weight_scale": (2, 4, 64)}


def loaded(**changed):
    """A layer's experts as vLLM has loaded them, in sizes of `SMALL`."""
    method = object.__new__(CompressedTensorsW4A4Mxfp4MoEMethod)
    method.experts_cls = MarlinProducts
    tensors = {name: torch.zeros(size, dtype=torch.int32) for name, size in SIZES.items()}
    for name, size in SCALES.items():
        tensors[name] = torch.full(size, 120, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    parameters = {name: torch.nn.Parameter(tensor, False) for name, tensor in tensors.items()}
    return SimpleNamespace(**{"quant_method": method, **parameters, **changed})


@pytest.mark.parametrize("name", [*SIZES, *SCALES])
def test_the_kernels_read_vllms_own_memory(name):
    layer = loaded()
    found = bind_experts(layer)
    addresses = [t.data_ptr() for t in (found.w13, found.w2, found.w13_scale, found.w2_scale)]
    assert getattr(layer, name).data_ptr() in addresses


def test_experts_on_marlin_are_read_in_place():
    assert list_experts_reasons(loaded(), SMALL) == ()


def test_experts_with_another_method_stay_vllms():
    reasons = list_experts_reasons(loaded(quant_method=object()), SMALL)
    assert reasons == ("experts: got object, expected MXFP4 on Marlin",)


def test_experts_with_other_products_stay_vllms():
    layer = loaded()
    layer.quant_method.experts_cls = object
    assert "expected MXFP4 on Marlin" in list_experts_reasons(layer, SMALL)[0]


def test_some_of_the_experts_stay_vllms():
    layer = loaded(w13_weight=torch.nn.Parameter(torch.zeros(1, 4, 512, dtype=torch.int32), False))
    assert list_experts_reasons(layer, SMALL) == ("experts' words: got (1, 4, 512), expected (2, 4, 512)",)


@pytest.mark.parametrize(("place", "expected"), [(0, ("got 193",)), (-1, ())], ids=["read", "padding"])
def test_a_scale_that_the_kernels_cannot_hold_leaves_the_experts_to_vllm(place, expected):
    layer = loaded()
    layer.w13_weight_scale.data.view(torch.uint8)[1, 1, place] = 193
    reasons = list_experts_reasons(layer, SMALL)
    assert len(reasons) == len(expected) and all(e in r for e, r in zip(expected, reasons, strict=True))
