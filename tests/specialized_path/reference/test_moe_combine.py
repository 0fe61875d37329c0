"""OC-17 to OC-20: combination, latent norm, shared experts, layer output and the dense MLP."""

import math

import pytest
import torch

from specialized_path.reference import (
    combine_experts,
    dense_mlp_partial,
    latent_norm,
    latent_up_output,
    rank_order_sum,
    shared_experts_partial,
)

F64 = {"acc_dtype": torch.float64}


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def naive_mlp(x, gate_up, down, rounded):
    half = len(gate_up) // 2
    y = [rounded(dot(row, x)) for row in gate_up]
    hidden = [
        rounded(4 * math.tanh(g / 4) / (1 + math.exp(-g)) * 25 * math.tanh(u / 25))
        for g, u in zip(y[:half], y[half:], strict=True)
    ]
    return [rounded(dot(row, hidden)) for row in down]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("mlp", [shared_experts_partial, dense_mlp_partial])
def test_a_gated_mlp_rounds_after_each_of_its_three_stages(randn, bf16, mlp, dtype):
    x, gate_up, down = randn(3, 6, dtype=dtype), randn(8, 6, dtype=dtype), randn(5, 4, dtype=dtype)
    rounded = bf16 if dtype == torch.bfloat16 else float
    expected = [naive_mlp(row, gate_up.tolist(), down.tolist(), rounded) for row in x.tolist()]
    tolerance = 0 if dtype == torch.bfloat16 else 1e-12
    torch.testing.assert_close(
        mlp(x, gate_up, down, **F64).tolist(), expected, rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("mlp", [shared_experts_partial, dense_mlp_partial])
def test_ranks_with_slices_of_the_intermediate_dimension_add_up(randn, mlp):
    x, gate_up, down = randn(3, 6), randn(16, 6), randn(5, 8)
    parts = []
    for r in range(2):
        own = slice(4 * r, 4 * r + 4)
        rows = torch.cat([gate_up[:8][own], gate_up[8:][own]])
        parts.append(mlp(x, rows, down[:, own], **F64))
    torch.testing.assert_close(
        rank_order_sum(torch.stack(parts), **F64), mlp(x, gate_up, down, **F64), rtol=1e-11, atol=1e-12
    )


def test_a_gate_up_that_does_not_fit_the_down_projection_is_an_error(randn):
    with pytest.raises(ValueError, match="w_gate_up rows: got 8, expected 6"):
        dense_mlp_partial(randn(1, 6), randn(8, 6), randn(5, 3))


def test_expert_outputs_are_weighted_and_summed_wide_then_rounded(randn, bf16):
    y, weights = randn(3, 5, 4, dtype=torch.bfloat16), randn(3, 5, dtype=torch.bfloat16).abs()
    combined = combine_experts(y, weights, **F64)
    for b in range(3):
        columns = zip(*y[b].tolist(), strict=True)
        assert combined[b].tolist() == [bf16(dot(weights[b].tolist(), column)) for column in columns]


def test_expert_outputs_are_summed_in_slot_order():
    y = torch.tensor([1e8, 1.0, -1e8]).reshape(1, 3, 1)
    assert combine_experts(y, torch.ones(1, 3)).item() == 0.0
    assert combine_experts(y[:, [0, 2, 1]], torch.ones(1, 3)).item() == 1.0


def test_alternating_outputs_of_ten_thousand_cancel():
    y = torch.tensor([1e4, -1e4] * 8, dtype=torch.bfloat16).reshape(1, 16, 1)
    assert combine_experts(y, torch.full((1, 16), 1 / 16, dtype=torch.bfloat16)).item() == 0.0


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_latent_is_reduced_and_rounded_before_it_is_normed_and_rounded(randn, bf16, dtype):
    partials, weight = randn(3, 2, 6, dtype=dtype), randn(6)
    rounded = bf16 if dtype == torch.bfloat16 else float
    normed = latent_norm(partials, weight, **F64)
    for b in range(2):
        z = [rounded(math.fsum(partials[:, b, d].tolist())) for d in range(6)]
        rms = math.sqrt(dot(z, z) / 6 + 1e-5)
        expected = [rounded(v / rms * w) for v, w in zip(z, weight.tolist(), strict=True)]
        torch.testing.assert_close(normed[b].tolist(), expected, rtol=1e-13, atol=1e-14)


def test_a_latent_of_zeros_stays_zero(randn):
    assert latent_norm(torch.zeros(2, 1, 6), randn(6)).eq(0).all()


def test_the_layers_output_adds_the_rounded_up_projection_to_the_unrounded_shared_sum(randn, bf16):
    latent, w_up = randn(2, 4, dtype=torch.bfloat16), randn(64, 4, dtype=torch.bfloat16)
    shared = randn(3, 2, 64, dtype=torch.bfloat16)
    out = latent_up_output(latent, w_up, shared, **F64)
    for b in range(2):
        up = [bf16(dot(row, latent[b].tolist())) for row in w_up.tolist()]
        sums = [math.fsum(shared[:, b, d].tolist()) for d in range(64)]
        assert out[b].tolist() == [bf16(u + s) for u, s in zip(up, sums, strict=True)]
        assert out[b].tolist() != [bf16(u + bf16(s)) for u, s in zip(up, sums, strict=True)]


def test_row_shards_of_the_up_projection_with_their_columns_concatenate(randn):
    latent, w_up, shared = randn(2, 4), randn(6, 4), randn(3, 2, 6)
    shards = [
        latent_up_output(latent, w_up[d : d + 2], shared[:, :, d : d + 2], **F64) for d in range(0, 6, 2)
    ]
    torch.testing.assert_close(
        torch.cat(shards, dim=1), latent_up_output(latent, w_up, shared, **F64), rtol=1e-12, atol=1e-13
    )
