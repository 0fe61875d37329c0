"""Around the routed experts: what the host side packs, cuts and refuses. No GPU."""

import pytest
import torch

from specialized_path.kernels.moe_latent.geometry import FRONTS, HIDDEN, LATENT, NUM_EXPERTS
from specialized_path.kernels.moe_latent.launch import (
    front,
    front_buffer,
    front_outputs,
    latent_norm,
    latent_up,
    pack_front,
    select_experts,
)
from specialized_path.kernels.moe_latent.variants import find_product, front_variants, up_variants

PRODUCTS = front_variants() + up_variants()


@pytest.mark.parametrize("variant", [pytest.param(v, id=v.kernel.name) for v in PRODUCTS])
def test_a_cut_fits_its_weight(variant):
    assert variant.tactic.problems(*variant.weight_size) == []


@pytest.mark.parametrize("rows", [*(shape.num_outputs for shape in FRONTS), HIDDEN])
def test_every_batch_is_served_by_exactly_one_variant(rows):
    for tokens in range(1, 65):
        serving = [
            v
            for v in PRODUCTS
            if v.weight_size[0] == rows and v.kernel.batches[0] <= tokens <= v.kernel.batches[1]
        ]
        assert serving == [find_product(PRODUCTS, rows, tokens)]


@pytest.mark.parametrize(("tokens", "rows"), [(0, 6016), (65, 5248), (1, 4480)])
def test_what_no_variant_serves_is_refused(tokens, rows):
    with pytest.raises(ValueError, match="moe front: got"):
        find_product(front_variants(), rows, tokens)


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
    for view in (outputs.latent, outputs.logits, outputs.shared_hidden):
        view.view(torch.uint8).add_(1)
    assert bool((buffer == 1).all())


def test_tensors_elsewhere_than_on_a_gpu_are_refused():
    rows, latent = torch.zeros(1, HIDDEN).bfloat16(), torch.zeros(1, LATENT).bfloat16()
    calls = {
        "x": lambda: front(rows, torch.empty(6016, 1)),
        "logits": lambda: select_experts(torch.zeros(1, NUM_EXPERTS), torch.zeros(NUM_EXPERTS)),
        "latent": lambda: latent_norm(latent, latent[0]),
        "latent:": lambda: latent_up(latent, torch.empty(HIDDEN, 1), rows),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=f"{name}.* on cpu"):
            call()
