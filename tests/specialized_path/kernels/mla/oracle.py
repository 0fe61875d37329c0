"""The oracle on a case's inputs in float64, and how far float32 sums may stray from it."""

import torch
from torch import Tensor

from specialized_path.kernels.mla.cases import KV_RANK, NOPE, Q_RANK, ROPE, ROW, AttentionInputs, QueryInputs
from specialized_path.kernels.mla.launch import AttentionScale
from specialized_path.reference import (
    dcp_merge,
    linear,
    mla_attention_visible,
    rms_norm,
    round_to,
    split_kv_b,
    visible_lens,
)
from tests.specialized_path.kernels.tolerance import ACCUMULATION

F64 = torch.float64
TWO_PARTS = 4.0
"""Error of a probability that is the sum of two BF16 numbers, 2^-18 of itself, in units of 2^-20."""


def expected_query(inputs: QueryInputs) -> tuple[Tensor, Tensor, Tensor]:
    """Query rows [B, H, 576] in float64 with the contract's inner roundings, and what float32 sums may change.

    That is the magnitudes of the terms of the last sum, and how far an element moves when inner roundings next to a tie
    fall the other way: those of the normed latent, which shift what a near-zero element of the query is by many of its
    ulp, and those of the query, which shift the absorbed elements.
    """
    heads, head = inputs.w_kv_b.shape[0] // (2 * NOPE), NOPE + ROPE
    w_uk, _ = split_kv_b(inputs.w_kv_b.double(), num_heads=heads, qk_nope_head_dim=NOPE)
    normed = rms_norm(inputs.projected[:, :Q_RANK], inputs.q_a_norm, acc_dtype=F64)
    q_c = round_to(normed, torch.bfloat16)
    magnitudes = inputs.w_q_b.double().abs().T
    strayed = _strayed(normed, ACCUMULATION * normed.abs()) @ magnitudes
    error = (strayed + ACCUMULATION * (q_c.double().abs() @ magnitudes)).unflatten(-1, (heads, head))
    exact = linear(q_c, inputs.w_q_b, acc_dtype=F64, out_dtype=F64).unflatten(-1, (heads, head))
    nope, rope = round_to(exact, torch.bfloat16).double().split([NOPE, ROPE], dim=-1)
    nope_strayed, rope_strayed = _strayed(exact, error).split([NOPE, ROPE], dim=-1)
    absorbed, terms, flips = (
        torch.einsum("bhn,hnc->bhc", q, w)
        for q, w in ((nope, w_uk), (nope.abs(), w_uk.abs()), (nope_strayed, w_uk.abs()))
    )
    return (
        torch.cat([absorbed, rope], dim=-1),
        torch.cat([terms, torch.zeros_like(rope)], dim=-1),
        torch.cat([flips, rope_strayed], dim=-1),
    )


def _strayed(exact: Tensor, error: Tensor) -> Tensor:
    """How far the BF16 number of a value that is off by at most `error` lies from that of `exact`."""
    here = round_to(exact, torch.bfloat16).double()
    ends = (round_to(exact + off, torch.bfloat16).double() for off in (error, -error))
    return torch.maximum(*((end - here).abs() for end in ends))


def expected_cache(inputs: QueryInputs) -> Tensor:
    """The cache rows of all steps' rows [B, 576] BF16, rounded as the contract says."""
    kv_c, k_pe = inputs.projected[:, Q_RANK : Q_RANK + ROW].split([KV_RANK, ROPE], dim=-1)
    kv = round_to(rms_norm(kv_c, inputs.kv_a_norm, acc_dtype=F64), torch.bfloat16)
    return torch.cat([kv, k_pe], dim=-1)


def expected_merge(latents: Tensor, lses: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Merged latents and LSE in float64, and the magnitude of the terms.

    However large the LSE are, a weight depends on their differences, which float32 has as exactly as they matter: an
    error of 2^-24 d in a difference d changes 2^-d by less than 2^-24.
    """
    latent, lse = dcp_merge(latents.double(), lses, acc_dtype=F64)
    return latent, lse, dcp_merge(latents.double().abs(), lses, acc_dtype=F64)[0]


def expected_attention(
    inputs: AttentionInputs, scale: AttentionScale, *, exact_scores: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Latents and LSE in float64, unrounded, and the magnitude that float32 sums may be wrong in proportion to.

    A score that is off by d scales its probability by 1 + d, and scores are sums of products themselves: to the
    sum of the terms p |c| comes twice that sum times the largest sum of |z c| of the row. Where all scores are exact
    in float32, only the scaling of the distance to the row's largest score rounds, and the probability itself.
    """
    query, cache = inputs.query, inputs.kv_cache
    visible = visible_lens(inputs.seq_lens, query.shape[1])
    options = {
        "kv_lora_rank": KV_RANK,
        "scale": scale.softmax,
        "q_scale": scale.query,
        "k_scale": scale.cache,
    }
    latents, lses, terms = [], [], []
    for b in range(query.shape[0]):
        rows, seen = query[b : b + 1].double(), visible[b : b + 1]
        pages = _compact(cache, inputs.block_table[b], int(seen.max()))
        table = torch.arange(pages.shape[0], device=query.device).unsqueeze(0)
        latent, lse = mla_attention_visible(
            rows, pages, table, seen, out_dtype=torch.float64, acc_dtype=torch.float64, **options
        )
        latents.append(latent)
        lses.append(lse)
        terms.append(_terms(rows, pages, seen, scale, exact_scores))
    return torch.cat(latents), torch.cat(lses), torch.cat(terms)


def _compact(cache: Tensor, table: Tensor, length: int) -> Tensor:
    """The pages that the first `length` tokens lie in, in sequence, in float64; one page for none."""
    pages = table[: max(1, -(-length // cache.shape[1]))].long()
    return take(cache, pages if length else torch.zeros_like(pages)).double()


def _terms(
    query: Tensor, compact: Tensor, visible: Tensor, scale: AttentionScale, exact_scores: bool
) -> Tensor:
    result = torch.zeros(*query.shape[:3], KV_RANK, dtype=F64, device=query.device)
    factor = scale.softmax * scale.query * scale.cache
    for t in range(query.shape[1]):
        rows = compact.flatten(0, 1)[: int(visible[0, t])]
        if not len(rows):
            continue
        scores = query[0, t] @ rows.T * factor
        if exact_scores:
            wrong = 1 + TWO_PARTS + scores.amax(dim=-1, keepdim=True) - scores
        else:
            wrong = 1 + 2 * (query[0, t].abs() @ rows.abs().T * factor).amax(dim=-1, keepdim=True)
        result[0, t] = (torch.softmax(scores, dim=-1) * wrong) @ rows[:, :KV_RANK].abs() * scale.cache
    return result


def take(tensor: Tensor, index: Tensor | tuple[Tensor, ...]) -> Tensor:
    """Rows by index, by their bits: not every PyTorch indexes float8 on a GPU."""
    bits = torch.uint8 if tensor.element_size() == 1 else torch.int16
    return tensor.view(bits)[index].view(tensor.dtype)
