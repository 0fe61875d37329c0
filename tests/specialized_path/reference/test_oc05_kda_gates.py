"""OC-5: decay and write strength."""

import math

import pytest
import torch

from specialized_path.reference import kda_decay, kda_gates

F64 = {"acc_dtype": torch.float64}


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


@pytest.mark.parametrize("a_log", [-4.0, 0.0, 4.0])
def test_the_gates_follow_the_formula_by_head_and_channel(randn, a_log):
    heads, dim, rank = 2, 5, 3
    f_a, b, w = randn(4, rank), randn(4, heads), randn(heads * dim, rank)
    A_log, dt_bias = torch.tensor([a_log, -0.5], dtype=torch.float64), randn(heads * dim)
    g, beta = kda_gates(f_a, b, w, A_log, dt_bias, **F64)
    for n in range(4):
        for h in range(heads):
            assert beta[n, h].item() == pytest.approx(sigmoid(b[n, h].item()), rel=1e-14)
            for c in range(dim):
                row = h * dim + c
                raw = math.fsum(w[row, r].item() * f_a[n, r].item() for r in range(rank))
                expected = -5 * sigmoid(math.exp(A_log[h].item()) * (raw + dt_bias[row].item()))
                assert g[n, h, c].item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("raw", "expected"), [(30.0, -5.0), (-30.0, 0.0)])
def test_a_saturated_gate_reaches_its_bounds(raw, expected):
    A_log, dt_bias = torch.tensor([4.0]), torch.zeros(2)
    g = kda_decay(torch.full((1, 1, 2), raw), A_log, dt_bias)
    assert g.tolist() == [[[expected, expected]]]


def test_the_bound_is_a_parameter():
    g = kda_decay(torch.full((1, 1, 1), 1e3), torch.zeros(1), torch.zeros(1), lower_bound=-2.0)
    assert g.item() == -2.0


def test_beta_saturates_to_zero_and_one():
    _, beta = kda_gates(
        torch.zeros(2, 1), torch.tensor([[40.0], [-200.0]]), torch.ones(1, 1), torch.zeros(1), torch.zeros(1)
    )
    assert beta.tolist() == [[1.0], [0.0]]


def test_with_a_zero_low_rank_input_only_the_bias_decides(randn):
    dt_bias = randn(4)
    g, _ = kda_gates(
        torch.zeros(1, 3).double(), randn(1, 2), randn(4, 3), torch.zeros(2).double(), dt_bias, **F64
    )
    torch.testing.assert_close(g.flatten(), -5 * torch.sigmoid(dt_bias), rtol=1e-14, atol=0)


def test_the_low_rank_product_is_rounded_to_the_type_of_its_input(randn):
    f_a, w = randn(3, 7, dtype=torch.bfloat16), randn(4, 7, dtype=torch.bfloat16)
    A_log, dt_bias = randn(2), randn(4)
    g, _ = kda_gates(f_a, randn(3, 2), w, A_log, dt_bias, **F64)
    wide = (f_a.double() @ w.double().T).unflatten(-1, (2, 2))
    assert torch.equal(g, kda_decay(wide.bfloat16(), A_log, dt_bias, **F64))
    assert not torch.equal(g, kda_decay(wide, A_log, dt_bias, **F64))
