"""OC-10 and OC-11 on the GPU against the oracle in float64."""

import pytest
import torch
from torch import Tensor

from specialized_path.kernels.mla.cases import ATTENTION_CASES, NOPE, attention_inputs
from specialized_path.kernels.mla.launch import (
    allocate_partial,
    dcp_merge,
    mla_attention,
    mla_attention_partial,
    mla_value,
    mla_value_dcp,
    mla_value_merged,
)
from specialized_path.reference import mla_value_gate, split_kv_b
from tests.specialized_path.kernels.mla.oracle import expected_merge
from tests.specialized_path.kernels.mla.shards import LSES, normal, shards
from tests.specialized_path.kernels.replay import captured
from tests.specialized_path.kernels.tolerance import T2, assert_close, assert_same_bits

pytestmark = pytest.mark.gpu

NAN = float("nan")
F64 = torch.float64


def weights_and_gate(num_rows: int, num_heads: int) -> tuple[Tensor, Tensor]:
    """W_UV as a view of kv_b, and the gate as a slice of a projection."""
    w_kv_b = normal(num_heads * 256, 512, seed=1, scale=512**-0.5)
    _, w_uv = split_kv_b(w_kv_b, num_heads=num_heads, qk_nope_head_dim=NOPE)
    return w_uv, normal(num_rows, 2112 + num_heads * 128, seed=2, scale=3.0)[:, 2112:]


def lens(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device="cuda")


def expected_value(latent: Tensor, w_uv: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    """Gated values in float64 without the contract's inner rounding, and the magnitude of the terms."""
    wide = torch.einsum("bhc,hvc->bhv", latent.double(), w_uv.double())
    terms = torch.einsum("bhc,hvc->bhv", latent.double().abs(), w_uv.double().abs())
    opened = torch.sigmoid(gate.double())
    return wide.flatten(1) * opened, terms.flatten(1) * opened


@pytest.mark.parametrize("num_heads", [12, 6])
@pytest.mark.parametrize("num_rows", [1, 2, 15, 16, 17, 64])
def test_gated_values_are_within_their_class(num_rows: int, num_heads: int) -> None:
    latent = normal(num_rows, num_heads, 512)
    w_uv, gate = weights_and_gate(num_rows, num_heads)
    poison = torch.full((num_rows, num_heads * 128), NAN, dtype=torch.bfloat16, device="cuda")
    out = mla_value(latent, w_uv, gate, lens(*[1] * num_rows), out=poison)
    expected, terms = expected_value(latent, w_uv, gate)
    assert_close(out, expected, T2, term_magnitudes=terms)


def test_gated_values_are_those_of_the_oracle_in_its_own_rounding() -> None:
    latent = normal(20, 12, 512)
    w_uv, gate = weights_and_gate(20, 12)
    out = mla_value(latent, w_uv, gate, lens(*[1] * 20))
    assert_close(out, mla_value_gate(latent, w_uv, gate, acc_dtype=F64).double(), T2)


def test_gates_at_their_ends_open_and_close() -> None:
    latent = normal(3, 12, 512)
    w_uv, gate = weights_and_gate(3, 12)
    gate[0], gate[1], gate[2] = 1e4, -1e4, 0.0
    out = mla_value(latent, w_uv, gate, lens(1, 1, 1))
    expected, terms = expected_value(latent, w_uv, gate)
    assert_close(out, expected, T2, term_magnitudes=terms)


@pytest.mark.parametrize("num_tokens", [1, 3])
def test_an_empty_request_gives_zeros_also_when_its_gate_and_latent_are_nan(num_tokens: int) -> None:
    lengths = lens(5, 0, 9, 0)
    empty = (lengths == 0).repeat_interleave(num_tokens)
    latent = normal(4 * num_tokens, 12, 512)
    w_uv, gate = weights_and_gate(4 * num_tokens, 12)
    clean = mla_value(latent, w_uv, gate, lengths)
    latent[empty], gate[empty] = NAN, NAN
    out = mla_value(latent, w_uv, gate, lengths)
    assert (out[empty] == 0).all()
    assert_same_bits(out[~empty], clean[~empty])


@pytest.mark.parametrize("name", ["64 requests", "verify q=4", "128k among short ones", "verify q=3, tp16"])
def test_merging_and_gating_in_one_launch_gives_the_bits_of_two(name: str, dtype: torch.dtype) -> None:
    case = next(c for c in ATTENTION_CASES if c.name == name)
    inputs = attention_inputs(case, dtype, "cuda")
    num_reqs, num_tokens, num_heads, _ = inputs.query.shape
    partial = allocate_partial(num_reqs, num_tokens, num_heads, case.max_context, inputs.query.device)
    work = (inputs.query, inputs.kv_cache, inputs.block_table, inputs.seq_lens)
    w_uv, gate = weights_and_gate(num_reqs * num_tokens, num_heads)
    latent, _ = mla_attention(*work, partial=partial)
    two = mla_value(latent.flatten(0, 1), w_uv, gate, inputs.seq_lens)
    partial.sums.fill_(NAN)
    partial.max_and_sum.fill_(NAN)
    mla_attention_partial(*work, partial)
    one = mla_value_merged(partial, w_uv, gate, inputs.seq_lens, num_tokens=num_tokens)
    assert_same_bits(one, two)


@pytest.mark.parametrize("name", LSES)
def test_shards_merge_as_the_oracle_says(name: str) -> None:
    latents, lses = shards(LSES[name])
    out, lse = dcp_merge(latents, lses)
    expected, expected_lse, terms = expected_merge(latents, lses)
    assert_close(out, expected, T2, term_magnitudes=terms)
    torch.testing.assert_close(lse.double(), expected_lse, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("num_shards", [1, 2, 8, 16])
def test_merging_shards_and_gating_in_one_launch_gives_the_bits_of_two(num_shards: int) -> None:
    latents, lses = shards([float(i % 5) for i in range(num_shards)])
    w_uv, gate = weights_and_gate(18, 12)
    lengths = lens(*[1] * 17, 0)
    merged, _ = dcp_merge(latents, lses)
    two = mla_value(merged, w_uv, gate, lengths)
    assert_same_bits(mla_value_dcp(latents, lses, w_uv, gate, lengths), two)


def test_values_give_the_same_bits_in_every_run_replay_and_place() -> None:
    latent = normal(33, 12, 512)
    w_uv, gate = weights_and_gate(33, 12)
    gate = gate.contiguous()
    eager = mla_value(latent, w_uv, gate, lens(*[1] * 33))
    order = torch.randperm(33, generator=torch.Generator().manual_seed(1)).cuda()
    moved = mla_value(latent[order], w_uv, gate[order], lens(*[1] * 33))
    assert_same_bits(moved, eager[order])
    out, lengths = torch.empty_like(eager), lens(*[1] * 33)
    graph = captured(lambda: mla_value(latent, w_uv, gate, lengths, out=out))
    for _ in range(2):
        out.zero_()
        graph.replay()
        assert_same_bits(out, eager)
