"""Rotary embedding: relative positions, interleaved pairs, YaRN's frequencies."""

import cmath
import math

import pytest
import torch

from specialized_path.reference import rotate_interleaved, yarn_inv_freq, yarn_mscale

F64 = {"acc_dtype": torch.float64}
K3_DRAFTER = {"theta": 50000.0, "factor": 32.0, "original_max_position": 32768}


def test_channels_2i_and_2i_plus_1_turn_as_one_complex_number(randn):
    x, positions, inv_freq = (
        randn(3, 6),
        torch.tensor([0, 1, 100_000]),
        torch.tensor([1.0, 0.3, 0.01]).double(),
    )
    turned = rotate_interleaved(x, positions, inv_freq, mscale=1.5, **F64)
    for b, position in enumerate(positions.tolist()):
        for i, frequency in enumerate(inv_freq.tolist()):
            z = complex(x[b, 2 * i], x[b, 2 * i + 1]) * cmath.exp(1j * position * frequency) * 1.5
            assert turned[b, 2 * i : 2 * i + 2].tolist() == pytest.approx(
                [z.real, z.imag], rel=1e-9, abs=1e-9
            )


def test_scores_depend_on_the_distance_only(randn):
    q, k, inv_freq = randn(8), randn(8), yarn_inv_freq(8, **K3_DRAFTER)
    scores = [
        rotate_interleaved(q, torch.tensor(p + 7), inv_freq, **F64)
        @ rotate_interleaved(k, torch.tensor(p), inv_freq, **F64)
        for p in (0, 5, 999_000)
    ]
    torch.testing.assert_close(torch.stack(scores), scores[0].expand(3), rtol=0, atol=1e-9)


def test_a_late_position_is_as_exact_in_float32_as_an_early_one(randn):
    x, inv_freq = randn(64, dtype=torch.float32), yarn_inv_freq(64, **K3_DRAFTER)
    for position in (3, 1_000_003):
        single = rotate_interleaved(x, torch.tensor(position), inv_freq)
        double = rotate_interleaved(x.double(), torch.tensor(position), inv_freq, **F64)
        torch.testing.assert_close(single.double(), double, rtol=0, atol=1e-6)


def test_bfloat16_channels_are_rounded_once(randn, bf16):
    x = randn(4, 6, dtype=torch.bfloat16)
    positions, inv_freq = torch.arange(4), yarn_inv_freq(6, **K3_DRAFTER)
    wide = rotate_interleaved(x.double(), positions, inv_freq, **F64)
    turned = rotate_interleaved(x, positions, inv_freq, **F64)
    assert turned.flatten().tolist() == [bf16(v) for v in wide.flatten().tolist()]


def test_without_extension_the_frequencies_are_powers_of_the_base():
    found = yarn_inv_freq(8, theta=50000.0, original_max_position=32768)
    assert found.tolist() == pytest.approx([50000.0 ** (-i / 4) for i in range(4)], rel=1e-14)


def test_fast_pairs_stay_slow_pairs_stretch_and_the_ramp_lies_between():
    plain = yarn_inv_freq(64, theta=50000.0, original_max_position=32768)
    turns = plain * 32768 / (2 * math.pi)
    ratio = plain / yarn_inv_freq(64, **K3_DRAFTER)
    # A whole pair of slack on either side, since the ramp's ends are rounded outwards.
    fast, slow = turns > 32 * 50000 ** (1 / 32), turns < 50000 ** (-1 / 32)
    assert fast.sum() > 8 and slow.sum() > 4
    torch.testing.assert_close(ratio[fast], torch.ones(int(fast.sum())).double(), rtol=1e-12, atol=0)
    torch.testing.assert_close(ratio[slow], torch.full((int(slow.sum()),), 32.0).double(), rtol=1e-12, atol=0)
    assert (ratio.diff() >= -1e-12).all() and ((ratio > 1.001) & (ratio < 31.9)).sum() >= 8


def test_the_logit_growth_of_an_extension_is_logarithmic_and_absent_without_one():
    found = yarn_mscale(32.0), yarn_mscale(32.0, 0.5), yarn_mscale(1.0)
    assert found == pytest.approx((1 + 0.1 * math.log(32), 1 + 0.05 * math.log(32), 1.0), rel=1e-15)
