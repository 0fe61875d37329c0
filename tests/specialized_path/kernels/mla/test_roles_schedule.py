"""OC-9 by the schedule that gives warps roles: the same laws as for the one that all steps take by default.

The last file of the folder, so that a schedule that hangs leaves the others' tests done.
"""

import pytest
import torch

from specialized_path.kernels.mla.cases import (
    ATTENTION_CASES,
    AttentionCase,
    AttentionInputs,
    attention_inputs,
)
from tests.specialized_path.kernels.mla.attend import NAN, attend, scale_for
from tests.specialized_path.kernels.mla.oracle import expected_attention, take
from tests.specialized_path.kernels.tolerance import T2, assert_close, assert_same_bits

pytestmark = pytest.mark.gpu

BY_NAME = {case.name: case for case in ATTENTION_CASES}
VERIFY = BY_NAME["verify q=4"]


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in ATTENTION_CASES])
def test_latents_are_within_their_class(case: AttentionCase, dtype: torch.dtype) -> None:
    inputs = attention_inputs(case, dtype, "cuda")
    latent, _ = attend(inputs, case.max_context, schedule="roles")
    expected, _, terms = expected_attention(inputs, scale_for(dtype), exact_scores=case.has_exact_scores)
    assert_close(latent, expected, T2, term_magnitudes=terms)


def test_a_later_tokens_nan_does_not_reach_earlier_tokens(dtype: torch.dtype) -> None:
    inputs = attention_inputs(VERIFY, dtype, "cuda")
    clean, _ = attend(inputs, schedule="roles")
    # Request 1 has 200 rows in pages of 64: its newest is row 7 of its fourth page.
    inputs.kv_cache[int(inputs.block_table[1, 3]), 7] = NAN
    latent, _ = attend(inputs, schedule="roles")
    assert_same_bits(latent[1, :-1], clean[1, :-1])
    assert latent[1, -1].isnan().all()


@pytest.mark.parametrize("case", [VERIFY, BY_NAME["64 requests"]], ids=lambda case: case.name)
def test_a_request_gives_the_same_bits_in_every_run_and_at_every_place_in_the_batch(
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
    first = attend(inputs, schedule="roles")
    for ours, theirs in zip(attend(moved, schedule="roles"), first, strict=True):
        assert_same_bits(ours, theirs[order])
