"""Layers of MLA in which every kernel reads what the one in front wrote, launched early and not."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from specialized_path.kernels.mla.launch import (
    PartialAttention,
    QueryWeights,
    allocate_partial,
    dcp_merge,
    mla_attention,
    mla_attention_partial,
    mla_query,
    mla_value,
    mla_value_dcp,
    mla_value_merged,
)
from specialized_path.kernels.mla.variants import SCHEDULES, Schedule
from specialized_path.reference import split_kv_b
from tests.specialized_path.kernels.mla.attend import NAN, scale_for
from tests.specialized_path.kernels.mla.shards import normal
from tests.specialized_path.kernels.tolerance import assert_same_bits

pytestmark = pytest.mark.gpu

LAYERS, HEADS, NUM_TOKENS, PAGE_SIZE, PAGES = 4, 18, 2, 64, 4
"""18 heads: a layer's gated values are wide enough to be the next layer's projection."""
LENGTHS = (2, 70, 256)
ROWS = len(LENGTHS) * NUM_TOKENS


@dataclass(kw_only=True)
class Step:
    """What no kernel writes."""

    projected: Tensor
    weights: QueryWeights
    w_uv: Tensor
    gate: Tensor
    block_table: Tensor
    seq_lens: Tensor
    slots: Tensor
    cached: Tensor
    """[pages, P, 576]; the step's own rows hold NaN until its query kernel has written them."""


@dataclass(kw_only=True)
class Buffers:
    """What one layer writes; all NaN at first."""

    kv_cache: Tensor
    query: Tensor
    partial: PartialAttention
    latent: Tensor
    lse: Tensor
    merged: Tensor
    out: Tensor


def make_step(dtype: torch.dtype, device: str = "cuda") -> Step:
    w_kv_b = normal(HEADS * 256, 512, seed=1, scale=512**-0.5, device=device)
    w_uk, w_uv = split_kv_b(w_kv_b, num_heads=HEADS, qk_nope_head_dim=128)
    ends = PAGES * PAGE_SIZE * torch.arange(len(LENGTHS)) + torch.tensor(LENGTHS)
    slots = (ends.unsqueeze(1) - NUM_TOKENS + torch.arange(NUM_TOKENS)).flatten()
    cached = normal(len(LENGTHS) * PAGES, PAGE_SIZE, 576, seed=2, device=device)
    cached.view(-1, 576)[slots.to(device)] = NAN
    return Step(
        projected=normal(ROWS, HEADS * 128, seed=3, device=device),
        weights=QueryWeights(
            q_a_norm=normal(1536, seed=4, device=device),
            kv_a_norm=normal(512, seed=5, device=device),
            w_q_b=normal(HEADS * 192, 1536, seed=6, scale=1536**-0.5, device=device),
            w_uk=w_uk,
        ),
        w_uv=w_uv,
        gate=normal(ROWS, HEADS * 128, seed=7, device=device),
        block_table=torch.arange(len(LENGTHS) * PAGES, dtype=torch.int32, device=device).view(-1, PAGES),
        seq_lens=torch.tensor(LENGTHS, dtype=torch.int32, device=device),
        slots=slots.to(device),
        cached=cached.to(dtype),
    )


def make_buffers(step: Step) -> Buffers:
    device = step.projected.device

    def poison(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        return torch.full(shape, NAN, device=device).to(dtype)

    partial = allocate_partial(len(LENGTHS), NUM_TOKENS, HEADS, max(LENGTHS), device)
    partial.sums.fill_(NAN)
    partial.max_and_sum.fill_(NAN)
    rows = (len(LENGTHS), NUM_TOKENS, HEADS)
    return Buffers(
        kv_cache=step.cached.clone(),
        query=poison(ROWS, HEADS, 576, dtype=step.cached.dtype),
        partial=partial,
        latent=poison(*rows, 512),
        lse=poison(*rows, dtype=torch.float32),
        merged=poison(ROWS, HEADS, 512),
        out=poison(ROWS, HEADS * 128),
    )


def run_layer(
    projected: Tensor, step: Step, b: Buffers, value: str, schedule: Schedule, use_pdl: bool
) -> Tensor:
    scale = scale_for(step.cached.dtype)
    mla_query(projected, step.weights, b.kv_cache, step.slots, scale=scale, out=b.query, use_pdl=use_pdl)
    attention = (b.query.unflatten(0, (-1, NUM_TOKENS)), b.kv_cache, step.block_table, step.seq_lens)
    how = {"scale": scale, "schedule": schedule, "use_pdl": use_pdl}
    last = {"out": b.out, "use_pdl": use_pdl}
    side = (step.w_uv, step.gate, step.seq_lens)
    if value == "of chunks":
        mla_attention_partial(*attention, b.partial, **how)
        return mla_value_merged(b.partial, *side, num_tokens=NUM_TOKENS, scale=scale, **last)
    mla_attention(*attention, partial=b.partial, out=b.latent, lse=b.lse, **how)
    latent, lse = b.latent.flatten(0, 1), b.lse.flatten(0, 1)
    if value == "of shards":
        return mla_value_dcp(latent.unsqueeze(0), lse.unsqueeze(0), *side, **last)
    if value == "of merged shards":
        latent, _ = dcp_merge(latent.unsqueeze(0), lse.unsqueeze(0), out=b.merged, use_pdl=use_pdl)
    return mla_value(latent, *side, **last)


def run_layers(step: Step, value: str, schedule: Schedule, use_pdl: bool) -> Tensor:
    layers = [make_buffers(step) for _ in range(LAYERS)]
    torch.cuda.synchronize()
    # The kernels are all in the queue before the first of them starts.
    torch.cuda._sleep(2_000_000)
    rows = step.projected
    for buffers in layers:
        rows = run_layer(rows, step, buffers, value, schedule, use_pdl)
    return rows


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("value", ["of chunks", "of latents", "of shards", "of merged shards"])
def test_an_early_launch_waits_for_the_kernel_in_front(
    value: str, schedule: Schedule, dtype: torch.dtype
) -> None:
    step = make_step(dtype)
    expected = run_layers(step, value, schedule, False)
    assert expected.isfinite().all() and expected.any()
    for _ in range(20):
        assert_same_bits(run_layers(step, value, schedule, True), expected)
