"""The embedding: what the host refuses, and on a GPU the bits of the table."""

import pytest
import torch

from specialized_path.kernels.embedding.launch import embed
from specialized_path.reference import embedding
from tests.specialized_path.kernels.tolerance import assert_same_bits

START, ROWS = 1000, 640
IDS = {
    "edges of the shard": [START, START + ROWS - 1, START - 1, START + ROWS],
    "padding and stale ids": [-1, 0, START + 5, 2**31 - 1, -(2**31)],
    "the same id everywhere": [START + 7] * 64,
    "one": [START + 1],
}


@pytest.mark.parametrize(
    ("ids", "what"),
    [
        (torch.zeros(65, dtype=torch.int32), "rows: got 65"),
        (torch.zeros(2), "torch.float32"),
        (torch.zeros(2, dtype=torch.int64), "token_ids: got .* on cpu"),
    ],
)
def test_what_the_kernel_does_not_serve_is_refused(ids, what):
    with pytest.raises(ValueError, match=what):
        embed(ids, torch.zeros(4, 7168).bfloat16())


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=["int32", "int64"])
@pytest.mark.parametrize("name", IDS)
def test_rows_have_the_bits_of_the_table_and_ids_of_others_give_zero(name, dtype):
    gen = torch.Generator("cuda").manual_seed(0)
    weight = torch.randn(ROWS, 7168, generator=gen, device="cuda").bfloat16()
    weight[0, :3] = torch.tensor([float("nan"), -0.0, float("inf")])
    ids = torch.tensor(IDS[name], device="cuda").to(dtype)
    out = torch.full((len(ids), 7168), float("nan"), device="cuda", dtype=torch.bfloat16)
    embed(ids, weight, vocab_start=START, out=out)
    assert_same_bits(out, embedding(ids, weight, vocab_start=START))


@pytest.mark.gpu
def test_an_id_beyond_32_bits_is_no_row_of_the_shard():
    weight = torch.ones(ROWS, 7168, device="cuda").bfloat16()
    out = embed(torch.tensor([2**32 + START], device="cuda"), weight, vocab_start=START)
    assert bool((out == 0).all())
