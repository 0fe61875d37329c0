"""What the MLA kernels are timed on: attention over paged contexts, the query side, and the value side."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from specialized_path.kernels.benchmark import BenchmarkCell, PreparedCell, num_copies
from specialized_path.kernels.mla.cases import KV_RANK, NOPE, Q_RANK, ROPE, ROW, V_DIM
from specialized_path.kernels.mla.launch import (
    QueryWeights,
    allocate_partial,
    mla_attention,
    mla_query,
    mla_value,
)
from specialized_path.kernels.mla.stock import (
    Decode,
    stock_kernels,
    stock_or_reason,
    stock_query,
    stock_value,
)
from specialized_path.kernels.mla.variants import CacheName, Schedule

HEADS = {"tp8": 12, "tp16": 6}
PAGE = 64
"""The one page size that all of vLLM's kernels take."""
EPS = 1e-5
DTYPES: Mapping[CacheName, torch.dtype] = {"bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}
CONTEXTS = ((1, 1024), (1, 8192), (1, 131072), (8, 8192), (64, 4096))
"""Requests and tokens of each."""
VERIFY = ((1, 131072, 4), (1, 131072, 8), (8, 8192, 4))
"""Requests, tokens of each, new tokens of each."""
ROWS = (1, 8, 64)


def cells() -> tuple[BenchmarkCell, ...]:
    """All cells of the family."""
    shapes = [(*context, 1) for context in CONTEXTS] + list(VERIFY)
    return (
        *(_attention(*c) for c in itertools.product(HEADS, DTYPES, shapes)),
        *(_query(*c) for c in itertools.product(HEADS, DTYPES, ROWS)),
        *(_value(*c) for c in itertools.product(HEADS, ROWS)),
    )


def _attention(rank_shape: str, name: CacheName, shape: tuple[int, int, int]) -> BenchmarkCell:
    num_reqs, context, num_tokens = shape
    heads, size = HEADS[rank_shape], DTYPES[name].itemsize
    rows = num_reqs * num_tokens * heads
    return BenchmarkCell(
        name=f"mla attention {rank_shape} {name} requests={num_reqs} context={context} tokens={num_tokens}",
        family="mla",
        operator="OC-9",
        rank_shape=rank_shape,
        batch=num_reqs,
        bytes_moved=num_reqs * context * ROW * size + rows * (ROW * size + 2 * KV_RANK + 4),
        prepare=partial(_prepare_attention, heads, DTYPES[name], *shape),
    )


def attention_step(heads: int, dtype: torch.dtype, num_reqs: int, context: int, num_tokens: int) -> Decode:
    """A step over scattered pages, on the current GPU, with caches enough that none stays in L2."""
    pages = -(-context // PAGE)
    copies = num_copies(num_reqs * context * ROW * dtype.itemsize, 8)
    shape = (num_reqs * pages, PAGE, ROW)
    return Decode(
        query=torch.randn(num_reqs, num_tokens, heads, ROW, device="cuda").to(dtype),
        caches=[torch.randn(shape, device="cuda", dtype=torch.bfloat16).to(dtype) for _ in range(copies)],
        block_table=torch.randperm(num_reqs * pages, device="cuda").int().view(num_reqs, pages),
        seq_lens=torch.full((num_reqs,), context, device="cuda").int(),
        max_context=context,
        scale=(NOPE + ROPE) ** -0.5,
    )


def _prepare_attention(
    heads: int, dtype: torch.dtype, num_reqs: int, context: int, num_tokens: int
) -> PreparedCell:
    step = attention_step(heads, dtype, num_reqs, context, num_tokens)
    workspace = allocate_partial(num_reqs, num_tokens, heads, context, step.query.device)
    rows = step.query.shape[:3]
    out = torch.empty(*rows, KV_RANK, dtype=torch.bfloat16, device="cuda")
    lse = torch.empty(rows, device="cuda")

    def attend(schedule: Schedule, copy: int) -> object:
        tables = (step.block_table, step.seq_lens)
        return mla_attention(
            step.query,
            step.caches[copy],
            *tables,
            partial=workspace,
            out=out,
            lse=lse,
            schedule=schedule,
        )

    stock, missing = stock_kernels(step)
    others: dict[str, Callable[[int], object]] = {
        "ours, roles": partial(attend, "roles"),
        "torch": partial(_torch_attention, step),
        **stock,
    }
    return _prepared(len(step.caches), partial(attend, "lockstep"), others, missing)


def _torch_attention(step: Decode, copy: int) -> Tensor:
    """Gather, two products and a softmax; masks the new tokens' triangle."""
    rows = step.caches[copy].view(torch.uint8)[step.block_table.long()].view(step.query.dtype)
    rows = rows.flatten(1, 2).to(torch.bfloat16)
    query = step.query.to(torch.bfloat16)
    num_tokens = query.shape[1]
    scores = torch.matmul(query.flatten(1, 2), rows.transpose(1, 2)).unflatten(1, query.shape[1:3])
    mask = torch.ones(num_tokens, num_tokens, dtype=torch.bool, device="cuda").triu(1)
    scores[..., -num_tokens:].masked_fill_(mask[:, None], -torch.inf)
    probs = torch.softmax(scores * step.scale, dim=-1)
    return torch.matmul(probs.flatten(1, 2), rows[..., :KV_RANK])


def _query(rank_shape: str, name: CacheName, num_rows: int) -> BenchmarkCell:
    heads, size = HEADS[rank_shape], DTYPES[name].itemsize
    weights = 2 * (heads * (NOPE + ROPE) * Q_RANK + heads * NOPE * KV_RANK)
    return BenchmarkCell(
        name=f"mla query {rank_shape} {name} rows={num_rows}",
        family="mla",
        operator="OC-8",
        rank_shape=rank_shape,
        batch=num_rows,
        bytes_moved=weights + num_rows * (2 * (Q_RANK + ROW) + size * ROW * (heads + 1)),
        prepare=partial(_prepare_query, heads, DTYPES[name], num_rows),
    )


def _prepare_query(heads: int, dtype: torch.dtype, num_rows: int) -> PreparedCell:
    copies = num_copies(2 * heads * ((NOPE + ROPE) * Q_RANK + NOPE * KV_RANK))
    projected = _normal(num_rows, Q_RANK + ROW + heads * V_DIM)
    weights = [
        QueryWeights(
            q_a_norm=_normal(Q_RANK),
            kv_a_norm=_normal(KV_RANK),
            w_q_b=_normal(heads * (NOPE + ROPE), Q_RANK),
            w_uk=_normal(heads, NOPE, KV_RANK),
        )
        for _ in range(copies)
    ]
    cache = torch.zeros(num_rows, PAGE, ROW, device="cuda").to(dtype)
    slots = torch.randperm(num_rows * PAGE, device="cuda")[:num_rows]
    out = torch.empty(num_rows, heads, ROW, dtype=dtype, device="cuda")

    def ours(copy: int) -> object:
        return mla_query(projected, weights[copy], cache, slots, out=out)

    def theirs(copy: int) -> object:
        return _torch_query(projected, weights[copy], cache, slots, out)

    found, missing = stock_or_reason(lambda: stock_query(projected, weights, cache, slots))
    return _prepared(copies, ours, {"torch": theirs, **found}, missing)


def _torch_query(
    projected: Tensor, weights: QueryWeights, cache: Tensor, slots: Tensor, out: Tensor
) -> Tensor:
    """The calls of a model without a fused kernel: two norms, two products, the insert."""
    q_a, kv_c, k_pe = projected[:, : Q_RANK + ROW].split([Q_RANK, KV_RANK, ROPE], dim=-1)
    q_c = torch.nn.functional.rms_norm(q_a, (Q_RANK,), weights.q_a_norm, EPS)
    kv = torch.nn.functional.rms_norm(kv_c, (KV_RANK,), weights.kv_a_norm, EPS)
    q = torch.nn.functional.linear(q_c, weights.w_q_b).unflatten(-1, (-1, NOPE + ROPE))
    nope, rope = q.split([NOPE, ROPE], dim=-1)
    out[..., :KV_RANK].copy_(torch.bmm(nope.transpose(0, 1), weights.w_uk).transpose(0, 1))
    out[..., KV_RANK:].copy_(rope)
    bits = torch.uint8 if cache.element_size() == 1 else torch.int16
    row = torch.cat([kv, k_pe], dim=-1).to(cache.dtype)
    cache.view(bits).flatten(0, 1).index_copy_(0, slots, row.view(bits))
    return out


def _value(rank_shape: str, num_rows: int) -> BenchmarkCell:
    heads = HEADS[rank_shape]
    return BenchmarkCell(
        name=f"mla value {rank_shape} rows={num_rows}",
        family="mla",
        operator="OC-10",
        rank_shape=rank_shape,
        batch=num_rows,
        bytes_moved=2 * (heads * V_DIM * KV_RANK + num_rows * heads * (KV_RANK + 2 * V_DIM)),
        prepare=partial(_prepare_value, heads, num_rows),
    )


def _prepare_value(heads: int, num_rows: int) -> PreparedCell:
    copies = num_copies(2 * heads * V_DIM * KV_RANK)
    latent, gate = _normal(num_rows, heads, KV_RANK), _normal(num_rows, heads * V_DIM)
    weights = [_normal(heads, V_DIM, KV_RANK) for _ in range(copies)]
    lens = torch.ones(num_rows, dtype=torch.int32, device="cuda")
    out = torch.empty(num_rows, heads * V_DIM, dtype=torch.bfloat16, device="cuda")

    def ours(copy: int) -> object:
        return mla_value(latent, weights[copy], gate, lens, out=out)

    def theirs(copy: int) -> object:
        values = torch.bmm(latent.transpose(0, 1), weights[copy].transpose(1, 2)).transpose(0, 1)
        return torch.mul(values.reshape(num_rows, -1), torch.sigmoid(gate), out=out)

    found, missing = stock_or_reason(lambda: stock_value(latent, weights, gate))
    return _prepared(copies, ours, {"torch": theirs, **found}, missing)


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, device="cuda").bfloat16()


@dataclass(frozen=True, slots=True)
class _Call:
    """Work on one copy."""

    work: Callable[[int], Any]
    copy: int

    def __call__(self) -> object:
        return self.work(self.copy)


def _prepared(
    copies: int,
    candidate: Callable[[int], object],
    baselines: Mapping[str, Callable[[int], object]],
    missing: Mapping[str, str],
) -> PreparedCell:
    """The candidate run once; its and the others' work as calls on each copy."""
    candidate(0)
    torch.cuda.synchronize()
    return PreparedCell(
        candidate=[_Call(candidate, i) for i in range(copies)],
        baselines={name: [_Call(work, i) for i in range(copies)] for name, work in baselines.items()},
        missing=missing,
    )
