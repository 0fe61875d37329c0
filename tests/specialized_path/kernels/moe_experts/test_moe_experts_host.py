"""Packed weights against the checkpoint's, with the device's own arithmetic, and what the host side refuses: no GPU."""

import pytest
import torch

from specialized_path.kernels.moe_experts.cases import (
    CheckpointExperts,
    random_experts,
    random_mxfp4,
    random_step,
)
from specialized_path.kernels.moe_experts.launch import expert_hidden, expert_outputs
from specialized_path.kernels.moe_experts.packing import PackedExperts, pack_experts, pack_tiles
from specialized_path.kernels.moe_experts.shape import SHAPES, SHARED_BYTES, DownTactic, ExpertShape
from specialized_path.kernels.moe_experts.variants import down_variants, find_variant, gate_up_variants
from specialized_path.reference import Mxfp4Weight, dequantize_mxfp4

SMALL = ExpertShape(name="small", intermediate=64, latent=128, num_experts=2)
KINDS = [
    pytest.param(kind, id=kind[0].kernel.name.split(" tp")[0])
    for kind in (gate_up_variants(), down_variants())
]


def unpacked(tile: torch.Tensor) -> torch.Tensor:
    """A packed tile's 16 rows, by the device's arithmetic and the matrix operand's layout (PTX ISA, m16n8k16)."""
    cutlass = pytest.importorskip("cutlass")
    from specialized_path.kernels.moe_experts import ops

    blocks = tile.numel() // 544
    words = tile[: 512 * blocks].view(torch.int32).reshape(blocks, 32, 4)
    scales = tile[512 * blocks :].reshape(blocks, 8, 4).int() - 62 - 127
    rows = torch.zeros(16, 64 * blocks, dtype=torch.float64)
    for block in range(blocks):
        for lane in range(32):
            g, t = divmod(lane, 4)
            for word in range(4):
                group, step = divmod(word, 2)
                codes = cutlass.Uint32(words[block, lane, word].item() & 0xFFFFFFFF)
                for register, bits in enumerate(ops.weights(codes)):
                    row = g + 8 * (register % 2)
                    pair = torch.tensor([bits.value], dtype=torch.int64).to(torch.int32).view(torch.bfloat16)
                    scale = scales[block, g, 2 * group + register % 2].item()
                    column = 64 * block + 32 * group + 8 * t + 4 * step + 2 * (register // 2)
                    rows[row, column : column + 2] = pair.double() * 2.0**126 * 2.0**scale
    return rows


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_device_reads_out_of_a_packed_tile_what_the_checkpoint_says():
    gen = torch.Generator().manual_seed(1)
    weight = random_mxfp4(gen, 0, 192, 16, 128)
    assert torch.equal(unpacked(pack_tiles(weight)), dequantize_mxfp4(weight, dtype=torch.float64))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_gate_up_tile_holds_eight_gate_rows_and_the_up_rows_beside_them():
    experts = random_experts(SMALL, "cpu", num_experts=2)
    tile = unpacked(pack_experts(experts.w1, experts.w3, experts.w2, SMALL).gate_up[1, 3])
    gate, up = (dequantize_mxfp4(w[1, 24:32], dtype=torch.float64) for w in (experts.w1, experts.w3))
    assert torch.equal(tile, torch.cat([gate, up]))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_down_tile_holds_sixteen_rows_of_the_latent():
    experts = random_experts(SMALL, "cpu", num_experts=2)
    tile = unpacked(pack_experts(experts.w1, experts.w3, experts.w2, SMALL).down[1, 5])
    assert torch.equal(tile, dequantize_mxfp4(experts.w2[1, 80:96], dtype=torch.float64))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_packed_weights_are_as_large_as_the_checkpoints(shape):
    assert shape.expert_bytes == 3 * shape.intermediate * shape.latent * 17 // 32


def test_padding_behind_the_intermediate_size_is_never_read():
    experts = random_experts(SMALL, "cpu", num_experts=2)
    padded = CheckpointExperts(
        w1=with_rows_behind(experts.w1), w3=with_rows_behind(experts.w3), w2=with_columns_behind(experts.w2)
    )
    plain, other = (pack_experts(e.w1, e.w3, e.w2, SMALL) for e in (experts, padded))
    assert torch.equal(plain.gate_up, other.gate_up) and torch.equal(plain.down, other.down)


def with_rows_behind(weight: Mxfp4Weight) -> Mxfp4Weight:
    """32 more rows, whose scales are NaN."""
    return Mxfp4Weight(
        packed=torch.cat([weight.packed, weight.packed[:, :32]], dim=1),
        scale=torch.cat([weight.scale, torch.full_like(weight.scale[:, :32], 255)], dim=1),
    )


def with_columns_behind(weight: Mxfp4Weight) -> Mxfp4Weight:
    """32 more columns, whose scales are NaN."""
    return Mxfp4Weight(
        packed=torch.cat([weight.packed, weight.packed[..., :16]], dim=-1),
        scale=torch.cat([weight.scale, torch.full_like(weight.scale[..., :1], 255)], dim=-1),
    )


@pytest.mark.parametrize("code", [193, 254, 255])
def test_a_scale_that_the_kernels_cannot_hold_is_refused(code):
    experts = random_experts(SMALL, "cpu", num_experts=2)
    experts.w2.scale[1, 7, 1] = code
    with pytest.raises(ValueError, match=rf"scale codes: got {code}, expected 0 \.\.\. 192"):
        pack_experts(experts.w1, experts.w3, experts.w2, SMALL)


@pytest.mark.parametrize("name", ["w1", "w3", "w2"])
def test_a_weight_of_another_size_is_refused(name):
    experts = random_experts(SMALL, "cpu", num_experts=2)
    parts = {n: getattr(experts, n) for n in ("w1", "w3", "w2")}
    parts[name] = parts[name][:, :-8]
    with pytest.raises(ValueError, match=f"{name}: got"):
        pack_experts(parts["w1"], parts["w3"], parts["w2"], SMALL)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@pytest.mark.parametrize("kind", KINDS)
def test_every_batch_is_served_by_exactly_one_variant(kind, shape):
    for tokens in range(1, 65):
        serving = [
            v for v in kind if v.shape == shape and v.kernel.batches[0] <= tokens <= v.kernel.batches[1]
        ]
        assert serving == [find_variant(kind, shape.intermediate, tokens)]


@pytest.mark.parametrize(("tokens", "intermediate"), [(0, 384), (65, 192), (1, 256)])
def test_what_no_variant_serves_is_refused(tokens, intermediate):
    with pytest.raises(ValueError, match="routed experts: got"):
        find_variant(down_variants(), intermediate, tokens)


def test_a_ring_whose_stages_change_hands_is_refused():
    with pytest.raises(ValueError, match="stages: got 20, expected a multiple of 8"):
        DownTactic(tiles=2, pass_warps=8, stages=20, max_tokens=64)


def test_every_variant_fits_into_shared_memory():
    pytest.importorskip("cutlass")
    from specialized_path.kernels.moe_experts.down import DownKernel
    from specialized_path.kernels.moe_experts.gate_up import GateUpKernel

    sizes = {
        v.kernel.name: kind(shape=v.shape, tactic=v.tactic).shared_bytes
        for kind, found in ((GateUpKernel, gate_up_variants()), (DownKernel, down_variants()))
        for v in found
    }
    assert {name: size for name, size in sizes.items() if size > SHARED_BYTES} == {}


@pytest.mark.parametrize(("run", "first"), [("hidden", "latent"), ("outputs", "hidden")])
def test_tensors_elsewhere_than_on_a_gpu_are_refused(run, first):
    shape = SHAPES[1]
    step = random_step(shape, 1, "cpu")
    weights = PackedExperts(
        gate_up=torch.empty(896, 24, 0, dtype=torch.uint8), down=torch.empty(896, 224, 0, dtype=torch.uint8)
    )
    with pytest.raises(ValueError, match=f"{first}: got .* on cpu"):
        if run == "hidden":
            expert_hidden(step.latent, step.topk_ids, weights)
        else:
            hidden = torch.empty(1, 16, 192, dtype=torch.bfloat16)
            expert_outputs(hidden, step.topk_ids, step.topk_weights, weights)
