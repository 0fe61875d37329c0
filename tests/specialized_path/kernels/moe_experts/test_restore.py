"""Packed experts restored: as vLLM's own permutation of the checkpoint's bytes says."""

import pytest
import torch

from specialized_path.kernels.moe_experts.cases import random_experts
from specialized_path.kernels.moe_experts.packing import pack_experts, pack_tiles
from specialized_path.kernels.moe_experts.restore import MarlinExperts, restore_experts, restore_scales
from specialized_path.kernels.moe_experts.shape import SHAPES, ExpertShape
from specialized_path.reference import Mxfp4Weight

SMALL = ExpertShape(name="small", intermediate=64, latent=128)


def room(shape: ExpertShape, count: int, device: str) -> MarlinExperts:
    inner, latent = shape.intermediate, shape.latent
    words = {"dtype": torch.int32, "device": device}
    scales = {"dtype": torch.uint8, "device": device}
    return MarlinExperts(
        w13=torch.full((count, latent // 16, 4 * inner), -1, **words),
        w2=torch.full((count, inner // 16, 2 * latent), -1, **words),
        w13_scale=torch.full((count, latent // 32, 2 * inner), 255, **scales),
        w2_scale=torch.full((count, inner // 32, latent), 255, **scales),
    )


def marlin_words(packed: torch.Tensor) -> torch.Tensor:
    """vLLM's words of an expert's [N, K/2] codes, by its own tests' permutation."""
    layout = pytest.importorskip("vllm.model_executor.layers.quantization.utils.marlin_utils_test")
    codes = torch.stack([packed & 15, packed >> 4], -1).flatten(-2).int().T.contiguous()
    return layout.marlin_weights(codes, *codes.shape, 4, layout.get_weight_perm(4))


def marlin_scales(scale: torch.Tensor) -> torch.Tensor:
    """vLLM's scales of an expert's [N, K/32] codes."""
    marlin = pytest.importorskip("vllm.model_executor.layers.quantization.utils.marlin_utils")
    fp4 = pytest.importorskip("vllm.model_executor.layers.quantization.utils.marlin_utils_fp4")
    values = scale.view(torch.float8_e8m0fnu).bfloat16().T
    permuted = marlin.marlin_permute_scales(values, scale.shape[1] * 32, scale.shape[0], 32)
    return fp4.mxfp4_marlin_process_scales(permuted).view(torch.uint8)


def joined(experts, part: str, index: int) -> torch.Tensor:
    return torch.cat([getattr(experts.w1, part)[index], getattr(experts.w3, part)[index]])


def test_scales_are_restored_as_vllm_orders_them():
    experts, out = random_experts(SMALL, "cpu", num_experts=3), room(SMALL, 3, "cpu")
    restore_scales(pack_experts(experts.w1, experts.w3, experts.w2, SMALL), SMALL, out)
    for index in range(3):
        assert torch.equal(out.w13_scale[index], marlin_scales(joined(experts, "scale", index)))
        assert torch.equal(out.w2_scale[index], marlin_scales(experts.w2.scale[index]))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("register", range(4))
def test_the_codes_of_a_register_are_read_out_of_a_packed_word(register):
    cutlass = pytest.importorskip("cutlass")
    from specialized_path.kernels.moe_experts.restore_kernel import nibbles

    row, pair = register % 2 * 8, register // 2
    tile = torch.zeros(16, 32, dtype=torch.uint8)
    tile[row, pair] = 0xB6
    scale = torch.zeros(16, 2, dtype=torch.uint8)
    word = pack_tiles(Mxfp4Weight(packed=tile, scale=scale)).view(torch.int32)[0].item()
    assert nibbles(cutlass.Uint32(word & 0xFFFFFFFF), register).value == 0x000B0006


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_expert_is_restored_as_vllm_orders_it(shape):
    experts, out = random_experts(shape, "cuda", num_experts=3), room(shape, 3, "cuda")
    restore_experts(pack_experts(experts.w1, experts.w3, experts.w2, shape), shape, out)
    for index in range(3):
        for got, packed in ((out.w13, joined(experts, "packed", index)), (out.w2, experts.w2.packed[index])):
            assert torch.equal(got[index].cpu(), marlin_words(packed.cpu()))
