"""The MLP half of a layer: which modules the kernels serve, and whose memory they read."""

from types import SimpleNamespace

import pytest
import torch

from specialized_path.kimi_k3 import mlp as mlp_module
from specialized_path.kimi_k3.mlp import DenseMlp, LatentMoe, StockMlp, bind_mlps
from specialized_path.kimi_k3.moe_scope import list_moe_reasons

CONFIG = {
    "num_experts": 896,
    "num_experts_per_token": 16,
    "routed_expert_hidden_size": 3584,
    "latent_moe_use_norm": True,
    "hidden_act": "situ",
    "activation_situ_beta": 4.0,
    "activation_situ_linear_beta": 25.0,
    "moe_router_activation_func": "sigmoid",
    "moe_renormalize": True,
    "routed_scaling_factor": 1.0,
    "use_grouped_topk": True,
    "num_expert_group": 1,
    "topk_group": 1,
}


def linear(*shape, dtype=torch.bfloat16):
    # One value is enough: memory of the full size is not.
    return SimpleNamespace(weight=torch.nn.Parameter(torch.zeros((), dtype=dtype).expand(shape), False))


def moe(intermediate=192, shared=384, unpadded=None):
    gate = linear(896, 7168)
    gate.e_score_correction_bias = torch.nn.Parameter(torch.zeros(896), False)
    sizes = {
        "intermediate_size_per_partition": intermediate,
        "intermediate_size_per_partition_unpadded": unpadded or intermediate,
    }
    routed = SimpleNamespace(moe_config=SimpleNamespace(**sizes))
    return SimpleNamespace(
        gate=gate,
        routed_expert_down_proj=linear(3584, 7168),
        routed_expert_up_proj=linear(7168, 3584),
        routed_expert_norm=linear(3584),
        shared_experts=SimpleNamespace(gate_up_proj=linear(2 * shared, 7168), down_proj=linear(7168, shared)),
        experts=SimpleNamespace(routed_experts=routed),
        use_mega_moe=False,
        use_sequence_parallel=False,
    )


def bound(monkeypatch, module, *, is_moe=True, reasons=(), rank=0, **config):
    pytest.importorskip("vllm")
    monkeypatch.setattr(mlp_module, "list_experts_reasons", lambda *_: reasons)
    monkeypatch.setattr(mlp_module, "bind_experts", lambda _: None)
    monkeypatch.setattr(mlp_module, "get_tensor_model_parallel_rank", lambda: rank)
    layer = SimpleNamespace(is_moe_layer=is_moe, mlp=module)
    model = SimpleNamespace(layers=[layer], config=SimpleNamespace(**CONFIG | config))
    return bind_mlps(model)[0]


def dense(inner):
    return SimpleNamespace(gate_up_proj=linear(2 * inner, 7168), down_proj=linear(7168, inner))


@pytest.mark.parametrize(("held", "unpadded"), [(384, 384), (192, 192), (256, 192)])
def test_a_mixture_of_experts_runs_on_the_kernels(monkeypatch, held, unpadded):
    assert isinstance(bound(monkeypatch, moe(held, unpadded=unpadded)), LatentMoe)


def test_padded_rows_of_experts_have_no_hidden_values(monkeypatch):
    assert bound(monkeypatch, moe(256, unpadded=192)).space.hidden.shape == (64, 16, 192)


def test_latent_and_router_become_views_of_the_packed_front(monkeypatch):
    module = moe()
    front = bound(monkeypatch, module).w_front
    front.fill_(7.0)
    seen = (module.routed_expert_down_proj.weight, module.gate.weight)
    assert [w.unique().tolist() for w in seen] == [[7.0], [7.0]]


def test_up_and_shared_down_projection_become_views_of_the_packed_tail(monkeypatch):
    module = moe()
    tail = bound(monkeypatch, module).w_tail
    tail.fill_(7.0)
    seen = (module.routed_expert_up_proj.weight, module.shared_experts.down_proj.weight)
    assert [(w.shape[1], w.unique().tolist()) for w in seen] == [(3584, [7.0]), (384, [7.0])]


@pytest.mark.parametrize(("rank", "expected"), [(0, [1.0]), (1, [0.0])])
def test_the_first_rank_alone_adds_the_up_projection(monkeypatch, rank, expected):
    module = moe()
    module.routed_expert_norm.weight = torch.nn.Parameter(torch.ones(3584), False)
    assert bound(monkeypatch, module, rank=rank).w_norm.unique().tolist() == expected


@pytest.mark.parametrize("changed", [{name: "other"} for name in CONFIG], ids=lambda c: next(iter(c)))
def test_a_mixture_of_another_kind_stays_vllms_with_the_reason(monkeypatch, changed):
    found = bound(monkeypatch, moe(), **changed)
    assert isinstance(found, StockMlp) and f"{next(iter(changed))}: got 'other'" in found.reason


def test_experts_that_the_kernels_cannot_read_stay_vllms(monkeypatch):
    assert bound(monkeypatch, moe(), reasons=("one", "two")).reason == "one; two"


def test_experts_of_another_size_stay_vllms():
    reasons = list_moe_reasons(moe(intermediate=256), SimpleNamespace(**CONFIG))
    expected = "384 in 384 or 192 in 192 or 192 in 256"
    assert reasons == (f"experts' intermediate size: got 256 in 256, expected {expected}",)


def test_every_reason_is_said_at_once():
    module = moe(intermediate=256, shared=512)
    module.gate.weight = module.gate.weight.float()
    assert len(list_moe_reasons(module, SimpleNamespace(**CONFIG))) == 3


def test_the_first_layers_dense_mlp_runs_on_the_kernels(monkeypatch):
    assert isinstance(bound(monkeypatch, dense(2112), is_moe=False), DenseMlp)


@pytest.mark.parametrize(("inner", "act"), [(2048, "situ"), (2112, "silu")])
def test_another_dense_mlp_stays_vllms(monkeypatch, inner, act):
    assert isinstance(bound(monkeypatch, dense(inner), is_moe=False, hidden_act=act), StockMlp)
