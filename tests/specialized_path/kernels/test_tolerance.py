"""What the tolerance classes take and refuse."""

from itertools import permutations

import pytest
import torch

from tests.specialized_path.kernels.tolerance import T1, T2, assert_close

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
