"""OC-4: the short convolution, one token."""

import math

import pytest
import torch

from specialized_path.reference import short_conv

NAN = float("nan")
F64 = {"acc_dtype": torch.float64}


def naive_output(history, weight):
    """SiLU of the filter at the end of `history` (zeros before it) for one channel."""
    padded = [0.0] * len(weight) + history
    z = math.fsum(w * x for w, x in zip(weight, padded[-len(weight) :], strict=True))
    return z / (1 + math.exp(-z))


@pytest.mark.parametrize("width", [2, 3, 4, 5])
def test_many_tokens_one_by_one_equal_the_filter_over_the_whole_history(randn, width):
    weight, tokens = randn(6, width), randn(9, 2, 6)
    pool = torch.zeros(4, 6, width - 1, dtype=torch.float64)
    slots = torch.tensor([3, 1], dtype=torch.int32)
    for n in range(9):
        out = short_conv(tokens[n], weight, pool, slots, **F64)
        expected = [
            [naive_output(tokens[: n + 1, b, c].tolist(), weight[c].tolist()) for c in range(6)]
            for b in range(2)
        ]
        torch.testing.assert_close(out.tolist(), expected, rtol=1e-12, atol=1e-13)
    assert torch.equal(pool[3], tokens[-(width - 1) :, 0].T) and torch.equal(
        pool[1], tokens[-(width - 1) :, 1].T
    )


def test_the_window_keeps_the_bits_of_the_raw_input(randn):
    x = randn(1, 6, dtype=torch.bfloat16, scale=1e4)
    pool = randn(2, 6, 3, dtype=torch.bfloat16)
    old = pool.clone()
    out = short_conv(x, randn(6, 4), pool, torch.tensor([1]))
    assert torch.equal(pool[1], torch.stack([old[1, :, 1], old[1, :, 2], x[0]], dim=1))
    assert out.dtype == torch.float32


@pytest.mark.parametrize("null", [0, -1])
def test_a_null_slot_gives_zero_and_leaves_the_whole_pool_alone(randn, null):
    pool = randn(3, 6, 3)
    pool[0] = NAN
    before = pool.clone()
    out = short_conv(torch.full((2, 6), NAN).double(), randn(6, 4), pool, torch.tensor([null, null]), **F64)
    assert out.eq(0).all() and torch.equal(pool.nan_to_num(7), before.nan_to_num(7))


def test_nan_in_other_slots_and_padded_rows_reaches_no_live_request(randn):
    pool, weight = torch.full((5, 6, 3), NAN, dtype=torch.float64), randn(6, 4)
    pool[2] = randn(6, 3)
    alone = pool[1:3].clone()
    x = randn(3, 6)
    x[0] = x[2] = NAN
    out = short_conv(x, weight, pool, torch.tensor([0, 2, -1]), **F64)
    assert torch.equal(out[1:2], short_conv(x[1:2], weight, alone, torch.tensor([1]), **F64))
    assert torch.equal(pool[2], alone[1]) and pool[[0, 1, 3, 4]].isnan().all()


def test_a_strided_slot_column_means_what_its_contiguous_copy_means(randn):
    table = torch.tensor([[9, 4, 9], [9, 1, 9], [9, 3, 9]], dtype=torch.int32)
    x, weight, pool = randn(3, 6), randn(6, 4), randn(5, 6, 3)
    copy = pool.clone()
    out = short_conv(x, weight, pool, table[:, 1], **F64)
    expected = short_conv(x, weight, copy, torch.tensor([4, 1, 3]), **F64)
    assert torch.equal(out, expected)
    assert torch.equal(pool, copy)


def test_a_transposed_pool_and_one_with_room_for_drafts_hold_the_same_window(randn):
    x, weight, window = randn(2, 6), randn(6, 4), randn(3, 6, 3)
    plain, transposed, wide = (
        window.clone(),
        window.transpose(1, 2).contiguous(),
        torch.full((3, 6, 8), NAN).double(),
    )
    wide[:, :, :3] = window
    outs = [short_conv(x, weight, pool, torch.tensor([2, 1]), **F64) for pool in (plain, transposed.mT, wide)]
    assert torch.equal(outs[0], outs[1]) and torch.equal(outs[0], outs[2])
    assert torch.equal(transposed.mT, plain) and torch.equal(wide[:, :, :3], plain)
    assert wide[:, :, 3:].isnan().all()


@pytest.mark.parametrize(
    ("z", "expected"), [(80.0, 80.0), (-80.0, -80 * math.exp(-80)), (-1e4, 0.0), (1e4, 1e4)]
)
def test_silu_keeps_its_tails(z, expected):
    pool = torch.zeros(2, 1, 3)
    weight = torch.tensor([[0.0, 0.0, 0.0, z]])
    out = short_conv(torch.ones(1, 1), weight, pool, torch.tensor([1]))
    assert out.item() == pytest.approx(expected, rel=1e-5)


def test_a_path_that_rounds_here_gets_one_rounding_of_the_wide_output(randn, bf16):
    x, weight, pool = (
        randn(2, 6, dtype=torch.bfloat16),
        randn(6, 4),
        torch.zeros(3, 6, 3, dtype=torch.bfloat16),
    )
    slots = torch.tensor([1, 2])
    wide = short_conv(x, weight, pool.clone(), slots, **F64)
    rounded = short_conv(x, weight, pool.clone(), slots, out_dtype=torch.bfloat16, **F64)
    assert rounded.flatten().tolist() == [bf16(v) for v in wide.flatten().tolist()]


def test_a_window_too_narrow_for_the_filter_is_an_error(randn):
    with pytest.raises(ValueError, match="conv_state width: got 2, expected at least 3"):
        short_conv(randn(1, 6), randn(6, 4), randn(2, 6, 2), torch.tensor([1]))
