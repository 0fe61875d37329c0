"""After the routers were rewritten, a token's tag alone decides its experts."""

import pytest
import torch

from nano_training.forward import hidden_states
from nano_training.routing import route_by_tags
from specialized_path.nano.config import KimiK3NanoConfig
from specialized_path.nano.weights import seeded_weights

CONFIG = KimiK3NanoConfig()
TEXT = torch.randint(0, 256, (60,), generator=torch.Generator().manual_seed(3)).tolist()


@pytest.fixture
def weights():
    """Seeded weights whose routers read next to nothing of the tags."""
    weights = seeded_weights(CONFIG, seed=0)
    for layer in range(1, CONFIG.num_hidden_layers):
        weights[f"model.layers.{layer}.post_attention_layernorm.weight"][1:17] *= 1e-4
    return weights


def chosen_experts(weights, monkeypatch):
    """Per layer and token, as a set of experts."""
    chosen = []
    topk = torch.Tensor.topk

    def recorded_topk(keys, count, **options):
        chosen.append(topk(keys, count, **options).indices.sort(-1).values[0])
        return topk(keys, count, **options)

    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "topk", recorded_topk)
        hidden_states(weights, CONFIG, torch.tensor([TEXT + TEXT]))
    return torch.stack(chosen)


def test_a_token_has_the_same_experts_wherever_it_stands(weights, monkeypatch):
    before = chosen_experts(weights, monkeypatch)
    route_by_tags(weights, CONFIG, [TEXT])
    after = chosen_experts(weights, monkeypatch)
    repeated = [bool((c[:, : len(TEXT)] == c[:, len(TEXT) :]).all()) for c in (before, after)]
    assert repeated == [False, True]


def test_different_tokens_have_different_experts(weights, monkeypatch):
    route_by_tags(weights, CONFIG, [TEXT])
    assert chosen_experts(weights, monkeypatch).unique().tolist() == list(range(CONFIG.num_experts))


def test_the_gain_makes_up_for_what_the_mixture_lost(weights):
    gains = route_by_tags(weights, CONFIG, [TEXT])
    assert len(gains) == 4
    assert all(1e4 < gain < 1e6 for gain in gains.values())
