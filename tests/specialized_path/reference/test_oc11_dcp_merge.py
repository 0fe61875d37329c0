"""OC-11: decode-context parallelism."""

import math

import pytest
import torch

from specialized_path.reference import (
    dcp_local_lens,
    dcp_merge,
    mla_attention,
    mla_attention_visible,
    visible_lens,
)

NAN = float("nan")
F64 = {"acc_dtype": torch.float64}
H, C, R, P = 2, 3, 5, 4
OPTIONS = {"kv_lora_rank": C, "scale": 0.37} | F64


@pytest.mark.parametrize("interleave", [1, 2, 3])
@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_every_token_is_counted_on_its_own_rank(world_size, interleave):
    for n in range(30):
        owners = [i // interleave % world_size for i in range(n)]
        counts = [
            dcp_local_lens(torch.tensor([n]), rank=r, world_size=world_size, interleave=interleave).item()
            for r in range(world_size)
        ]
        assert counts == [owners.count(r) for r in range(world_size)]


@pytest.mark.parametrize("num_tokens", [1, 4])
@pytest.mark.parametrize("interleave", [1, 3])
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_attention_over_ranks_merged_is_attention_over_the_whole(randn, world_size, interleave, num_tokens):
    lengths = [0, 1, 2, 5, 8, 14]
    rows = [randn(n, R) for n in lengths]
    query = randn(len(lengths), num_tokens, H, R)
    seq_lens = torch.tensor(lengths)
    visible = visible_lens(seq_lens, num_tokens)

    def cache_of(kept):
        """Pages 4*b ... 4*b+3 hold the kept rows of request b; all else is NaN."""
        cache = torch.full((4 * len(lengths), P, R), NAN, dtype=torch.float64)
        for b, part in enumerate(kept):
            cache[4 * b : 4 * b + 4].view(-1, R)[: len(part)] = part
        return cache

    table = torch.arange(4 * len(lengths)).view(-1, 4)
    whole, whole_lse = mla_attention(query, cache_of(rows), table, seq_lens, **OPTIONS)
    parts = []
    for rank in range(world_size):
        kept = [[i for i in range(n) if i // interleave % world_size == rank] for n in lengths]
        cache = cache_of([part[index] for part, index in zip(rows, kept, strict=True)])
        local = dcp_local_lens(visible, rank=rank, world_size=world_size, interleave=interleave)
        parts.append(mla_attention_visible(query, cache, table, local, **OPTIONS))
    latent, lse = dcp_merge(torch.stack([p[0] for p in parts]), torch.stack([p[1] for p in parts]), **F64)
    torch.testing.assert_close(latent, whole, rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(lse, torch.where(whole_lse.isinf(), -3e38, whole_lse), rtol=1e-12, atol=0)


@pytest.mark.parametrize("empty", [NAN, math.inf, -math.inf, -3e38])
@pytest.mark.parametrize("acc_dtype", [torch.float32, torch.float64])
def test_an_empty_shard_is_not_read_whatever_stands_for_empty(randn, empty, acc_dtype):
    latents, lse = randn(3, 2, H, C), randn(3, 2, H)
    latents[1], lse[1] = NAN, empty
    merged, merged_lse = dcp_merge(latents, lse, acc_dtype=acc_dtype)
    expected, expected_lse = dcp_merge(latents[[0, 2]], lse[[0, 2]], acc_dtype=acc_dtype)
    assert torch.equal(merged, expected) and torch.equal(merged_lse, expected_lse)


def test_all_shards_empty_give_zero_and_the_finite_sign_of_emptiness():
    merged, lse = dcp_merge(torch.full((2, 1, H, C), NAN), torch.full((2, 1, H), -math.inf))
    assert merged.eq(0).all() and lse.eq(torch.tensor(-3e38)).all()


def test_equal_weights_average_and_a_gap_of_two_hundred_silences(randn):
    latents = randn(4, 1, H, C)
    merged, lse = dcp_merge(latents, torch.full((4, 1, H), 7.0).double(), **F64)
    torch.testing.assert_close(merged, latents.mean(0), rtol=1e-13, atol=1e-15)
    assert lse.eq(9.0).all()
    far = torch.zeros(4, 1, H).double()
    far[2] = 200.0
    assert torch.equal(dcp_merge(latents, far)[0], latents[2].float().double())


def test_shards_add_up_in_rank_order():
    latents = torch.tensor([1e8, 1.0, -1e8]).reshape(3, 1, 1) * 3
    order = [dcp_merge(latents[index], torch.zeros(3, 1))[0].item() for index in ([0, 1, 2], [0, 2, 1])]
    assert order == [0.0, 1.0]


def test_the_merged_latent_is_rounded_once(randn, bf16):
    latents, lse = randn(3, 4, H, C, dtype=torch.bfloat16), randn(3, 4, H)
    wide, _ = dcp_merge(latents.double(), lse, **F64)
    merged, _ = dcp_merge(latents, lse, **F64)
    assert merged.flatten().tolist() == [bf16(v) for v in wide.flatten().tolist()]
