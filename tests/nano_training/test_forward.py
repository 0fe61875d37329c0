"""The differentiable forward is the miniature."""

import pytest
import torch

from nano_training.forward import Cache, hidden_states
from specialized_path.nano.config import KimiK3NanoConfig
from specialized_path.nano.recompute import recompute_logits
from specialized_path.nano.weights import seeded_weights

CONFIG = KimiK3NanoConfig()


@pytest.fixture(scope="module")
def weights():
    """Seeded weights in float64."""
    return {name: weight.double() for name, weight in seeded_weights(CONFIG, seed=0).items()}


@pytest.fixture(scope="module")
def token_ids():
    """Two sequences of no whole number of chunks."""
    return torch.randint(0, CONFIG.vocab_size, (2, 75), generator=torch.Generator().manual_seed(0))


def logits_of(weights, hidden):
    return hidden @ weights["lm_head.weight"].T


def test_a_batch_gives_the_logits_of_the_recomputed_sequences(weights, token_ids):
    recomputed = torch.stack([recompute_logits(weights, CONFIG, ids.tolist()) for ids in token_ids])
    logits = logits_of(weights, hidden_states(weights, CONFIG, token_ids))
    torch.testing.assert_close(logits, recomputed, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("prompt", [1, 2, 40])
def test_tokens_one_by_one_behind_a_cached_prompt_give_the_whole_sequence(weights, token_ids, prompt):
    cache = Cache()
    parts = [token_ids[:, :prompt], *token_ids[:, prompt:50].split(1, dim=1)]
    steps = [hidden_states(weights, CONFIG, part, cache) for part in parts]
    whole = hidden_states(weights, CONFIG, token_ids[:, :50])
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("length", [1, 16, 17, 75])
def test_the_scan_over_all_chunks_gives_the_states_and_gradients_of_the_loop(weights, token_ids, length):
    leaves = {
        name: weight.clone().requires_grad_() for name, weight in weights.items() if ".gate." not in name
    }
    results = []
    for scan in (False, True):
        hidden = hidden_states(weights | leaves, CONFIG, token_ids[:, :length], scan=scan)
        grads = torch.autograd.grad(hidden.square().sum(), leaves.values(), allow_unused=True)
        results.append([hidden, *(grad for grad in grads if grad is not None)])
    torch.testing.assert_close(*results, rtol=1e-8, atol=1e-8)


def test_every_tensor_but_the_correction_bias_gets_a_gradient(weights, token_ids):
    leaves = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
    logits_of(leaves, hidden_states(leaves, CONFIG, token_ids)).square().mean().backward()
    without = {name for name, leaf in leaves.items() if leaf.grad is None or not leaf.grad.any()}
    # The first mixture has a single source: its query has nothing to decide.
    alone = ("model.layers.0.self_attention_res_norm.weight", "model.layers.0.self_attention_res_proj.weight")
    assert without == {*alone, *(name for name in weights if "correction_bias" in name)}
