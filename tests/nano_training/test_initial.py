"""What training starts from."""

import pytest
import torch

from nano_training import forward
from nano_training.initial import initial_weights, trainable_masks
from specialized_path.nano.config import KimiK3NanoConfig

CONFIG = KimiK3NanoConfig()
PERIOD = 100


@pytest.fixture(scope="module")
def weights():
    """The weights of step 0."""
    return initial_weights(CONFIG, seed=0)


def test_every_mla_head_looks_mostly_at_what_followed_the_same_three_tokens(weights, monkeypatch):
    shares = []

    def recorded(q, k, v, **_):
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        shares.append(scores.masked_fill(future, float("-inf")).softmax(-1))
        return shares[-1] @ v

    monkeypatch.setattr(forward.functional, "scaled_dot_product_attention", recorded)
    text = torch.randint(97, 123, (PERIOD,), generator=torch.Generator().manual_seed(0))
    forward.hidden_states(weights, CONFIG, torch.cat((text, text)).unsqueeze(0))
    second_time = torch.arange(PERIOD + 4, 2 * PERIOD - 1)
    looked_at = shares[0][0, :, second_time].argmax(-1)
    assert (looked_at == second_time - PERIOD + 1).float().mean() > 0.5


def test_the_start_is_the_seeds(weights):
    again, other = initial_weights(CONFIG, seed=0), initial_weights(CONFIG, seed=1)
    assert all(torch.equal(weights[name], again[name]) for name in weights)
    assert not torch.equal(weights["lm_head.weight"], other["lm_head.weight"])


def test_other_sizes_are_refused():
    with pytest.raises(ValueError, match="default sizes"):
        initial_weights(KimiK3NanoConfig(hidden_size=64), seed=0)


def test_all_that_routes_is_frozen_and_nothing_else(weights):
    masks = trainable_masks(CONFIG, weights)
    frozen = {name for name in weights if name not in masks or not masks[name].all()}
    written = ("o_proj.weight", "mlp.down_proj.weight", "experts.down_proj.weight", "latent_up_proj.weight")
    read = tuple(f"layers.{i}.mlp_res_{part}.weight" for i in range(1, 5) for part in ("norm", "proj"))
    tagged = (*written, *read, "embed_tokens.weight", "post_attention_layernorm.weight")
    routing = {n for n in weights if ".gate." in n or n.endswith(tagged)}
    assert frozen == routing
