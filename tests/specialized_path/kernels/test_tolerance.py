"""What the tolerance classes take and refuse."""

from itertools import permutations

import pytest
import torch

from tests.specialized_path.kernels.tolerance import (
    T1,
    T2,
    assert_close,
    assert_codes_close,
    assert_state_close,
)

KINDS = [0.5, torch.finfo(torch.bfloat16).max, float("nan"), float("inf"), -float("inf")]


def bf16(*values):
    return torch.tensor(values, dtype=torch.bfloat16)


@pytest.mark.parametrize("value", KINDS)
def test_a_value_is_within_the_class_of_itself_whatever_its_kind(value):
    assert_close(bf16(1.0, value), bf16(1.0, value).double(), T1)


@pytest.mark.parametrize(("got", "wanted"), [*permutations(KINDS, 2)])
def test_no_kind_of_value_passes_for_another(got, wanted):
    with pytest.raises(AssertionError):
        assert_close(bf16(1.0, got), bf16(1.0, wanted).double(), T1)


def test_inner_flips_are_allowed_to_an_element_and_not_to_all():
    reference = torch.ones(1000, dtype=torch.float64)
    one, flips = reference.clone(), torch.full_like(reference, 0.1)
    one[7] = 1.05
    assert_close(one.bfloat16(), reference, T2, inner_flips=flips)
    with pytest.raises(AssertionError, match="relative L2"):
        assert_close((reference * 1.05).bfloat16(), reference, T2, inner_flips=flips)


# The figures are those of part 0.3 of the specification.


@pytest.mark.parametrize(("tolerance", "relative_l2"), [(T1, 2.2e-3), (T2, 4e-3)], ids=["T1", "T2"])
def test_a_class_ends_at_the_contracts_relative_l2_error(tolerance, relative_l2):
    got = torch.full((100,), 1.5, dtype=torch.bfloat16)
    assert_close(got, got.double() * (1 + 0.99 * relative_l2), tolerance)
    with pytest.raises(AssertionError, match="relative L2"):
        # However much the sums may be wrong.
        many = torch.full((100,), 1e6)
        assert_close(got, got.double() * (1 + 1.01 * relative_l2), tolerance, term_magnitudes=many)


@pytest.mark.parametrize(("tolerance", "ulps"), [(T1, 1), (T2, 3)], ids=["T1", "T2"])
@pytest.mark.parametrize("terms", [0.0, 2.0**14])
def test_a_class_ends_at_the_contracts_units_and_error_of_sums(tolerance, ulps, terms):
    got, magnitudes = torch.full((10_000,), 1.5, dtype=torch.bfloat16), torch.full((10_000,), terms)
    for share, is_in in ((0.99, True), (1.01, False)):
        reference = got.double()
        reference[7] += share * (ulps * 2.0**-7 + 2.0**-20 * terms)
        if is_in:
            assert_close(got, reference, tolerance, term_magnitudes=magnitudes)
        else:
            with pytest.raises(AssertionError, match="ulp"):
                assert_close(got, reference, tolerance, term_magnitudes=magnitudes)


def test_class_t3_ends_at_a_hundred_thousandth():
    state = torch.ones(100, dtype=torch.float64)
    assert_state_close(state * (1 + 0.99e-5), state)
    with pytest.raises(AssertionError, match="relative L2"):
        assert_state_close(state * (1 + 1.01e-5), state)


@pytest.mark.parametrize(("places", "codes", "why"), [(6, 1, "of the codes"), (1, 2, "more than one")])
def test_class_t4_ends_at_five_codes_of_a_thousand_and_at_the_next_code(places, codes, why):
    bytes_ = torch.full((1000,), 0x38, dtype=torch.uint8)
    near, far = bytes_.clone(), bytes_.clone()
    near[:5] += 1
    far[:places] += codes
    assert_codes_close(near, bytes_)
    with pytest.raises(AssertionError, match=why):
        assert_codes_close(far, bytes_)
