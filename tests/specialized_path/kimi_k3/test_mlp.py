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


def moe(intermediate=192, shared=384):
    gate = linear(896, 7168)
    gate.e_score_correction_bias = torch.nn.Parameter(torch.zeros(896), False)
    routed = SimpleNamespace(moe_config=SimpleNamespace(intermediate_size_per_partition=intermediate))
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


def bound(monkeypatch, module, *, is_moe=True, packed=True, **config):
    pytest.importorskip("vllm")
    experts = SimpleNamespace(gate_up=torch.empty(0, 24, 0)) if packed else None
    monkeypatch.setattr(mlp_module, "packed_experts", lambda _: experts)
    layer = SimpleNamespace(is_moe_layer=is_moe, mlp=module)
    model = SimpleNamespace(layers=[layer], config=SimpleNamespace(**CONFIG | config))
    return bind_mlps(model)[0]


def dense(inner):
    return SimpleNamespace(gate_up_proj=linear(2 * inner, 7168), down_proj=linear(7168, inner))


def test_a_mixture_of_packed_experts_runs_on_the_kernels(monkeypatch):
    assert isinstance(bound(monkeypatch, moe()), LatentMoe)


def test_latent_and_router_become_views_of_the_packed_front(monkeypatch):
    module = moe()
    front = bound(monkeypatch, module).w_front
    front.fill_(7.0)
    seen = (module.routed_expert_down_proj.weight, module.gate.weight)
    assert [w.unique().tolist() for w in seen] == [[7.0], [7.0]]


@pytest.mark.parametrize("changed", [{name: "other"} for name in CONFIG], ids=lambda c: next(iter(c)))
def test_a_mixture_of_another_kind_stays_vllms_with_the_reason(monkeypatch, changed):
    found = bound(monkeypatch, moe(), **changed)
    assert isinstance(found, StockMlp) and f"{next(iter(changed))}: got 'other'" in found.reason


def test_experts_that_were_not_packed_stay_vllms(monkeypatch):
    assert bound(monkeypatch, moe(), packed=False).reason == "experts are not packed"


def test_experts_padded_to_a_larger_size_stay_vllms():
    reasons = list_moe_reasons(moe(intermediate=256), SimpleNamespace(**CONFIG))
    assert reasons == ("intermediate_size_per_partition: got 256, expected 384 or 192",)


def test_every_reason_is_said_at_once():
    module = moe(intermediate=256, shared=512)
    module.gate.weight = module.gate.weight.float()
    assert len(list_moe_reasons(module, SimpleNamespace(**CONFIG))) == 3


def test_the_first_layers_dense_mlp_runs_on_the_kernels(monkeypatch):
    assert isinstance(bound(monkeypatch, dense(2112), is_moe=False), DenseMlp)


@pytest.mark.parametrize(("inner", "act"), [(2048, "situ"), (2112, "silu")])
def test_another_dense_mlp_stays_vllms(monkeypatch, inner, act):
    assert isinstance(bound(monkeypatch, dense(inner), is_moe=False, hidden_act=act), StockMlp)
