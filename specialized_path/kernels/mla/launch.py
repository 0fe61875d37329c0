"""MLA decode and verify steps on PyTorch tensors: checks what it gets, picks the variants, launches them.

H heads of this rank, q tokens a request, B requests; rows of a step are B*q, the tokens of a request in sequence.
Lengths and page tables are read on the device; they, and slot mappings, must have been written two or more launches
back. Outputs and workspaces that are None are allocated; give them inside a CUDA graph. `use_pdl` starts a kernel
before the one in front has completed. A shape, type, device or stride that is not as said raises ValueError.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specialized_path.kernels.common.checks import require, require_batch, require_rows
from specialized_path.kernels.mla.split_plan import SplitPlan, plan_splits
from specialized_path.kernels.mla.variants import (
    MAX_ROWS,
    QUERY_SPLIT_ROWS,
    CacheName,
    Schedule,
    core_row_tiles,
    core_variant,
    merge_variant,
    query_variant,
    value_variant,
)

Q_RANK, KV_RANK, NOPE, ROPE, V_DIM = 1536, 512, 128, 64, 128
ROW = KV_RANK + ROPE
_CACHE_NAMES: dict[torch.dtype, CacheName] = {torch.bfloat16: "bf16", torch.float8_e4m3fn: "fp8"}
_LOG2_E = 1.4426950408889634


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryWeights:
    """One layer's weights of the query side on one rank, BF16, on the GPU."""

    q_a_norm: Tensor
    """[1536]."""
    kv_a_norm: Tensor
    """[512]."""
    w_q_b: Tensor
    """[H*192, 1536], each head 128 nope then 64 rope."""
    w_uk: Tensor
    """[H, 128, 512], heads any multiple of 8 elements apart: a view of kv_b will do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextShard:
    """A rank's share of every request's tokens: token i lies on rank `(i // interleave) % size`."""

    rank: int = 0
    size: int = 1
    interleave: int = 1

    def __post_init__(self) -> None:
        if not (0 <= self.rank < self.size <= 32 and self.interleave >= 1):
            raise ValueError(f"context shard: got {self}, expected 0 <= rank < size <= 32, interleave >= 1")


WHOLE_CONTEXT = ContextShard()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionScale:
    """Factors of scores and values."""

    softmax: float = (NOPE + ROPE) ** -0.5
    query: float = 1.0
    """What a code of an e4m3 query means; 1 for BF16."""
    cache: float = 1.0
    """What a code of an e4m3 cache means; 1 for BF16."""

    def __post_init__(self) -> None:
        if not all(factor > 0 for factor in (self.softmax, self.query, self.cache)):
            raise ValueError(f"scales: got {self}, expected positive numbers")

    @property
    def score_log2(self) -> float:
        """From a raw product to base-2 units."""
        return self.softmax * self.query * self.cache * _LOG2_E


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialAttention:
    """What the attention core leaves for a merge, and how the step was cut."""

    plan: SplitPlan
    sums: Tensor
    """[B, max_splits, q*H, 512] FP32, unnormalised, relative to each chunk's own maximum."""
    max_and_sum: Tensor
    """[B, max_splits, q*H, 2] FP32: maximum of the raw products, sum of the exponentials."""


def allocate_partial(
    num_reqs: int, num_tokens: int, num_heads: int, max_context: int, device: torch.device
) -> PartialAttention:
    """A plan and its workspace for steps of B requests; one serves all layers of a stream in turn."""
    rows = num_tokens * num_heads
    plan = plan_splits(num_reqs, core_row_tiles(rows)[1], max_context, num_ctas=_num_sms(device))
    shape = (num_reqs, plan.max_splits, rows)
    return PartialAttention(
        plan=plan,
        sums=torch.empty(*shape, KV_RANK, device=device),
        max_and_sum=torch.empty(*shape, 2, device=device),
    )


def _num_sms(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def mla_query(
    projected: Tensor,
    weights: QueryWeights,
    kv_cache: Tensor,
    slot_mapping: Tensor,
    *,
    eps: float = 1e-5,
    scale: AttentionScale | None = None,
    out: Tensor | None = None,
    use_pdl: bool = True,
) -> Tensor:
    """OC-8 after its projection: query rows, and the step's rows into the cache.

    Args:
        projected: [B*q, >= 2112] BF16, q_a | kv_c | k_pe | ..., row stride any multiple of 8 elements.
        weights: of the layer.
        kv_cache: [pages, P, 576] BF16 or float8_e4m3fn; strides of pages and rows any multiples of 16 bytes.
        slot_mapping: [B*q] int64, `page * P + offset`; negative: nothing is written. Slots must differ.
        eps: of both norms.
        scale: of an e4m3 query and cache.
        out: [B*q, H, 576] of the cache's type.
        use_pdl: see above.
    """
    scale = scale or AttentionScale()
    num_rows, num_heads = projected.shape[0], weights.w_uk.shape[0]
    if out is None:
        out = torch.empty(num_rows, num_heads, ROW, dtype=kv_cache.dtype, device=projected.device)
    require_batch(num_rows, MAX_ROWS)
    require_rows("projected", projected, (num_rows, projected.shape[1]))
    if projected.shape[1] < Q_RANK + ROW:
        raise ValueError(f"projected columns: got {projected.shape[1]}, expected at least {Q_RANK + ROW}")
    require("q_a_norm", weights.q_a_norm, (Q_RANK,))
    require("kv_a_norm", weights.kv_a_norm, (KV_RANK,))
    require("w_q_b", weights.w_q_b, (num_heads * (NOPE + ROPE), Q_RANK))
    _require_head_weights("w_uk", weights.w_uk, num_heads, NOPE)
    require("slot_mapping", slot_mapping, (num_rows,), torch.int64)
    name = _require_cache(kv_cache)
    require("out", out, (num_rows, num_heads, ROW), kv_cache.dtype)

    from cutlass import Float32, Int32, Int64

    from specialized_path.kernels.common.host import current_stream, pointer

    page, row = _cache_strides(kv_cache)
    query_variant(name, 1 if num_rows <= QUERY_SPLIT_ROWS else 2).run(
        *(pointer(t) for t in (projected, weights.q_a_norm, weights.kv_a_norm, weights.w_q_b, weights.w_uk)),
        *(pointer(t) for t in (slot_mapping, out, kv_cache)),
        Int64(projected.stride(0)),
        Int64(weights.w_uk.stride(0)),
        Int64(page),
        Int64(row),
        Int32(kv_cache.shape[1]),
        Int32(num_rows),
        Int32(num_heads),
        Int32(max(1, _num_sms(projected.device) // (8 * num_heads))),
        Float32(eps),
        Float32(scale.query),
        Float32(scale.cache),
        Int32(use_pdl),
        current_stream(projected.device),
    )
    return out


def mla_attention_partial(
    query: Tensor,
    kv_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    partial: PartialAttention,
    *,
    scale: AttentionScale | None = None,
    shard: ContextShard = WHOLE_CONTEXT,
    schedule: Schedule = "lockstep",
    use_pdl: bool = True,
) -> None:
    """OC-9 without its merge: fills `partial` for the chunks that the lengths call for.

    Args:
        query: [B, q, H, 576] of the cache's type, contiguous; H is all heads when the context is shared out.
        kv_cache: as for `mla_query`.
        block_table: [B, pages] int32, rows any number of elements apart; entries past a length are not read.
        seq_lens: [B] int32, tokens of the whole context, new ones included; 0 for padding.
        partial: of `allocate_partial`.
        scale: of scores and values.
        shard: the tokens that lie in this rank's cache.
        schedule: of the core's warps; both compute the same, in different order of the float32 sums.
        use_pdl: see above.
    """
    scale = scale or AttentionScale()
    num_reqs, num_tokens, num_heads, _ = query.shape
    name = _require_cache(kv_cache)
    require("query", query, (num_reqs, num_tokens, num_heads, ROW), kv_cache.dtype)
    require("seq_lens", seq_lens, (num_reqs,), torch.int32)
    _require_table(block_table, num_reqs)
    _require_partial(partial, num_reqs, num_tokens * num_heads)

    from cutlass import Float32, Int32, Int64

    from specialized_path.kernels.common.host import current_stream, pointer

    m_tiles, row_tiles = core_row_tiles(num_tokens * num_heads)
    plan = partial.plan
    page, row = _cache_strides(kv_cache)
    core_variant(name, m_tiles, schedule).run(
        *(pointer(t) for t in (query, kv_cache, block_table, seq_lens, partial.sums, partial.max_and_sum)),
        *(Int32(n) for n in (num_reqs, num_heads, num_tokens, kv_cache.shape[1])),
        Int64(page),
        Int64(row),
        Int64(block_table.stride(0)),
        Float32(scale.score_log2),
        *_plan_arguments(plan, shard),
        Int32(min(plan.num_ctas, num_reqs * plan.max_splits * row_tiles)),
        Int32(use_pdl),
        current_stream(query.device),
    )


def mla_attention(
    query: Tensor,
    kv_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    *,
    partial: PartialAttention,
    scale: AttentionScale | None = None,
    shard: ContextShard = WHOLE_CONTEXT,
    schedule: Schedule = "lockstep",
    empty_lse: float = float("-inf"),
    out: Tensor | None = None,
    lse: Tensor | None = None,
    use_pdl: bool = True,
) -> tuple[Tensor, Tensor]:
    """OC-9: latents [B, q, H, 512] BF16 and base-2 LSE [B, q, H] FP32; arguments as above.

    A row that sees nothing gives zeros and `empty_lse`; give -3e38 for shards that `dcp_merge` joins.
    """
    scale = scale or AttentionScale()
    mla_attention_partial(
        query,
        kv_cache,
        block_table,
        seq_lens,
        partial,
        scale=scale,
        shard=shard,
        schedule=schedule,
        use_pdl=use_pdl,
    )
    num_reqs, num_tokens, num_heads, _ = query.shape
    rows = (num_reqs, num_tokens, num_heads)
    if out is None:
        out = torch.empty(*rows, KV_RANK, dtype=torch.bfloat16, device=query.device)
    if lse is None:
        lse = torch.empty(*rows, dtype=torch.float32, device=query.device)
    require("out", out, (*rows, KV_RANK))
    require("lse", lse, rows, torch.float32)

    from cutlass import Float32, Int32

    from specialized_path.kernels.common.host import current_stream, pointer
    from specialized_path.kernels.mla.merge import Cut, MergeScales, MergeSizes

    merge_variant("chunks").run(
        *(pointer(t) for t in (partial.sums, partial.max_and_sum, seq_lens, out, lse)),
        MergeSizes(*(Int32(n) for n in (num_reqs * num_tokens, num_heads, num_tokens, 1))),
        MergeScales(Float32(scale.score_log2), Float32(scale.cache)),
        Float32(empty_lse),
        Cut(*_plan_arguments(partial.plan, shard)),
        Int32(use_pdl),
        current_stream(query.device),
    )
    return out, lse


def dcp_merge(
    latents: Tensor,
    lses: Tensor,
    *,
    empty_lse: float = -3e38,
    out: Tensor | None = None,
    lse: Tensor | None = None,
    use_pdl: bool = True,
) -> tuple[Tensor, Tensor]:
    """OC-11: attention over all shards, in rank order; `empty_lse` where every shard is empty.

    Args:
        latents: [T, rows, H, 512] BF16, T at most 32.
        lses: [T, rows, H] FP32, base 2; not finite or below -1.5e38 marks an empty shard.
        empty_lse: LSE where every shard is empty.
        out: [rows, H, 512].
        lse: [rows, H].
        use_pdl: see above.
    """
    size, num_rows, num_heads, _ = latents.shape
    _require_shards(latents, lses)
    if out is None:
        out = torch.empty_like(latents[0])
    if lse is None:
        lse = torch.empty_like(lses[0])
    require("out", out, (num_rows, num_heads, KV_RANK))
    require("lse", lse, (num_rows, num_heads), torch.float32)

    from cutlass import Float32, Int32

    from specialized_path.kernels.common.host import current_stream, pointer
    from specialized_path.kernels.mla.merge import Cut, MergeScales, MergeSizes

    merge_variant("shards").run(
        *(pointer(t) for t in (latents, lses, lses, out, lse)),
        MergeSizes(*(Int32(n) for n in (num_rows, num_heads, 1, size))),
        MergeScales(Float32(1.0), Float32(1.0)),
        Float32(empty_lse),
        Cut(*(Int32(n) for n in _NO_PLAN)),
        Int32(use_pdl),
        current_stream(latents.device),
    )
    return out, lse


def mla_value(
    latent: Tensor,
    w_uv: Tensor,
    gate: Tensor,
    seq_lens: Tensor,
    *,
    out: Tensor | None = None,
    use_pdl: bool = True,
) -> Tensor:
    """OC-10: [B*q, H*128] BF16.

    Args:
        latent: [B*q, H, 512] BF16.
        w_uv: [H, 128, 512] BF16, heads any multiple of 8 elements apart.
        gate: [B*q, H*128] BF16, row stride any multiple of 8 elements: a slice of the projection will do.
        seq_lens: [B] int32; rows of empty requests give zero whatever their gate.
        out: as returned.
        use_pdl: see above.
    """
    num_rows, num_heads, _ = latent.shape
    require("latent", latent, (num_rows, num_heads, KV_RANK))
    num_tokens = num_rows // max(1, seq_lens.numel())
    return _value("latent", (latent, latent), w_uv, gate, seq_lens, (num_rows, num_heads, num_tokens, 1),
                  (1.0, 1.0), _NO_PLAN, out, use_pdl)  # fmt: skip


def mla_value_merged(
    partial: PartialAttention,
    w_uv: Tensor,
    gate: Tensor,
    seq_lens: Tensor,
    *,
    num_tokens: int,
    scale: AttentionScale | None = None,
    out: Tensor | None = None,
    use_pdl: bool = True,
) -> Tensor:
    """The merge of OC-9 and OC-10 in one launch, after `mla_attention_partial` with the same scale; else as above."""
    scale = scale or AttentionScale()
    num_heads = w_uv.shape[0]
    num_rows = seq_lens.numel() * num_tokens
    _require_partial(partial, seq_lens.numel(), num_tokens * num_heads)
    return _value("chunks", (partial.sums, partial.max_and_sum), w_uv, gate, seq_lens,
                  (num_rows, num_heads, num_tokens, 1), (scale.score_log2, scale.cache),
                  _plan_numbers(partial.plan, WHOLE_CONTEXT), out, use_pdl)  # fmt: skip


def mla_value_dcp(
    latents: Tensor,
    lses: Tensor,
    w_uv: Tensor,
    gate: Tensor,
    seq_lens: Tensor,
    *,
    out: Tensor | None = None,
    use_pdl: bool = True,
) -> Tensor:
    """OC-11 and OC-10 in one launch; shards as for `dcp_merge`, else as for `mla_value`."""
    size, num_rows, num_heads, _ = latents.shape
    _require_shards(latents, lses)
    num_tokens = num_rows // max(1, seq_lens.numel())
    return _value("shards", (latents, lses), w_uv, gate, seq_lens, (num_rows, num_heads, num_tokens, size),
                  (1.0, 1.0), _NO_PLAN, out, use_pdl)  # fmt: skip


_NO_PLAN = (1, 64, 1, 0, 1, 1)


def _value(
    source: str,
    parts: tuple[Tensor, Tensor],
    w_uv: Tensor,
    gate: Tensor,
    seq_lens: Tensor,
    sizes: tuple[int, int, int, int],
    scales: tuple[float, float],
    plan: tuple[int, ...],
    out: Tensor | None,
    use_pdl: bool,
) -> Tensor:
    num_rows, num_heads, num_tokens, _ = sizes
    require_batch(num_rows, MAX_ROWS)
    if num_rows != seq_lens.numel() * num_tokens:
        raise ValueError(f"seq_lens: got {seq_lens.numel()} requests, expected a divisor of {num_rows} rows")
    require("seq_lens", seq_lens, (seq_lens.numel(),), torch.int32)
    _require_head_weights("w_uv", w_uv, num_heads, V_DIM)
    require_rows("gate", gate, (num_rows, num_heads * V_DIM))
    if out is None:
        out = torch.empty(num_rows, num_heads * V_DIM, dtype=torch.bfloat16, device=gate.device)
    require("out", out, (num_rows, num_heads * V_DIM))

    from cutlass import Float32, Int32, Int64

    from specialized_path.kernels.common.host import current_stream, pointer
    from specialized_path.kernels.mla.merge import Cut, MergeScales, MergeSizes

    variant = {name: value_variant(name) for name in ("latent", "chunks", "shards")}[source]
    variant.run(
        *(pointer(t) for t in (*parts, w_uv, gate, seq_lens, out)),
        Int64(w_uv.stride(0)),
        Int64(gate.stride(0)),
        MergeSizes(*(Int32(n) for n in sizes)),
        MergeScales(*(Float32(s) for s in scales)),
        Cut(*(Int32(n) for n in plan)),
        Int32(use_pdl),
        current_stream(gate.device),
    )
    return out


def _plan_numbers(plan: SplitPlan, shard: ContextShard) -> tuple[int, ...]:
    cut = (plan.target_splits, plan.longest_chunk, plan.max_splits)
    return (*cut, shard.rank, shard.size, shard.interleave)


def _plan_arguments(plan: SplitPlan, shard: ContextShard) -> list[object]:
    from cutlass import Int32

    return [Int32(n) for n in _plan_numbers(plan, shard)]


def _cache_strides(kv_cache: Tensor) -> tuple[int, int]:
    """Bytes between pages and between rows."""
    return kv_cache.stride(0) * kv_cache.element_size(), kv_cache.stride(1) * kv_cache.element_size()


def _require_cache(kv_cache: Tensor) -> CacheName:
    if (
        kv_cache.dtype not in _CACHE_NAMES
        or kv_cache.dim() != 3
        or kv_cache.shape[2] != ROW
        or not kv_cache.is_cuda
    ):
        raise ValueError(
            f"kv_cache: got {tuple(kv_cache.shape)} {kv_cache.dtype} on {kv_cache.device.type}, "
            f"expected [pages, P, {ROW}] bfloat16 or float8_e4m3fn on cuda"
        )
    if kv_cache.stride(2) != 1 or any(stride % 16 for stride in _cache_strides(kv_cache)):
        raise ValueError(
            f"kv_cache: got strides {kv_cache.stride()}, expected rows 16-byte aligned and contiguous"
        )
    return _CACHE_NAMES[kv_cache.dtype]


def _require_table(block_table: Tensor, num_reqs: int) -> None:
    shape = tuple(block_table.shape)
    if (
        block_table.dim() != 2
        or shape[0] != num_reqs
        or block_table.dtype != torch.int32
        or not block_table.is_cuda
    ):
        raise ValueError(
            f"block_table: got {shape} {block_table.dtype} on {block_table.device.type}, expected [{num_reqs}, pages] "
            "int32 on cuda"
        )
    if block_table.stride(1) != 1:
        raise ValueError(f"block_table: got strides {block_table.stride()}, expected 1 in the last dimension")


def _require_partial(partial: PartialAttention, num_reqs: int, rows: int) -> None:
    shape = (num_reqs, partial.plan.max_splits, rows)
    require("partial.sums", partial.sums, (*shape, KV_RANK), torch.float32)
    require("partial.max_and_sum", partial.max_and_sum, (*shape, 2), torch.float32)


def _require_shards(latents: Tensor, lses: Tensor) -> None:
    size, num_rows, num_heads, _ = latents.shape
    require_batch(num_rows, MAX_ROWS)
    if not 1 <= size <= 32:
        raise ValueError(f"shards: got {size}, expected 1 ... 32")
    require("latents", latents, (size, num_rows, num_heads, KV_RANK))
    require("lses", lses, (size, num_rows, num_heads), torch.float32)


def _require_head_weights(name: str, weights: Tensor, num_heads: int, rows: int) -> None:
    require_rows(name, weights, (num_heads, rows, KV_RANK))
    if weights.stride(1) != KV_RANK:
        raise ValueError(f"{name}: got strides {weights.stride()}, expected {KV_RANK} between rows")
