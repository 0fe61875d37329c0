"""OC-9 on the GPU against the oracle in float64."""

import pytest
import torch
from torch import Tensor

from specialized_path.kernels.mla.cases import (
    ATTENTION_CASES,
    AttentionCase,
    AttentionInputs,
    attention_inputs,
)
from specialized_path.kernels.mla.launch import (
    ContextShard,
    dcp_merge,
    mla_attention,
)
from specialized_path.kernels.mla.variants import SCHEDULES, Schedule
from specialized_path.reference import dcp_local_lens, visible_lens
from tests.specialized_path.kernels.mla.attend import attend, scale_for, workspace
from tests.specialized_path.kernels.mla.oracle import expected_attention, take
from tests.specialized_path.kernels.replay import captured
from tests.specialized_path.kernels.tolerance import ACCUMULATION, T2, assert_close, assert_same_bits

pytestmark = pytest.mark.gpu

NAN = float("nan")
BY_NAME = {case.name: case for case in ATTENTION_CASES}
VERIFY = BY_NAME["verify q=4"]


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in ATTENTION_CASES])
def test_latents_are_within_their_class(case: AttentionCase, dtype: torch.dtype) -> None:
    inputs = attention_inputs(case, dtype, "cuda")
    latent, _ = attend(inputs, case.max_context)
    expected, _, terms = expected_attention(inputs, scale_for(dtype), exact_scores=case.has_exact_scores)
    assert_close(latent, expected, T2, term_magnitudes=terms)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", ["lengths at the page's edge", "verify q=3", "scores of 3e4", "128k"])
def test_lse_is_that_of_the_scores_in_base_2(name: str, schedule: Schedule, dtype: torch.dtype) -> None:
    inputs = attention_inputs(BY_NAME[name], dtype, "cuda")
    _, lse = attend(inputs, schedule=schedule)
    _, expected, _ = expected_attention(inputs, scale_for(dtype))
    torch.testing.assert_close(lse.double(), expected, rtol=1e-6, atol=2e-5)


def test_a_row_that_sees_nothing_gives_zeros_and_the_lse_asked_for(dtype: torch.dtype) -> None:
    inputs = attention_inputs(AttentionCase(name="", lengths=(0, 2, 9), num_tokens=3), dtype, "cuda")
    latent, lse = attend(inputs, empty_lse=-3e38)
    nothing = visible_lens(inputs.seq_lens, 3) == 0
    assert nothing.sum() == 4
    assert (latent[nothing] == 0).all() and (lse[nothing] == torch.tensor(-3e38).item()).all()


def test_a_later_tokens_nan_does_not_reach_earlier_tokens(dtype: torch.dtype) -> None:
    inputs = attention_inputs(VERIFY, dtype, "cuda")
    clean, _ = attend(inputs)
    # Request 1 has 200 rows in pages of 64: its newest is row 7 of its fourth page.
    inputs.kv_cache[int(inputs.block_table[1, 3]), 7] = NAN
    latent, _ = attend(inputs)
    assert_same_bits(latent[1, :-1], clean[1, :-1])
    assert latent[1, -1].isnan().all()


@pytest.mark.parametrize("case", [VERIFY, BY_NAME["64 requests"]], ids=lambda case: case.name)
def test_runs_give_the_same_bits(case: AttentionCase, dtype: torch.dtype) -> None:
    inputs = attention_inputs(case, dtype, "cuda")
    for ours, theirs in zip(attend(inputs), attend(inputs), strict=True):
        assert_same_bits(ours, theirs)


@pytest.mark.parametrize("case", [VERIFY, BY_NAME["64 requests"]], ids=lambda case: case.name)
def test_a_request_gives_the_same_bits_at_every_place_in_the_batch(
    case: AttentionCase, dtype: torch.dtype
) -> None:
    inputs = attention_inputs(case, dtype, "cuda")
    order = torch.randperm(len(case.lengths), generator=torch.Generator().manual_seed(3)).cuda()
    moved = AttentionInputs(
        query=take(inputs.query, order),
        kv_cache=inputs.kv_cache,
        block_table=inputs.block_table[order],
        seq_lens=inputs.seq_lens[order],
    )
    for ours, theirs in zip(attend(moved), attend(inputs), strict=True):
        assert_same_bits(ours, theirs[order])


def test_a_request_gives_the_same_bits_whatever_its_neighbours_lengths(dtype: torch.dtype) -> None:
    inputs = attention_inputs(BY_NAME["64 requests"], dtype, "cuda")
    alone = replace_lengths(inputs, [n if b == 9 else 0 for b, n in enumerate(inputs.seq_lens.tolist())])
    assert_same_bits(attend(alone)[0][9], attend(inputs)[0][9])


def replace_lengths(inputs: AttentionInputs, lengths: list[int]) -> AttentionInputs:
    lens = torch.tensor(lengths, dtype=torch.int32, device="cuda")
    return AttentionInputs(
        query=inputs.query, kv_cache=inputs.kv_cache, block_table=inputs.block_table, seq_lens=lens
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_captured_graph_follows_lengths_and_pages_and_keeps_the_eager_bits(
    schedule: Schedule, dtype: torch.dtype
) -> None:
    inputs = attention_inputs(VERIFY, dtype, "cuda")
    partial, scale = workspace(inputs), scale_for(dtype)
    rows = inputs.query.shape[:3]
    out = torch.empty(*rows, 512, dtype=torch.bfloat16, device="cuda")
    lse = torch.empty(rows, device="cuda")
    lens, table = inputs.seq_lens.clone(), inputs.block_table.clone()
    graph = captured(
        lambda: mla_attention(
            inputs.query,
            inputs.kv_cache,
            table,
            lens,
            partial=partial,
            scale=scale,
            schedule=schedule,
            out=out,
            lse=lse,
        )
    )
    for lengths, order in (
        [[4, 200, 64, 1, 0, 4099], range(6)],
        [[4099, 5, 0, 64, 1, 190], [5, 3, 4, 2, 0, 1]],
    ):
        lens.copy_(torch.tensor(lengths, dtype=torch.int32))
        table.copy_(inputs.block_table[list(order)])
        out.fill_(NAN)
        graph.replay()
        first = out.clone()
        graph.replay()
        eager, _ = attend(
            AttentionInputs(query=inputs.query, kv_cache=inputs.kv_cache, block_table=table, seq_lens=lens),
            schedule=schedule,
        )
        assert_same_bits(first, eager)
        assert_same_bits(out, first)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("interleave", [1, 3, 64])
@pytest.mark.parametrize("num_tokens", [1, 4])
def test_shards_of_the_context_merge_to_the_whole(
    num_tokens: int, interleave: int, schedule: Schedule, dtype: torch.dtype
) -> None:
    check_shards(4, num_tokens, interleave, schedule, dtype)


@pytest.mark.parametrize("size", [8, 16])
def test_shards_of_a_whole_group_merge_to_the_whole(size: int, dtype: torch.dtype) -> None:
    check_shards(size, 4, 1, SCHEDULES[0], dtype)


def check_shards(size: int, num_tokens: int, interleave: int, schedule: Schedule, dtype: torch.dtype) -> None:
    """Requests of no token, of fewer than ranks, and of more, shared out among `size` ranks."""
    lengths = (0, 1, 2, 5, 300, 1000)
    case = AttentionCase(name="", lengths=lengths, num_tokens=num_tokens, num_heads=96)
    whole = attention_inputs(case, dtype, "cuda")
    scale = scale_for(dtype)
    expected, _, terms = expected_attention(whole, scale)
    latents, lses = [], []
    for rank in range(size):
        shard = ContextShard(rank=rank, size=size, interleave=interleave)
        latent, lse = attend(shard_inputs(whole, shard), shard=shard, empty_lse=-3e38, schedule=schedule)
        latents.append(latent.flatten(0, 1))
        lses.append(lse.flatten(0, 1))
    merged, _ = dcp_merge(torch.stack(latents), torch.stack(lses))
    terms += share_rounding(latents, lses).view_as(expected)
    assert_close(merged.view_as(expected), expected, T2, term_magnitudes=terms)


def share_rounding(latents: list[Tensor], lses: list[Tensor]) -> Tensor:
    """Shards travel as BF16: half an ulp of each weighted share, in the unit of `term_magnitudes`."""
    weights = torch.softmax(torch.stack(lses).double() * 0.6931471805599453, dim=0).unsqueeze(-1)
    return (weights * torch.stack(latents).double().abs()).sum(0) * 2.0**-8 / ACCUMULATION


def shard_inputs(whole: AttentionInputs, shard: ContextShard) -> AttentionInputs:
    """The rank's own cache: its tokens of each request in sequence, packed into its own pages."""
    page_size = whole.kv_cache.shape[1]
    cache = torch.full_like(whole.kv_cache.contiguous().float(), NAN).to(whole.kv_cache.dtype)
    table = torch.full_like(whole.block_table, -1)
    free = 0
    for b, length in enumerate(whole.seq_lens.tolist()):
        tokens = torch.arange(length, device="cuda")
        tokens = tokens[tokens // shard.interleave % shard.size == shard.rank]
        assert len(tokens) == dcp_local_lens(
            torch.tensor(length), rank=shard.rank, world_size=shard.size, interleave=shard.interleave
        )
        pages = whole.block_table[b].long()[tokens // page_size]
        rows = take(whole.kv_cache, (pages, tokens % page_size))
        for first in range(0, len(tokens), page_size):
            part = rows[first : first + page_size]
            cache[free, : len(part)] = part
            table[b, first // page_size] = free
            free += 1
    return AttentionInputs(query=whole.query, kv_cache=cache, block_table=table, seq_lens=whole.seq_lens)
