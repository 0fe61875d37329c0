"""OC-12: output projection and the reduction over ranks."""

import math

import torch

from specialized_path.reference import linear, output_projection_partial, rank_order_sum

F64 = {"acc_dtype": torch.float64}


def test_the_ranks_partials_add_up_to_the_whole_projection(randn):
    y, w_o = randn(3, 12), randn(5, 12)
    parts = [
        output_projection_partial(y_r, w_r, **F64)
        for y_r, w_r in zip(y.split(4, dim=1), w_o.split(4, dim=1), strict=True)
    ]
    torch.testing.assert_close(
        rank_order_sum(torch.stack(parts), **F64), linear(y, w_o, **F64), rtol=1e-12, atol=1e-13
    )


def test_partials_are_rounded_and_then_their_wide_sum(randn, bf16):
    y, w_o = randn(2, 12, dtype=torch.bfloat16), randn(5, 12, dtype=torch.bfloat16)
    parts = torch.stack(
        [
            output_projection_partial(y_r, w_r, **F64)
            for y_r, w_r in zip(y.split(4, dim=1), w_o.split(4, dim=1), strict=True)
        ]
    )
    reduced = rank_order_sum(parts, **F64)
    for b in range(2):
        for d in range(5):
            terms = [[y[b, i].item() * w_o[d, i].item() for i in range(r, r + 4)] for r in (0, 4, 8)]
            rounded = [bf16(math.fsum(t)) for t in terms]
            assert parts[:, b, d].tolist() == rounded
            assert reduced[b, d].item() == bf16(math.fsum(rounded))


def test_the_sum_runs_in_rank_order():
    values = torch.tensor([[1e8], [1.0], [-1e8]])
    assert rank_order_sum(values).tolist() == [0.0] and rank_order_sum(values[[0, 2, 1]]).tolist() == [1.0]


def test_the_sum_is_wide_and_overflows_only_when_the_total_does():
    values = torch.tensor([[256.0], [1.0], [1.0]], dtype=torch.bfloat16)
    assert rank_order_sum(values).item() == 258.0
    large = torch.tensor([[3e38], [3e38], [-3e38]], dtype=torch.bfloat16)
    assert (
        rank_order_sum(large, **F64).isfinite().all() and rank_order_sum(large[:2], **F64).item() == math.inf
    )


def test_minus_zero_is_published_and_reduced_as_plus_zero():
    zero = torch.tensor([[-0.0]], dtype=torch.bfloat16)
    tiny = torch.full((1, 1), 1e-30, dtype=torch.bfloat16)
    assert not output_projection_partial(tiny, -tiny, **F64).signbit().any()
    assert not rank_order_sum(torch.stack([zero, zero])).signbit().any()


def test_one_ranks_nan_and_infinity_reach_the_sum_at_their_own_place_only():
    partials = torch.zeros(3, 1, 3)
    partials[1, 0, 0], partials[2, 0, 1] = math.nan, math.inf
    assert str(rank_order_sum(partials).tolist()) == "[[nan, inf, 0.0]]"
