"""Marlin's order with the device's own arithmetic, and what the host side refuses: no GPU."""

import pytest
import torch

from specialized_path.kernels.moe_experts.cases import random_experts, random_mxfp4, random_step
from specialized_path.kernels.moe_experts.launch import expert_hidden, expert_outputs
from specialized_path.kernels.moe_experts.packing import (
    MarlinExperts,
    marlin_codes,
    marlin_scales,
    pack_experts,
)
from specialized_path.kernels.moe_experts.shape import SHAPES, SHARED_BYTES, ExpertShape
from specialized_path.kernels.moe_experts.variants import down_variants, find_variant, gate_up_variants
from specialized_path.reference import dequantize_mxfp4

SMALL = ExpertShape(name="small", intermediate=64, held=64, latent=128, num_experts=2)
KINDS = [
    pytest.param(kind, id=kind[0].kernel.name.split(" tp")[0])
    for kind in (gate_up_variants(), down_variants())
]


def unpacked(words: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """A tile of 64 rows by 32 of K, by the device's arithmetic and the operand's layout (PTX ISA, m16n8k16).

    Args:
        words: [2, 32, 4], of two steps, lanes and instructions.
        scales: [8, 8], of lane groups.
    """
    cutlass = pytest.importorskip("cutlass")
    from specialized_path.kernels.moe_experts import ops

    rows = torch.zeros(64, 32, dtype=torch.float64)
    for step in range(2):
        for lane in range(32):
            g, t = divmod(lane, 4)
            for sub in range(4):
                codes = cutlass.Uint32(words[step, lane, sub].item() & 0xFFFFFFFF)
                for register, bits in enumerate(ops.weights(codes)):
                    side = register % 2
                    pair = torch.tensor([bits.value], dtype=torch.int64).to(torch.int32).view(torch.bfloat16)
                    column = 16 * step + 8 * (register // 2) + 2 * t
                    factor = 2.0 ** (scales[g, 4 * (sub // 2) + 2 * side + sub % 2].item() - 127)
                    rows[16 * sub + 8 * side + g, column : column + 2] = pair.double() * 2.0**126 * factor
    return rows


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_device_reads_out_of_marlins_tile_what_the_checkpoint_says():
    gen = torch.Generator().manual_seed(1)
    weight = random_mxfp4(gen, 0, 192, 1, 64, 32)
    words = marlin_codes(weight.packed).view(2, 32, 4)
    found = unpacked(words, marlin_scales(weight.scale).view(8, 8))
    assert torch.equal(found, dequantize_mxfp4(weight, dtype=torch.float64)[0])


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_experts_in_marlins_order_are_as_large_as_what_is_held(shape):
    experts = random_experts(shape, "cpu", num_experts=1)
    found = pack_experts(experts.w1, experts.w3, experts.w2, shape)
    held = sum(t.nbytes for t in (found.w13, found.w2, found.w13_scale, found.w2_scale))
    assert held == 3 * shape.held * shape.latent * 17 // 32


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
        assert serving == [find_variant(kind, shape.held, tokens)]


@pytest.mark.parametrize(("tokens", "held"), [(0, 384), (65, 192), (1, 512)])
def test_what_no_variant_serves_is_refused(tokens, held):
    with pytest.raises(ValueError, match="routed experts: got"):
        find_variant(down_variants(), held, tokens)


@pytest.mark.parametrize("variant", gate_up_variants() + down_variants(), ids=lambda v: v.kernel.name)
def test_what_is_asked_for_at_first_lies_in_a_warps_first_part_of_k(variant):
    shape, tactic = variant.shape, variant.tactic
    if variant in down_variants():
        assert shape.down_groups % tactic.depth == 0 and tactic.depth < shape.down_groups
    else:
        share = shape.gate_up_groups / tactic.k_parts
        assert share == int(share) and 1 < tactic.depth <= share + 1
        assert tactic.k_parts == tactic.k_warps * tactic.warp_parts


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


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_the_shares_of_an_expert_that_all_tiles_bring_to_l2_make_the_whole_of_what_is_read(shape):
    codes, scales = shape.down_groups * shape.latent * 16, shape.down_groups * shape.latent
    assert shape.down_tiles * (codes // shape.down_tiles) == codes
    assert (codes // shape.down_tiles) % 16 == (scales // shape.down_tiles) % 16 == 0


@pytest.mark.parametrize(("run", "first"), [("hidden", "latent"), ("outputs", "hidden")])
def test_tensors_elsewhere_than_on_a_gpu_are_refused(run, first):
    shape = SHAPES[1]
    step = random_step(shape, 1, "cpu")
    none = torch.empty(0, dtype=torch.uint8)
    weights = MarlinExperts(w13=none, w2=torch.empty(0, 12), w13_scale=none, w2_scale=none)
    with pytest.raises(ValueError, match=f"{first}: got .* on cpu"):
        if run == "hidden":
            expert_hidden(step.latent, step.topk_ids, weights)
        else:
            hidden = torch.empty(1, 16, 192, dtype=torch.bfloat16)
            expert_outputs(hidden, step.topk_ids, step.topk_weights, weights)
