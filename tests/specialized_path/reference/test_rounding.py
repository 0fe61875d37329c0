"""Rounding is to nearest even and happens once, whatever the way from float64."""

import math
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specialized_path.reference import quantize_e4m3, round_to


@given(
    st.integers(0, 2**15 - 1).map(lambda n: 2 * n),
    st.sampled_from([-40, -30, -25, 0]),
    st.sampled_from([-1, 0, 1]),
)
def test_a_double_next_to_the_midpoint_of_two_bfloat16_goes_to_its_own_side(code, exponent, side):
    low = struct.unpack("<f", struct.pack("<I", code << 16))[0]
    high = struct.unpack("<f", struct.pack("<I", (code << 16) ^ (1 << 16)))[0]
    if not (math.isfinite(low) and math.isfinite(high)):
        return
    middle = (low + high) / 2
    value = middle + side * math.copysign(2.0**exponent, middle) * abs(high - low) * (exponent != 0)
    expected = (
        min((low, high), key=lambda candidate: abs(candidate - value)) if value != middle else low
    )  # the even code is `low`
    assert round_to(torch.tensor(value, dtype=torch.float64), torch.bfloat16).double().item() == expected


def test_a_plain_cast_would_round_twice_where_round_to_does_not():
    value = torch.tensor(1 + 2**-8 + 2**-40, dtype=torch.float64)
    assert (value.to(torch.bfloat16).item(), round_to(value, torch.bfloat16).item()) == (1.0, 1 + 2**-7)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_infinities_nan_zeros_and_overflow_keep_their_meaning(dtype):
    values = torch.tensor([math.inf, -math.inf, math.nan, -0.0, 1e300, -1e300, 5e-324], dtype=torch.float64)
    rounded = round_to(values, dtype).double().tolist()
    assert str(rounded) == "[inf, -inf, nan, -0.0, inf, -inf, 0.0]"


def test_float64_stays_as_it_is_so_that_an_exact_oracle_never_rounds(randn):
    x = randn(100)
    assert round_to(x, torch.float64) is x


def test_e4m3_pins_to_the_range_keeps_nan_and_divides_by_the_scale():
    x = torch.tensor([449.0, -1e30, math.inf, math.nan, 896.0, 1.0], dtype=torch.float64)
    assert str(quantize_e4m3(x, scale=1.0).float().tolist()) == "[448.0, -448.0, 448.0, nan, 448.0, 1.0]"
    assert quantize_e4m3(x[4:], scale=2.0).float().tolist() == [448.0, 0.5]
