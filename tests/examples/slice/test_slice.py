"""Rank slices: shapes as one rank holds them, weights that are equal in every process, a divergence that can grow."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import nn

from examples.slice.__main__ import ARMS, DEPTHS, one_by_one, prefill_times, schedules
from examples.slice.agreement import divergences, place_divergence, summary
from examples.slice.config import slice_config
from examples.slice.weights import fill
from harness.config import load_manifest
from harness.engine.step_profile import Span, covered_ns
from specialized_path.kernels.projection.variants import SHAPES
from specialized_path.kimi_k3.moe_scope import _MOE
from specialized_path.kimi_k3.switch import _KDA_CONSTANTS, _MODEL_CONSTANTS, MAX_BATCH
from specialized_path.runtime.differences import list_differences


@pytest.mark.parametrize(("tp", "rank"), [(8, "tp8"), (16, "tp16")])
def test_a_slice_has_the_shapes_that_the_kernels_were_made_for(tp, rank):
    heads = slice_config(tp, 5, 1024)["linear_attn_config"]["num_heads"]
    rows = (4 * heads * 128 + 128 + heads + 15) // 16 * 16, 1536 + 576 + heads * 128
    assert {shape.num_outputs for shape in SHAPES if shape.rank_shape == rank} == {*rows, 7168}


def test_a_slice_has_the_constants_that_the_path_requires():
    config = slice_config(8, 5, 1024)
    assert {**config, **config["linear_attn_config"]}.items() >= (_MODEL_CONSTANTS | _KDA_CONSTANTS).items()


def test_the_kernels_serve_the_mixtures_of_a_slice():
    configs = pytest.importorskip("vllm.transformers_utils.configs.kimi_linear")
    assert list_differences(configs.KimiLinearConfig(**slice_config(8, 5, 1024)), _MOE) == ()


def test_the_file_that_the_gpu_tier_serves_is_the_slice_that_the_manifest_speaks_of():
    root = Path(__file__).resolve().parents[3]
    found = load_manifest((root / "fasttrack.toml").read_bytes()).models.slice
    config = json.loads((root / found.config).read_text())
    assert config == slice_config(8, DEPTHS[0], found.max_model_len)
    assert found.scope.max_batch == MAX_BATCH


def test_the_two_depths_differ_by_three_kda_layers_and_one_mla_layer():
    deep, shallow = (slice_config(8, depth, 1024)["linear_attn_config"] for depth in DEPTHS[::-1])
    more = [set(deep[kind]) - set(shallow[kind]) for kind in ("kda_layers", "full_attn_layers")]
    assert more == [{6, 7, 9}, {8}]


class _Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(64, bias=False)
        self.o_proj = nn.Linear(64, 64, bias=False)
        self.w13_weight_scale = nn.Parameter(torch.zeros(4, dtype=torch.uint8), requires_grad=False)


def test_two_processes_would_draw_the_same_weights():
    models = _Model(), _Model()
    for model in models:
        fill(model)
    first, second = (model.state_dict() for model in models)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_weights_keep_the_size_of_what_they_multiply():
    model = _Model()
    fill(model)
    assert model.o_proj(torch.randn(256, 64)).std().item() == pytest.approx(1, abs=0.2)


def test_equal_places_do_not_diverge():
    place = {"1": math.log(0.5), "2": math.log(0.25)}
    assert place_divergence(place, place) == pytest.approx(0, abs=1e-12)


def test_the_mass_outside_the_common_tokens_counts():
    assert place_divergence({"1": math.log(0.5), "2": math.log(0.4)}, {"1": math.log(0.9)}) > 0.3


def test_a_place_that_is_not_a_number_spoils_the_whole_summary():
    found = summary([*divergences([[{"1": -0.5}]], [[{"1": math.nan}]]), 0.1, 0.2])
    assert all(math.isnan(found[name]) for name in ("mean", "p99", "max"))


def test_texts_of_different_length_are_not_compared():
    with pytest.raises(ValueError):
        divergences([[{"1": -0.5}]], [[]])


def test_time_in_which_kernels_overlap_counts_once():
    assert covered_ns([Span(0, 10, "a"), Span(5, 8, "b"), Span(20, 30, "c"), Span(25, 40, "d")]) == 30


def test_one_by_one_keeps_the_requests_and_never_lets_two_meet():
    arrivals = schedules()["hand-over"]
    apart = one_by_one(arrivals)
    ends = [step + prompt // 8192 + 1 + count for step, prompt, _, count in apart]
    is_apart = all(end <= later[0] for end, later in zip(ends, apart[1:], strict=False))
    assert (is_apart, [request[1:] for request in apart]) == (True, [request[1:] for request in arrivals])


class _Depth:
    """An arm that takes 10 microseconds and 3 a layer to prefill anything."""

    def __init__(self, layers):
        self.layers = layers

    def ask(self, do, tokens, times):
        return {"busy_us": [10.0 + 3.0 * self.layers] * times}


def test_the_prefill_time_of_a_layer_is_the_difference_of_two_depths():
    arms = {(arm, depth): _Depth(depth) for arm in ARMS for depth in DEPTHS}
    (row,) = prefill_times(arms, [256], 2)
    assert [row[arm]["layer_us"] for arm in ARMS] == [[3.0, 3.0], [3.0, 3.0]]


class _Routed(nn.Module):
    """What decides which experts a token has: its embedding, what layers add to it, and a router."""

    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(512, 7168)
        self.layer = nn.ModuleDict(
            {"o_proj": nn.Linear(128, 7168, bias=False), "gate": nn.Linear(7168, 896, bias=False)}
        )

    def experts(self, tokens, size):
        """[n, 16] of what a layer adds to the residual of that many times the embedding's size."""
        added = self.layer["o_proj"](
            torch.randn(len(tokens), 128, generator=torch.Generator().manual_seed(1))
        )
        hidden = self.embed_tokens(tokens) + size * added
        scores = self.layer["gate"](hidden * hidden.square().mean(-1, keepdim=True).rsqrt()).sigmoid()
        best = scores.topk(17).values
        return scores.topk(16).indices.sort().values, (best[:, 15] - best[:, 16]).min().item()


@pytest.mark.parametrize("size", [0.0, 1.0, 50.0])
def test_a_token_chooses_its_experts_by_itself_and_nowhere_near_a_tie(size):
    model = _Routed()
    fill(model)
    with torch.no_grad():
        alone, _ = model.experts(torch.arange(64), 0.0)
        among, margin = model.experts(torch.arange(64), size)
    assert torch.equal(alone, among)
    assert margin > 0.03


def test_tokens_ask_for_as_many_experts_as_drawn_routers_would():
    model = _Routed()
    fill(model)
    with torch.no_grad():
        chosen, _ = model.experts(torch.randint(512, (64,), generator=torch.Generator().manual_seed(2)), 1.0)
    drawn = 896 * (1 - (1 - 16 / 896) ** 64)
    assert chosen.unique().numel() == pytest.approx(drawn, rel=0.12)


@pytest.fixture
def shared_out():
    """A model of what two ranks share out and what both have whole, by vLLM's own classes."""
    linear = pytest.importorskip("vllm.model_executor.layers.linear")
    embedding = pytest.importorskip("vllm.model_executor.layers.vocab_parallel_embedding")

    def layer(kind, **attributes):
        made = kind.__new__(kind)
        nn.Module.__init__(made)
        made.weight = nn.Parameter(torch.zeros(64, 64))
        for name, value in attributes.items():
            setattr(made, name, value)
        return made

    model = nn.Module()
    model.embed_tokens = layer(embedding.VocabParallelEmbedding)
    model.gate_up_proj = layer(linear.MergedColumnParallelLinear, disable_tp=False)
    model.o_proj = layer(linear.RowParallelLinear, disable_tp=False)
    model.routed_expert_up_proj = layer(linear.ReplicatedLinear, disable_tp=False)
    model.low_rank = layer(linear.MergedColumnParallelLinear, disable_tp=True)
    model.norm = nn.LayerNorm(64, bias=False)
    model.A_log = nn.Parameter(torch.zeros(8))
    model.w13_weight = nn.Parameter(torch.zeros(4, 8, dtype=torch.uint8), requires_grad=False)
    return model


def drawn(model, **place):
    fill(model, **place)
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def test_ranks_draw_shares_of_their_own_and_the_same_of_what_both_have_whole(shared_out):
    first, second = drawn(shared_out), drawn(shared_out, rank=1)
    differ = {name for name in first if not torch.equal(first[name], second[name])}
    assert differ == {
        *("embed_tokens.weight", "gate_up_proj.weight", "o_proj.weight"),
        *("A_log", "w13_weight"),
    }


def test_a_rank_draws_the_same_again(shared_out):
    first, second = drawn(shared_out, rank=1), drawn(shared_out, rank=1)
    assert all(torch.equal(first[name], second[name]) for name in first)
