"""After the routers were rewritten, a token's tag alone decides its experts."""

import io
import json
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from nano_training.forward import hidden_states
from nano_training.routing import main, route_by_tags
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
    found = route_by_tags(weights, CONFIG, [TEXT])
    assert len(found) == 4
    assert all(1e4 < row["gain"] < 1e6 for row in found.values())


def least_share(weights, layer):
    """The smallest share of its tag that a token has where the router of `layer` reads, of the largest."""
    inputs = {}
    hidden_states(weights, CONFIG, torch.tensor([TEXT]), mlp_inputs=inputs)
    tags = weights["model.embed_tokens.weight"][TEXT, 1:17]
    shares = (inputs[f"model.layers.{layer}.mlp"][0, :, 1:17] / tags).mean(-1)
    return float(shares.min() / shares.max())


def test_a_mixture_that_hides_the_tags_of_some_tokens_is_made_more_even_and_one_that_does_not_stays(weights):
    hides, even = (f"model.layers.{layer}.mlp_res_proj.weight" for layer in (2, 3))
    drawn = torch.randn(weights[hides].shape, generator=torch.Generator().manual_seed(1))
    weights[hides].copy_(3.0 * drawn)
    kept = weights[even].clone()
    assert least_share(weights, 2) < 1e-8
    found = route_by_tags(weights, CONFIG, [TEXT])
    assert least_share(weights, 2) > 0.99e-4
    assert found["model.layers.2.mlp"]["mixture"] < 1
    assert found["model.layers.3.mlp"]["mixture"] == 1
    assert torch.equal(weights[even], kept)


def test_the_command_rewrites_a_file_into_another(weights, tmp_path, monkeypatch, capsys):
    given, out = tmp_path / "given.safetensors", tmp_path / "out.safetensors"
    save_file(weights, given)
    chat = {"messages": [{"role": "user", "content": "a?"}, {"role": "assistant", "content": "b"}]}
    monkeypatch.setattr(sys, "argv", ["routing", str(given), str(out)])
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(chat) + "\n"))
    main()
    assert json.loads(capsys.readouterr().out)["model.layers.1.mlp"]["mixture"] == 1
    assert all(torch.equal(weight, weights[name]) for name, weight in load_file(given).items())
    changed = {n for n, weight in load_file(out).items() if not torch.equal(weight, weights[n])}
    assert changed == {n for n in weights if ".gate." in n}
