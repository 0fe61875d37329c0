"""vLLM 0.33.0's own MLA decode kernels on our tensors, as its layer and backends call them: baselines.

Metadata that vLLM computes once a step, for all layers, is computed outside the returned calls.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specialized_path.kernels.mla.launch import QueryWeights

Q_RANK, KV_RANK, NOPE, ROPE = 1536, 512, 128, 64
EPS = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode:
    """A decode or verify step; every request has the same number of tokens."""

    query: Tensor
    """[B, q, H, 576]."""
    caches: list[Tensor]
    """[pages, P, 576] each; a call says which."""
    block_table: Tensor
    seq_lens: Tensor
    max_context: int
    scale: float


Attend = Callable[[int], Tensor]
"""Attention over the cache with that number: [B, q, H, 512] in BF16."""


def stock_kernels(step: Decode) -> tuple[dict[str, Attend], dict[str, str]]:
    """The kernels that import here and serve this step, by name; and the others, with why not."""
    found: dict[str, Attend] = {}
    missing: dict[str, str] = {}
    makers = {"vllm flash-attn 3": flash_attention_3, "vllm FlashMLA": flash_mla, "vllm triton": triton}
    for name, make in makers.items():
        try:
            found[name] = make(step)
        except (ImportError, NotImplementedError) as error:
            missing[name] = str(error)
    return found, missing


def flash_attention_3(step: Decode) -> Attend:
    """The backend that vLLM prefers on Hopper for a BF16 cache."""
    if step.query.dtype != torch.bfloat16:
        raise NotImplementedError("BF16 only")
    module: Any = importlib.import_module("vllm.vllm_flash_attn.flash_attn_interface")
    num_reqs, num_tokens, num_heads, _ = step.query.shape
    flat = step.query.flatten(0, 1)
    starts = torch.arange(num_reqs + 1, dtype=torch.int32, device=flat.device) * num_tokens
    metadata = module.get_scheduler_metadata(
        batch_size=num_reqs,
        max_seqlen_q=num_tokens,
        max_seqlen_k=step.max_context,
        num_heads_q=num_heads,
        num_heads_kv=1,
        headdim=64,
        cache_seqlens=step.seq_lens,
        qkv_dtype=torch.bfloat16,
        headdim_v=KV_RANK,
        page_size=step.caches[0].shape[1],
        cu_seqlens_q=starts,
        causal=True,
        num_splits=0,
    )

    def attend(copy: int) -> Tensor:
        cache = step.caches[copy].unsqueeze(-2)
        out: Tensor = module.flash_attn_varlen_func(
            q=flat[..., KV_RANK:],
            k=cache[..., KV_RANK:],
            v=cache[..., :KV_RANK],
            q_v=flat[..., :KV_RANK],
            max_seqlen_q=num_tokens,
            cu_seqlens_q=starts,
            max_seqlen_k=step.max_context,
            seqused_k=step.seq_lens,
            block_table=step.block_table,
            softmax_scale=step.scale,
            causal=True,
            fa_version=3,
            scheduler_metadata=metadata,
            num_splits=0,
        )
        return out.view(num_reqs, num_tokens, num_heads, KV_RANK)

    return attend


def flash_mla(step: Decode) -> Attend:
    """Pages of 64 only; for a BF16 and for an e4m3 cache."""
    if step.caches[0].shape[1] != 64:
        raise NotImplementedError("pages of 64 only")
    module: Any = importlib.import_module("vllm.v1.attention.ops.flashmla")
    if step.query.dtype == torch.bfloat16:
        metadata = module.get_mla_metadata()[0]

        def attend(copy: int) -> Tensor:
            cache = step.caches[copy].unsqueeze(-2)
            out: Tensor = module.flash_mla_with_kvcache(
                step.query,
                cache,
                step.block_table,
                step.seq_lens,
                KV_RANK,
                metadata,
                softmax_scale=step.scale,
                causal=True,
            )[0]
            return out

        return attend
    rows = step.query.shape[1] * step.query.shape[2]
    tiles, splits = module.get_mla_metadata_dense_fp8(step.seq_lens, rows, 1)
    one = torch.ones(1, device=step.query.device)

    def attend_fp8(copy: int) -> Tensor:
        out: Tensor = module.flash_mla_with_kvcache_fp8(
            step.query,
            step.caches[copy].unsqueeze(-2),
            step.block_table,
            step.seq_lens,
            KV_RANK,
            tiles,
            splits,
            softmax_scale=step.scale,
            causal=True,
            descale_q=one,
            descale_k=one,
        )[0]
        return out

    return attend_fp8


def triton(step: Decode) -> Attend:
    """What vLLM falls back to; an e4m3 cache is read with a BF16 query."""
    ops: Any = importlib.import_module("vllm.v1.attention.ops.triton_decode_attention")
    backend: Any = importlib.import_module("vllm.v1.attention.backends.mla.triton_mla")
    num_reqs, num_tokens, num_heads, _ = step.query.shape
    query = step.query.flatten(0, 1).to(torch.bfloat16)
    table = step.block_table.repeat_interleave(num_tokens, dim=0)
    offsets = torch.arange(1 - num_tokens, 1, device=query.device, dtype=torch.int32)
    lens = (step.seq_lens.unsqueeze(1) + offsets).flatten().clamp(min=0)
    sms = torch.cuda.get_device_properties(query.device).multi_processor_count
    splits = backend._compute_num_kv_splits(step.max_context, sms)
    logits = torch.empty(len(query), num_heads, splits, KV_RANK + 1, device=query.device)
    out = torch.empty(len(query), num_heads, KV_RANK, dtype=torch.bfloat16, device=query.device)
    lse = torch.empty(len(query), num_heads, dtype=torch.bfloat16, device=query.device)
    one = torch.ones((), device=query.device)

    def attend(copy: int) -> Tensor:
        cache = step.caches[copy].unsqueeze(2)
        ops.decode_attention_fwd(
            query,
            cache,
            cache[..., :KV_RANK],
            out,
            lse,
            table,
            lens,
            logits,
            splits,
            step.scale,
            cache.shape[1],
            k_scale=one,
            v_scale=one,
            is_mla=True,
        )
        return out.view(num_reqs, num_tokens, num_heads, KV_RANK)

    return attend


Work = Callable[[int], object]
"""One launch of everything that a step takes, with the weights of that number."""


def stock_or_reason(make: Callable[[], Work]) -> tuple[dict[str, Work], dict[str, str]]:
    """What `make` gives, under the name "vllm"; or why it cannot be imported here."""
    try:
        return {"vllm": make()}, {}
    except ImportError as error:
        return {}, {"vllm": str(error)}


def stock_query(
    projected: Tensor, weights: Sequence[QueryWeights], kv_cache: Tensor, slot_mapping: Tensor
) -> Work:
    """OC-8 behind its projection in four launches: both norms, q_b, absorption, query rows with the insert."""
    norms: Any = importlib.import_module("vllm.models.common.ops")
    product = _low_latency_product()
    tail: Any = importlib.import_module("vllm.models.kimi_k3.nvidia.ops.fused_mla_key_concat_kv_cache")
    one = torch.ones(1, device=projected.device)
    scales = {"q_scale_inv": one, "cache_scale_inv": one} if kv_cache.element_size() == 1 else {}

    def run(copy: int) -> object:
        now = weights[copy]
        q_a, kv_c, k_pe = projected[:, : Q_RANK + KV_RANK + ROPE].split([Q_RANK, KV_RANK, ROPE], dim=-1)
        q_c, kv_c = norms.fused_q_kv_rmsnorm(q_a, kv_c, now.q_a_norm, now.kv_a_norm, EPS)
        nope, rope = product(q_c, now.w_q_b).unflatten(-1, (-1, NOPE + ROPE)).split([NOPE, ROPE], dim=-1)
        absorbed = torch.bmm(nope.transpose(0, 1), now.w_uk).transpose(0, 1)
        return tail.fused_mla_decode_q_concat_kv_cache_insert(
            absorbed, rope, kv_c, k_pe, kv_cache, slot_mapping, **scales
        )

    return run


def _low_latency_product() -> Callable[[Tensor, Tensor], Tensor]:
    module: Any = importlib.import_module("vllm.models.kimi_k3.nvidia.low_latency_gemm")

    def product(x: Tensor, weight: Tensor) -> Tensor:
        found: Tensor | None = module.try_low_latency_gemm(x, weight)
        return torch.nn.functional.linear(x, weight) if found is None else found

    return product


def stock_value(latent: Tensor, w_uv: Sequence[Tensor], gate: Tensor) -> Work:
    """OC-10 in two launches: W_UV, and the gate as torch.compile fuses it."""
    layer: Any = importlib.import_module("vllm.models.kimi_k3.nvidia.mla")
    num_rows, num_heads, _ = latent.shape
    values = torch.empty(num_rows, num_heads, w_uv[0].shape[1], dtype=latent.dtype, device=latent.device)

    def run(copy: int) -> object:
        torch.bmm(latent.transpose(0, 1), w_uv[copy].transpose(1, 2), out=values.transpose(0, 1))
        return layer._gate_sigmoid_mul(values.flatten(1), gate)

    return run
