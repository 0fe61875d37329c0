"""What the MLA tests allow: float32 arithmetic in the contracts' roundings, and no result that is 1 % too large."""

import pytest
import torch
from torch import Tensor

from specialized_path.kernels.mla.cases import (
    ATTENTION_CASES,
    KV_RANK,
    NOPE,
    Q_RANK,
    QUERY_CASES,
    ROW,
    AttentionInputs,
    QueryInputs,
    attention_inputs,
    query_inputs,
)
from specialized_path.reference import (
    absorbed_query,
    dcp_merge,
    quantize_e4m3,
    rms_norm,
    split_kv_b,
    visible_lens,
)
from tests.specialized_path.kernels.mla.attend import QUERY_SCALE, scale_for
from tests.specialized_path.kernels.mla.oracle import (
    expected_attention,
    expected_cache,
    expected_merge,
    expected_query,
)
from tests.specialized_path.kernels.mla.shards import LSES, shards
from tests.specialized_path.kernels.tolerance import T2, assert_close

HUGE = next(case for case in ATTENTION_CASES if case.name == "scores of 3e4, verify")
QUERIES = {case.name: case for case in QUERY_CASES}


def assert_refused_where_larger(expected: Tensor, **allowed: Tensor) -> None:
    with pytest.raises(AssertionError, match=r"ulp|relative L2"):
        assert_close((expected * 1.01).bfloat16(), expected, T2, **allowed)


def emulated_attention(inputs: AttentionInputs) -> Tensor:
    """In float32: exact scores, probabilities of two BF16 parts, a chunk of 512 tokens at a time, then their merge."""
    visible, scale = visible_lens(inputs.seq_lens, HUGE.num_tokens), scale_for(torch.bfloat16).score_log2
    out = torch.empty(*inputs.query.shape[:3], KV_RANK, dtype=torch.bfloat16)
    for b in range(len(HUGE.lengths)):
        pages = inputs.block_table[b, : -(-HUGE.lengths[b] // HUGE.page_size)].long()
        cache = inputs.kv_cache[pages].reshape(-1, ROW)[: HUGE.lengths[b]].float()
        for t in range(HUGE.num_tokens):
            rows = cache[: int(visible[b, t])].split(512)
            scores = [inputs.query[b, t].float() @ part.T for part in rows]
            peaks = torch.stack([s.amax(-1) for s in scores])
            weights = torch.exp2((peaks - peaks.amax(0)) * scale).unsqueeze(-1)
            probs = [
                torch.exp2((s - peak.unsqueeze(-1)) * scale) for s, peak in zip(scores, peaks, strict=True)
            ]
            total = sum(w * p.sum(-1, keepdim=True) for w, p in zip(weights, probs, strict=True))
            high = [p.bfloat16().float() for p in probs]
            parts = [h + (p - h).bfloat16().float() for p, h in zip(probs, high, strict=True)]
            terms = zip(weights, parts, rows, strict=True)
            out[b, t] = sum(w / total * (p @ c[:, :KV_RANK]) for w, p, c in terms).bfloat16()
    return out


def test_attention_over_exact_scores_may_not_be_a_hundredth_too_large() -> None:
    inputs = attention_inputs(HUGE, torch.bfloat16, "cpu")
    expected, _, terms = expected_attention(inputs, scale_for(torch.bfloat16), exact_scores=True)
    assert_close(emulated_attention(inputs), expected, T2, term_magnitudes=terms)
    assert_refused_where_larger(expected, term_magnitudes=terms)


@pytest.mark.parametrize("name", [name for name in LSES if name != "no rank"])
def test_merged_latents_may_not_be_a_hundredth_too_large(name: str) -> None:
    latents, lses = shards(LSES[name], device="cpu")
    expected, _, terms = expected_merge(latents, lses)
    assert_close(dcp_merge(latents, lses)[0], expected, T2, term_magnitudes=terms)
    assert_refused_where_larger(expected, term_magnitudes=terms)


def emulated_query(inputs: QueryInputs, q_c: Tensor) -> Tensor:
    """The query rows of a normed latent, in float32."""
    w_uk, _ = split_kv_b(inputs.w_kv_b, num_heads=12, qk_nope_head_dim=NOPE)
    return torch.cat(absorbed_query(q_c, inputs.w_q_b, w_uk), dim=-1)


@pytest.mark.parametrize("name", ["8 rows", "33 rows", "saturation", "tiny rows"])
def test_query_rows_may_not_be_a_hundredth_too_large(name: str) -> None:
    inputs = query_inputs(QUERIES[name], torch.bfloat16, "cpu")
    expected, terms, flips = expected_query(inputs)
    q_c = rms_norm(inputs.projected[:, :Q_RANK], inputs.q_a_norm).bfloat16()
    query = emulated_query(inputs, q_c)
    assert_close(query, expected, T2, term_magnitudes=terms, inner_flips=flips)
    assert_refused_where_larger(expected, term_magnitudes=terms, inner_flips=flips)


def test_query_rows_may_have_a_latent_rounded_the_other_way_next_to_a_tie() -> None:
    inputs = query_inputs(QUERIES["33 rows"], torch.bfloat16, "cpu")
    expected, terms, flips = expected_query(inputs)
    normed = rms_norm(inputs.projected[:, :Q_RANK], inputs.q_a_norm, acc_dtype=torch.float64)
    query = emulated_query(inputs, (normed * (1 + 2.0**-22)).bfloat16())
    assert_close(query, expected, T2, term_magnitudes=terms, inner_flips=flips)


def test_query_rows_may_not_have_their_latent_cut_off_instead_of_rounded() -> None:
    inputs = query_inputs(QUERIES["8 rows"], torch.bfloat16, "cpu")
    expected, terms, flips = expected_query(inputs)
    normed = rms_norm(inputs.projected[:, :Q_RANK], inputs.q_a_norm)
    cut = (normed.view(torch.int32) & -(2**16)).view(torch.float32).bfloat16()
    with pytest.raises(AssertionError, match="ulp"):
        assert_close(emulated_query(inputs, cut), expected, T2, term_magnitudes=terms, inner_flips=flips)


def test_the_saturating_case_has_codes_at_and_below_the_limit_in_every_part_of_its_rows() -> None:
    inputs = query_inputs(QUERIES["saturation"], torch.float8_e4m3fn, "cpu")
    query = quantize_e4m3(expected_query(inputs)[0], scale=QUERY_SCALE.query).float()
    row = quantize_e4m3(expected_cache(inputs), scale=QUERY_SCALE.cache).float()
    for codes in (query[..., :KV_RANK], query[..., KV_RANK:], row[..., :KV_RANK], row[..., KV_RANK:]):
        assert 0.05 < (codes.abs() == 448).double().mean() < 0.95
