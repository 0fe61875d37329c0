"""What the host side of MLA decides and refuses, without a GPU."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specialized_path.kernels.mla.cases import ATTENTION_CASES, QUERY_CASES, attention_inputs, query_inputs
from specialized_path.kernels.mla.launch import (
    AttentionScale,
    ContextShard,
    PartialAttention,
    QueryWeights,
    dcp_merge,
    mla_attention_partial,
    mla_query,
    mla_value,
)
from specialized_path.kernels.mla.split_plan import GRANULE, MAX_REQUESTS, MAX_SPLITS, plan_splits
from specialized_path.kernels.mla.variants import core_row_tiles, variants

plans = st.builds(
    plan_splits,
    st.integers(1, MAX_REQUESTS),
    st.integers(1, 16),
    st.integers(1, 1 << 20),
    num_ctas=st.integers(1, 160),
)


@given(plan=plans, length=st.integers(0, 1 << 20))
def test_no_request_is_cut_into_more_chunks_than_the_workspace_holds(plan, length: int) -> None:
    assert plan.num_chunks(length) <= plan.max_splits <= MAX_SPLITS


@given(plan=plans, length=st.integers(1, 1 << 20))
def test_chunks_are_whole_granules_and_cover_the_request(plan, length: int) -> None:
    tokens, count = plan.chunk_tokens(length), plan.num_chunks(length)
    assert tokens % GRANULE == 0
    assert (count - 1) * tokens < length <= count * tokens


def test_at_batch_1_and_128k_nearly_every_multiprocessor_has_a_chunk() -> None:
    assert plan_splits(1, 1, 131072).num_chunks(131072) == 128


@pytest.mark.parametrize("num_reqs", [1, 2, 4, 8, 16, 32, 64])
def test_long_requests_of_one_length_give_each_multiprocessor_one_chunk(num_reqs: int) -> None:
    chunks = num_reqs * plan_splits(num_reqs, 1, 2048).num_chunks(2048)
    assert 32 <= chunks <= 132


def test_a_request_far_longer_than_the_others_is_shared_by_many_multiprocessors() -> None:
    assert plan_splits(64, 1, 131072).num_chunks(131072) == 64


@pytest.mark.parametrize(("num_reqs", "max_context"), [(0, 1), (MAX_REQUESTS + 1, 1), (1, 0)])
def test_a_plan_outside_the_scope_is_refused(num_reqs: int, max_context: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        plan_splits(num_reqs, 1, max_context)


@given(rows=st.integers(1, 96 * 8))
def test_row_tiles_cover_a_requests_rows_with_none_to_spare(rows: int) -> None:
    units, items = core_row_tiles(rows)
    assert 1 <= units <= 3
    assert 16 * units * (items - 1) < rows <= 16 * units * items


@given(rows=st.integers(1, 96 * 8))
def test_a_cached_row_is_read_for_as_many_query_rows_as_a_tile_takes(rows: int) -> None:
    assert core_row_tiles(rows)[1] == -(-rows // 48)


@pytest.mark.parametrize("variant", [pytest.param(v, id=v.name) for v in variants()])
def test_every_address_has_a_role(variant) -> None:
    assert [int(key) for key in variant.roles] == list(range(len(variant.roles)))


@pytest.mark.parametrize("field", ["softmax", "query", "cache"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_scales_that_are_not_positive_are_refused(field: str, value: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        AttentionScale(**{field: value})


@pytest.mark.parametrize("shard", [(1, 1, 1), (-1, 2, 1), (0, 33, 1), (0, 2, 0)])
def test_a_share_of_the_context_that_cannot_be_is_refused(shard: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="context shard"):
        ContextShard(rank=shard[0], size=shard[1], interleave=shard[2])


def test_attention_outside_a_gpu_is_refused() -> None:
    inputs = attention_inputs(ATTENTION_CASES[0], torch.bfloat16, "cpu")
    plan = plan_splits(7, 1, 1024)
    partial = PartialAttention(plan=plan, sums=torch.empty(1), max_and_sum=torch.empty(1))
    with pytest.raises(ValueError, match=r"kv_cache: .* on cpu"):
        mla_attention_partial(inputs.query, inputs.kv_cache, inputs.block_table, inputs.seq_lens, partial)


def test_a_query_outside_a_gpu_is_refused() -> None:
    inputs = query_inputs(QUERY_CASES[0], torch.bfloat16, "cpu")
    weights = QueryWeights(
        q_a_norm=inputs.q_a_norm,
        kv_a_norm=inputs.kv_a_norm,
        w_q_b=inputs.w_q_b,
        w_uk=inputs.w_kv_b.unflatten(0, (-1, 256))[:, :128],
    )
    with pytest.raises(ValueError, match="on cpu"):
        mla_query(inputs.projected, weights, inputs.kv_cache, inputs.slot_mapping)


def test_more_rows_than_the_kernels_serve_are_refused() -> None:
    with pytest.raises(ValueError, match="rows: got 513"):
        dcp_merge(torch.empty(1, 513, 1, 512), torch.empty(1, 513, 1))


def test_more_shards_than_a_warp_has_lanes_are_refused() -> None:
    with pytest.raises(ValueError, match="shards: got 33"):
        dcp_merge(torch.empty(33, 1, 1, 512), torch.empty(33, 1, 1))


def test_rows_that_are_no_multiple_of_the_requests_are_refused() -> None:
    latent, lens = torch.empty(5, 12, 512), torch.ones(2, dtype=torch.int32)
    with pytest.raises(ValueError, match="on cpu"):
        mla_value(latent, torch.empty(12, 128, 512), torch.empty(5, 1536), lens)


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.name) for c in ATTENTION_CASES if sum(c.lengths) < 9000]
)
def test_attention_cases_hold_nan_wherever_no_request_has_a_row(case) -> None:
    if case.pages_before > 100:
        pytest.skip("8 GB")
    inputs = attention_inputs(case, torch.bfloat16, "cpu")
    finite = (~inputs.kv_cache.isnan().any(dim=-1)).sum().item()
    assert finite == sum(case.lengths)
