"""How what was exchanged is compared: by bits, but for the payload of a NaN."""

import pytest
import torch

from examples.peers.data import count_differing, digest

NAN, OTHER_NAN = 0x7FC0, 0x7FC1


def bf16(*bits):
    return torch.tensor(bits, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)


@pytest.mark.parametrize(
    ("found", "wanted", "count"),
    [
        (bf16(0x3F80, 0x4000), bf16(0x3F80, 0x4000), 0),
        (bf16(0x0000, 0x3F80), bf16(-0x8000, 0x3F81), 2),
        (bf16(OTHER_NAN, 0x3F80), bf16(NAN, NAN), 1),
        (torch.tensor([1.0, -0.0]), torch.tensor([1.0, 0.0]), 1),
        (torch.tensor([3, -1], dtype=torch.int32), torch.tensor([3, 7], dtype=torch.int32), 1),
    ],
    ids=["equal", "zeros of both signs and one ulp", "two NaN are one", "FP32", "numbers of experts"],
)
def test_elements_of_other_bits_are_counted(found, wanted, count):
    assert int(count_differing(found, wanted)) == count


def test_every_rank_of_a_process_is_compared():
    assert int(count_differing(torch.zeros(2, 3, 4), torch.ones(2, 1, 4))) == 24


def test_a_digest_is_of_bits():
    assert digest([torch.tensor([0.0])]) != digest([torch.tensor([-0.0])])
