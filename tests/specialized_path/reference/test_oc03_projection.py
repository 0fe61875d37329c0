"""OC-3 and OC-15: projections."""

import math

import pytest
import torch

from specialized_path.reference import kda_input_projection, latent_down, linear

F64 = {"acc_dtype": torch.float64}


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("num_tokens", [1, 2, 3, 8, 16, 64])
@pytest.mark.parametrize("operator", [linear, latent_down])
def test_a_projection_is_the_exact_product_rounded_once(randn, bf16, num_tokens, operator):
    x, weight = randn(num_tokens, 33, dtype=torch.bfloat16), randn(5, 33, dtype=torch.bfloat16)
    x[:, 1::2] = -x[:, 1::2].abs() * 100
    expected = [[bf16(dot(row, col)) for col in weight.tolist()] for row in x.tolist()]
    assert operator(x, weight, **F64).tolist() == expected


def test_row_shards_concatenate(randn):
    x, weight = randn(3, 16), randn(12, 16)
    shards = [latent_down(x, part, **F64) for part in weight.split(4)]
    torch.testing.assert_close(
        torch.cat(shards, dim=1), latent_down(x, weight, **F64), rtol=1e-13, atol=1e-14
    )


def test_the_sum_is_wide_even_when_the_inputs_are_not():
    x = torch.tensor([[256.0, 1.0, -256.0]], dtype=torch.bfloat16)
    assert linear(x, torch.ones(1, 3, dtype=torch.bfloat16)).item() == 1.0


def test_the_fused_rows_are_q_k_v_gate_f_a_b_and_padding_is_never_read(randn):
    heads, dim, rank = 2, 4, 3
    rows = [f"q{i}" for i in range(8)] + [f"k{i}" for i in range(8)] + [f"v{i}" for i in range(8)]
    rows += [f"gate{i}" for i in range(8)] + [f"f_a{i}" for i in range(3)] + ["b0", "b1"]
    weight = torch.full((len(rows) + 5, 6), float("nan"), dtype=torch.float64)
    weight[: len(rows)] = randn(len(rows), 6)
    x = randn(2, 3, 6)
    y = kda_input_projection(x, weight, num_heads=heads, head_dim=dim, gate_rank=rank, **F64)
    whole = {name: (x @ weight[i]) for i, name in enumerate(rows)}
    for part, names in ((y.qkv, rows[:24]), (y.gate, rows[24:32]), (y.f_a, rows[32:35]), (y.b, rows[35:37])):
        torch.testing.assert_close(
            part, torch.stack([whole[n] for n in names], dim=-1), rtol=1e-12, atol=1e-14
        )


def test_too_few_fused_rows_are_an_error(randn):
    with pytest.raises(ValueError, match="w_in rows: got 36, expected at least 38"):
        kda_input_projection(randn(1, 6), randn(36, 6), num_heads=2, head_dim=4)
