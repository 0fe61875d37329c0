"""OC-10: values and gate."""

import math

import pytest
import torch

from specialized_path.reference import mla_value_gate

F64 = {"acc_dtype": torch.float64}
H, V, C = 2, 3, 4


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_values_are_rounded_before_and_after_the_gate(randn, bf16, dtype):
    latent, w_uv, gate = (randn(*s, dtype=dtype) for s in ((2, 1, H, C), (H, V, C), (2, 1, H * V)))
    rounded = bf16 if dtype == torch.bfloat16 else float
    out = mla_value_gate(latent, w_uv, gate, **F64)
    for b in range(2):
        expected = []
        for h in range(H):
            for v in range(V):
                pairs = zip(latent[b, 0, h].tolist(), w_uv[h, v].tolist(), strict=True)
                value = rounded(math.fsum(a * c for a, c in pairs))
                expected.append(rounded(value / (1 + math.exp(-gate[b, 0, h * V + v].item()))))
        tolerance = 0 if dtype == torch.bfloat16 else 1e-13
        torch.testing.assert_close(out[b, 0].tolist(), expected, rtol=tolerance, atol=tolerance)


def test_an_empty_request_gives_zero_even_when_gate_and_latent_are_nan(randn):
    latent, gate = randn(3, 2, H, C), randn(3, 2, H * V)
    latent[1] = gate[1] = float("nan")
    w_uv = randn(H, V, C)
    out = mla_value_gate(latent, w_uv, gate, seq_lens=torch.tensor([4, 0, 1]), **F64)
    assert out[1].eq(0).all()
    assert torch.equal(out[[0, 2]], mla_value_gate(latent, w_uv, gate, **F64)[[0, 2]])


def test_heads_do_not_know_of_each_other(randn):
    latent, w_uv, gate = randn(3, H, C), randn(H, V, C), randn(3, H * V)
    parts = [
        mla_value_gate(latent[:, h : h + 1], w_uv[h : h + 1], gate[:, h * V : h * V + V], **F64)
        for h in range(H)
    ]
    whole = mla_value_gate(latent, w_uv, gate, **F64)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=1e-12, atol=1e-14)
