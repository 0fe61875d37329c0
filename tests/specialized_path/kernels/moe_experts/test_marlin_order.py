"""Marlin's order: as vLLM's own permutation of the checkpoint's bytes says."""

import pytest
import torch

from specialized_path.kernels.moe_experts.cases import random_experts
from specialized_path.kernels.moe_experts.packing import (
    largest_scale,
    marlin_codes,
    marlin_scales,
    pack_experts,
)
from specialized_path.kernels.moe_experts.shape import ExpertShape

SMALL = ExpertShape(name="small", intermediate=64, held=128, latent=192)


def vllms_codes(packed: torch.Tensor) -> torch.Tensor:
    """vLLM's words of an expert's [N, K/2] codes, by its own tests' permutation."""
    layout = pytest.importorskip("vllm.model_executor.layers.quantization.utils.marlin_utils_test")
    codes = torch.stack([packed & 15, packed >> 4], -1).flatten(-2).int().T.contiguous()
    return layout.marlin_weights(codes, *codes.shape, 4, layout.get_weight_perm(4))


def vllms_scales(scale: torch.Tensor) -> torch.Tensor:
    """vLLM's scales of an expert's [N, K/32] codes."""
    marlin = pytest.importorskip("vllm.model_executor.layers.quantization.utils.marlin_utils")
    fp4 = pytest.importorskip("vllm.model_executor.layers.quantization.utils.marlin_utils_fp4")
    values = scale.view(torch.float8_e8m0fnu).bfloat16().T
    permuted = marlin.marlin_permute_scales(values, scale.shape[1] * 32, scale.shape[0], 32)
    return fp4.mxfp4_marlin_process_scales(permuted).view(torch.uint8)


@pytest.fixture
def bytes_of_weights():
    gen = torch.Generator().manual_seed(2)
    draw = {"generator": gen, "dtype": torch.uint8}
    return torch.randint(0, 256, (3, 128, 96), **draw), torch.randint(0, 256, (3, 128, 6), **draw)


def test_codes_stand_where_vllm_puts_them(bytes_of_weights):
    packed, _ = bytes_of_weights
    assert torch.equal(marlin_codes(packed), torch.stack([vllms_codes(p) for p in packed]))


def test_scales_stand_where_vllm_puts_them(bytes_of_weights):
    _, scale = bytes_of_weights
    assert torch.equal(marlin_scales(scale), torch.stack([vllms_scales(s) for s in scale]))


def test_gate_rows_stand_in_front_of_up_rows_and_padding_behind_each():
    experts = random_experts(SMALL, "cpu", num_experts=1)
    found = pack_experts(experts.w1, experts.w3, experts.w2, SMALL).w13_scale[0, 0].view(4, 64)
    gate, up = (w.scale[0, :, 0].sort().values.tolist() for w in (experts.w1, experts.w3))
    assert found.sort().values.tolist() == [gate, [255] * 64, up, [255] * 64]


@pytest.mark.parametrize(("at", "expected"), [("w1", 250), ("w2", 250), ("padding", 123)])
def test_only_scales_that_are_read_count_towards_the_largest(at, expected):
    experts = random_experts(SMALL, "cpu", num_experts=2)
    experts.w2.scale[1, 7, 1] = 123
    if at != "padding":
        getattr(experts, at).scale[1, 7, 1] = 250
    assert largest_scale(pack_experts(experts.w1, experts.w3, experts.w2, SMALL), SMALL) == expected
