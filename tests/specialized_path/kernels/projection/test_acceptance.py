"""What `fasttrack kernels tune` times: cuts that compute every case of the contract rightly, in every run."""

from functools import cache

import pytest

from specialized_path.kernels.projection.acceptance import expected_products, require_right
from specialized_path.reference import linear


@cache
def expected():
    return expected_products(5, 24, 256)


def right(x, weight, out):
    out.copy_(linear(x, weight))


def without_the_last_of_k(x, weight, out):
    out.copy_(linear(x[:, :-1].contiguous(), weight[:, :-1].contiguous()))


def without_the_last_row(x, weight, out):
    out[:-1] = linear(x[:-1], weight)


def with_bf16_sums(x, weight, out):
    halves = [linear(x[:, part], weight[:, part]) for part in (slice(0, 128), slice(128, None))]
    out.copy_(halves[0] + halves[1])


def with_infinity_for_nan(x, weight, out):
    out.copy_(linear(x, weight).nan_to_num(nan=float("inf"), posinf=float("inf")))


class WrongInItsLastRun:
    def __init__(self):
        self.runs = 0

    def __call__(self, x, weight, out):
        self.runs += 1
        right(x, weight, out)
        if self.runs == 3 * len(expected()):
            out[1, 2] += 0.25


def test_float32_sums_are_taken():
    require_right(expected(), right)


@pytest.mark.parametrize(
    ("run", "case"),
    [
        (without_the_last_of_k, "random"),
        (without_the_last_row, "random"),
        (with_bf16_sums, "random"),
        (with_infinity_for_nan, "a row with NaN"),
        (WrongInItsLastRun(), "denormal activations"),
    ],
)
def test_a_wrong_result_is_refused_with_its_case(run, case):
    with pytest.raises(ValueError, match=f"outputs are wrong in the case '{case}'"):
        require_right(expected(), run)


def test_nearly_every_output_of_random_data_may_be_one_number_only():
    random = expected()[0]
    assert (random.low == random.high).double().mean() > 0.98
