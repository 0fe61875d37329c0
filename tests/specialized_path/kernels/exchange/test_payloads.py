"""The payloads of the exchange's tests are what their names say, by the oracle's arithmetic."""

import pytest
import torch

from specialized_path.kernels.exchange.boxes import count_full_words
from specialized_path.reference import linear, output_projection_partial
from tests.specialized_path.kernels.exchange.payloads import NAMES, payload
from tests.specialized_path.kernels.tolerance import assert_same_bits


@pytest.mark.parametrize("name", NAMES)
def test_the_rounded_products_are_the_partials(name):
    x, weight, partials = payload(name, 8, 3, "cpu")
    assert_same_bits(linear(x[7], weight[7]).nan_to_num(nan=0.0), partials[7].nan_to_num(nan=0.0))


def test_negative_zeros_give_words_that_look_empty_until_they_are_published():
    x, weight, partials = payload("negative zeros", 8, 3, "cpu")
    words = partials[0].numel() // 2
    full = [
        count_full_words(linear(x[0], weight[0])),
        count_full_words(output_projection_partial(x[0], weight[0])),
    ]
    # The first row's 3584 words, and every second one of the third row.
    assert full == [words - 3584 - 1792, words]


def test_negative_zeros_hold_a_row_of_nothing_else():
    partials = payload("negative zeros", 16, 3, "cpu")[2]
    assert (partials[:, 1].view(torch.int16) == -(2**15)).all()
