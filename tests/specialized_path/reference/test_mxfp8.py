"""MXFP8 activations, against a rounding in Python that shares nothing with the oracle's."""

import math

import pytest
import torch

from specialized_path.reference import (
    dequantize_mxfp4,
    dequantize_mxfp8,
    quantize_mxfp8,
    routed_experts,
)
from specialized_path.reference.mxfp4 import Mxfp4Weight

NAN = float("nan")
F64 = {"acc_dtype": torch.float64}
E4M3 = [m / 8 * 2.0**-6 for m in range(8)]
E4M3 += [(1 + m / 8) * 2.0 ** (e - 7) for e in range(1, 16) for m in range(8)][:-1]


def naive_e4m3(value):
    """The nearest of the 127 magnitudes, the even code on a tie."""
    code = min(range(127), key=lambda c: (abs(E4M3[c] - abs(value)), c % 2))
    return math.copysign(E4M3[code], value)


def naive_mxfp8(group, saturates=False):
    amax = max(abs(v) for v in group)
    mantissa, exponent = math.frexp(amax)
    code = exponent - 1 - 8 + 127 + (2 * mantissa > 1.75 and not saturates)
    code = 0 if amax == 0 else min(max(code, 0), 254)
    unit = 2.0 ** (code - 127)
    return code, [naive_e4m3(v / unit) * unit for v in group]


def values_of(x, **rule):
    return dequantize_mxfp8(quantize_mxfp8(x, **rule), dtype=torch.float64)


@pytest.mark.parametrize("saturates", [False, True])
@pytest.mark.parametrize("amax", [1.0, 1.5, 1.75, 1.7500001, 1.875, 1.999, 448.0, 2.0**-120, 2.0**-130, 3e38])
def test_codes_and_scales_are_those_of_plain_arithmetic(randn, amax, saturates):
    group = randn(32)
    group = group / group.abs().max() * amax
    quantised = quantize_mxfp8(group, saturates=saturates)
    code, expected = naive_mxfp8(group.tolist(), saturates)
    assert quantised.scale.tolist() == [code]
    assert dequantize_mxfp8(quantised, dtype=torch.float64).tolist() == expected


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_scale_is_the_smallest_at_which_the_largest_magnitude_fits(randn, dtype):
    x = (randn(200, 32) * torch.exp2(randn(200, 1) * 20)).to(dtype)
    scale = torch.exp2(quantize_mxfp8(x).scale.double() - 127)[:, 0]
    scaled = x.double().abs().amax(dim=1) / scale
    assert ((scaled <= 448) & (scaled > 224)).all()


def test_the_saturating_rule_pins_what_the_finer_scale_does_not_hold():
    x = torch.full((32,), 0.25)
    x[0] = 1.96
    fitting, saturating = values_of(x), values_of(x, saturates=True)
    assert (fitting[0].item(), saturating[0].item()) == (2.0, 1.75)


def test_each_group_of_thirty_two_has_a_scale_of_its_own_and_zeros_have_the_smallest():
    x = torch.cat([torch.zeros(32), torch.ones(32), torch.full((32,), -1024.0)]).expand(2, 96)
    quantised = quantize_mxfp8(x)
    assert quantised.scale.tolist() == [[0, 119, 129]] * 2
    assert torch.equal(dequantize_mxfp8(quantised), x)


@pytest.mark.parametrize("saturates", [False, True])
def test_quantising_what_was_quantised_changes_nothing(randn, saturates):
    once = values_of(randn(100, 64), saturates=saturates)
    assert torch.equal(values_of(once, saturates=saturates), once)


def test_an_outlier_takes_the_small_values_of_its_own_group_only():
    x = torch.full((64,), 1e-3)
    x[5] = 1e4
    kept = values_of(x)
    assert kept[6].item() == 0 and kept[40].item() == pytest.approx(1e-3, rel=2**-4)


def test_nan_stays_where_it_is_and_infinity_takes_the_largest_scale():
    x = torch.ones(64)
    x[1], x[33] = NAN, math.inf
    quantised = quantize_mxfp8(x)
    values = dequantize_mxfp8(quantised, dtype=torch.float64)
    assert values.isnan().nonzero().tolist() == [[1]] and values[:32].nansum().item() == 31
    assert quantised.scale.tolist() == [119, 247] and values[33].item() == 448 * 2.0**120


def test_the_largest_scale_code_is_never_the_one_that_means_nan():
    assert quantize_mxfp8(torch.full((32,), 1e300, dtype=torch.float64)).scale.tolist() == [254]


def test_columns_that_are_no_whole_groups_are_refused():
    with pytest.raises(ValueError, match="columns: got 40"):
        quantize_mxfp8(torch.zeros(2, 40))


def weights(*shape):
    generator = torch.Generator().manual_seed(7)
    packed = torch.randint(0, 256, (*shape[:-1], shape[-1] // 2), generator=generator, dtype=torch.uint8)
    scale = torch.randint(120, 124, (*shape[:-1], shape[-1] // 32), generator=generator, dtype=torch.uint8)
    return Mxfp4Weight(packed=packed, scale=scale)


def experts():
    return weights(4, 64, 96), weights(4, 64, 96), weights(4, 96, 64)


def test_experts_on_mxfp8_rows_are_experts_on_the_rows_of_their_values(randn):
    x, ids = randn(3, 96), torch.tensor([[0, 3], [1, 2], [3, 1]])
    given = routed_experts(x, ids, *experts(), x_format="mxfp8", **F64)
    assert torch.equal(given, routed_experts(values_of(x), ids, *experts(), **F64))


@pytest.mark.parametrize("form", ["mxfp8", "mxfp8_saturating"])
def test_the_hidden_is_rounded_to_mxfp8_once_and_from_the_wide_activation(randn, form):
    x, ids = randn(2, 96, dtype=torch.bfloat16), torch.tensor([[2], [0]])
    w1, w3, w2 = experts()
    identity = torch.eye(64).double().expand(4, 64, 64)
    hidden = routed_experts(x.double(), ids, w1, w3, identity, **F64)[:, 0]
    down = dequantize_mxfp4(w2, dtype=torch.float64)
    rounded = values_of(hidden, saturates=form == "mxfp8_saturating")
    expected = torch.stack([down[2] @ rounded[0], down[0] @ rounded[1]]).to(torch.bfloat16)
    assert torch.equal(routed_experts(x, ids, w1, w3, w2, hidden_format=form, **F64)[:, 0], expected)


def test_mxfp8_activations_cost_a_few_percent_of_the_output(randn):
    x, ids = randn(16, 96), torch.arange(32).reshape(16, 2) % 4
    exact = routed_experts(x, ids, *experts(), **F64)
    rounded = routed_experts(x, ids, *experts(), x_format="mxfp8", hidden_format="mxfp8", **F64)
    assert 0.01 < ((rounded - exact).norm() / exact.norm()).item() < 0.06


def test_slices_of_whole_groups_of_the_intermediate_dimension_add_up(randn):
    x, ids, forms = (
        randn(3, 96),
        torch.tensor([[0], [1], [3]]),
        {"x_format": "mxfp8", "hidden_format": "mxfp8"},
    )
    w1, w3, w2 = experts()
    total = torch.zeros(3, 1, 96, dtype=torch.float64)
    for r in range(2):
        rows = slice(32 * r, 32 * r + 32)
        down = Mxfp4Weight(packed=w2.packed[:, :, 16 * r : 16 * r + 16], scale=w2.scale[:, :, r : r + 1])
        total += routed_experts(x, ids, w1[:, rows], w3[:, rows], down, **forms, **F64)
    whole = routed_experts(x, ids, w1, w3, w2, **forms, **F64)
    torch.testing.assert_close(total, whole, rtol=1e-11, atol=1e-11)
