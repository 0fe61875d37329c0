"""Around the routed experts: what the host side packs, cuts and refuses. No GPU."""

import pytest
import torch

from specialized_path.kernels.moe_latent.geometry import AHEAD_MIB, FRONTS, HIDDEN, LATENT, NUM_EXPERTS
from specialized_path.kernels.moe_latent.launch import (
    front,
    front_buffer,
    front_outputs,
    latent_norm,
    pack_front,
    pack_tail,
    project_tail,
    select_experts,
    tail_ahead,
)
from specialized_path.kernels.moe_latent.variants import find_product, front_variants, tail_variants

PRODUCTS = front_variants() + tail_variants()
SIZES = sorted({variant.weight_size for variant in PRODUCTS})


@pytest.mark.parametrize("variant", [pytest.param(v, id=v.kernel.name) for v in PRODUCTS])
def test_a_cut_fits_its_weight(variant):
    assert variant.tactic.problems(*variant.weight_size) == []


@pytest.mark.parametrize("size", SIZES)
def test_every_batch_is_served_by_exactly_one_variant(size):
    for tokens in range(1, 65):
        serving = [
            v
            for v in PRODUCTS
            if v.weight_size == size and v.kernel.batches[0] <= tokens <= v.kernel.batches[1]
        ]
        assert serving == [find_product(PRODUCTS, size, tokens)]


@pytest.mark.parametrize(("tokens", "rows"), [(0, 6016), (65, 5248), (1, 4480)])
def test_what_no_variant_serves_is_refused(tokens, rows):
    with pytest.raises(ValueError, match="moe front: got"):
        find_product(front_variants(), (rows, HIDDEN), tokens)


def test_a_packed_front_has_latent_rows_router_rows_and_gates_and_ups_in_turn():
    shared = torch.arange(2 * 384.0).unsqueeze(1).expand(-1, HIDDEN)
    packed = pack_front(torch.full((LATENT, HIDDEN), -1.0), torch.full((NUM_EXPERTS, HIDDEN), -2.0), shared)
    kinds = [-1.0] * LATENT + [-2.0] * NUM_EXPERTS + [float(r) for i in range(384) for r in (i, 384 + i)]
    assert packed[:, 0].tolist() == kinds


@pytest.mark.parametrize("sizes", [(LATENT, NUM_EXPERTS, 512), (LATENT + 8, NUM_EXPERTS - 8, 1536)])
def test_a_front_of_other_sizes_is_refused(sizes):
    with pytest.raises(ValueError, match="got"):
        pack_front(*(torch.zeros(rows, 1).expand(rows, HIDDEN) for rows in sizes))


@pytest.mark.parametrize("shape", FRONTS, ids=lambda shape: shape.name)
def test_outputs_of_64_tokens_fill_a_buffer_and_do_not_overlap(shape):
    buffer = front_buffer(torch.empty(shape.num_outputs, 1))
    buffer.zero_()
    outputs = front_outputs(buffer, 64)
    for view in (outputs.latent, outputs.logits, outputs.tail):
        view.view(torch.uint8).add_(1)
    assert bool((buffer == 1).all())


def test_a_packed_tail_has_what_multiplies_latents_in_front_of_what_multiplies_hidden_values():
    packed = pack_tail(torch.full((2, LATENT), -1.0), torch.full((2, 384), -2.0))
    assert packed[0].tolist() == [-1.0] * LATENT + [-2.0] * 384


@pytest.mark.parametrize("shape", FRONTS, ids=lambda shape: shape.name)
def test_what_comes_to_l2_are_first_rows_of_the_tails_weights_at_every_batch(shape):
    weight = torch.empty(1, shape.tail_inputs, dtype=torch.bfloat16).expand(HIDDEN, -1)
    sizes = [len(tail_ahead(weight, tokens)) * 2 * shape.tail_inputs for tokens in range(1, 65)]
    assert all(0 <= size <= AHEAD_MIB[8 if at < 8 else 64] << 20 for at, size in enumerate(sizes))
    assert max(AHEAD_MIB.values()) << 20 < 2 * HIDDEN * shape.tail_inputs


def test_tensors_elsewhere_than_on_a_gpu_are_refused():
    rows, latent = torch.zeros(1, HIDDEN).bfloat16(), torch.zeros(1, LATENT).bfloat16()
    calls = {
        "x": lambda: front(rows, torch.empty(1, 1).expand(6016, HIDDEN)),
        "logits": lambda: select_experts(torch.zeros(1, NUM_EXPERTS), torch.zeros(NUM_EXPERTS)),
        "latent": lambda: latent_norm(latent, latent[0]),
        "tail": lambda: project_tail(latent, torch.empty(1, 1).expand(HIDDEN, LATENT + 384)),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=f"{name}.* on cpu"):
            call()
