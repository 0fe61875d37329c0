"""OC-8 after its projection, on the GPU, against the oracle in float64."""

import pytest
import torch
from torch import Tensor

from specialized_path.kernels.mla.cases import (
    KV_RANK,
    NOPE,
    QUERY_CASES,
    ROW,
    QueryCase,
    QueryInputs,
    query_inputs,
)
from specialized_path.kernels.mla.launch import QueryWeights, mla_query
from specialized_path.reference import quantize_e4m3, split_kv_b
from tests.specialized_path.kernels.mla.attend import QUERY_SCALE as SCALE
from tests.specialized_path.kernels.mla.oracle import expected_cache, expected_query
from tests.specialized_path.kernels.replay import captured
from tests.specialized_path.kernels.tolerance import (
    T1,
    T2,
    assert_close,
    assert_codes_close,
    assert_same_bits,
)

pytestmark = pytest.mark.gpu

CASES = [pytest.param(case, id=case.name) for case in QUERY_CASES]
BY_NAME = {case.name: case for case in QUERY_CASES}


def project(inputs: QueryInputs) -> Tensor:
    """Runs the kernel into a poisoned query; returns it."""
    w_uk, _ = split_kv_b(inputs.w_kv_b, num_heads=inputs.w_kv_b.shape[0] // 256, qk_nope_head_dim=NOPE)
    weights = QueryWeights(
        q_a_norm=inputs.q_a_norm, kv_a_norm=inputs.kv_a_norm, w_q_b=inputs.w_q_b, w_uk=w_uk
    )
    shape = (inputs.projected.shape[0], w_uk.shape[0], ROW)
    poison = torch.full(shape, float("nan"), device="cuda").to(inputs.kv_cache.dtype)
    return mla_query(inputs.projected, weights, inputs.kv_cache, inputs.slot_mapping, scale=SCALE, out=poison)


def live(inputs: QueryInputs) -> Tensor:
    return ~inputs.projected.isnan().any(dim=-1)


@pytest.mark.parametrize("case", CASES)
def test_bf16_query_rows_are_within_their_class(case: QueryCase) -> None:
    inputs = query_inputs(case, torch.bfloat16, "cuda")
    query, rows = project(inputs), live(inputs)
    expected, terms, flips = (part[rows] for part in expected_query(inputs))
    assert_close(query[rows], expected, T2, term_magnitudes=terms, inner_flips=flips)


@pytest.mark.parametrize("case", CASES)
def test_fp8_query_codes_are_those_of_the_bf16_query(case: QueryCase) -> None:
    inputs = query_inputs(case, torch.float8_e4m3fn, "cuda")
    query, rows = project(inputs), live(inputs)
    plain = query_inputs(case, torch.bfloat16, "cuda")
    expected = quantize_e4m3(project(plain)[rows], scale=SCALE.query)
    assert_same_bits(query[rows], expected)


@pytest.mark.parametrize("case", CASES)
def test_written_cache_rows_are_within_their_class(case: QueryCase, dtype: torch.dtype) -> None:
    inputs = query_inputs(case, dtype, "cuda")
    project(inputs)
    written = inputs.slot_mapping >= 0
    page_size = inputs.kv_cache.shape[1]
    slots = inputs.slot_mapping[written]
    rows = torch.stack([inputs.kv_cache[s // page_size, s % page_size] for s in slots.tolist()])
    expected = expected_cache(inputs)[written]
    if dtype == torch.bfloat16:
        assert_close(rows, expected.double(), T1)
        assert_same_bits(rows[:, KV_RANK:], expected[:, KV_RANK:])
    else:
        assert_codes_close(rows, quantize_e4m3(expected, scale=SCALE.cache))


@pytest.mark.parametrize("case", CASES)
def test_nothing_else_in_the_cache_is_touched(case: QueryCase, dtype: torch.dtype) -> None:
    inputs = query_inputs(case, dtype, "cuda")
    untouched = query_inputs(case, dtype, "cuda").kv_cache
    project(inputs)
    written = torch.zeros(untouched.shape[:2], dtype=torch.bool, device="cuda")
    slots = inputs.slot_mapping[inputs.slot_mapping >= 0]
    written[slots // untouched.shape[1], slots % untouched.shape[1]] = True
    bits = torch.uint8 if dtype.itemsize == 1 else torch.int16
    assert torch.equal(inputs.kv_cache.view(bits)[~written], untouched.view(bits)[~written])


def test_rows_give_the_same_bits_at_every_place_and_in_every_run(dtype: torch.dtype) -> None:
    case = BY_NAME["33 rows"]
    inputs = query_inputs(case, dtype, "cuda")
    first = project(inputs)
    order = torch.randperm(case.num_rows, generator=torch.Generator().manual_seed(1)).cuda()
    inputs.projected, inputs.slot_mapping = inputs.projected[order], inputs.slot_mapping[order]
    cache = inputs.kv_cache.clone()
    second = project(inputs)
    bits = torch.uint8 if dtype.itemsize == 1 else torch.int16
    assert torch.equal(second.view(bits), first.view(bits)[order])
    assert torch.equal(inputs.kv_cache.view(bits), cache.view(bits))


def test_replays_give_the_bits_of_an_eager_run(dtype: torch.dtype) -> None:
    inputs = query_inputs(BY_NAME["17 rows"], dtype, "cuda")
    eager = project(inputs)
    w_uk, _ = split_kv_b(inputs.w_kv_b, num_heads=12, qk_nope_head_dim=NOPE)
    weights = QueryWeights(
        q_a_norm=inputs.q_a_norm, kv_a_norm=inputs.kv_a_norm, w_q_b=inputs.w_q_b, w_uk=w_uk
    )
    out = torch.empty_like(eager)
    work = (inputs.projected, weights, inputs.kv_cache, inputs.slot_mapping)
    graph = captured(lambda: mla_query(*work, scale=SCALE, out=out))
    for _ in range(2):
        out.zero_()
        graph.replay()
        assert_same_bits(out, eager)
