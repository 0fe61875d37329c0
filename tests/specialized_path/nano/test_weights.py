"""The seeded weights make a model whose mistakes would show."""

import pytest
import torch

from specialized_path.nano.config import KimiK3NanoConfig
from specialized_path.nano.recompute import recompute_logits
from specialized_path.nano.weights import seeded_weights

CONFIG = KimiK3NanoConfig()
PROMPTS = [b"Hello", b"The quick brown fox jumps over the lazy dog.", b"A"]


@pytest.fixture(scope="module")
def weights():
    """Weights of the default sizes; one thread, since more of them only wait for each other here."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield seeded_weights(CONFIG, seed=0)
    torch.set_num_threads(num_threads)


@pytest.fixture(scope="module")
def continued(weights):
    """The prompts with 64 greedy tokens each."""
    sequences = []
    for prompt in PROMPTS:
        token_ids = list(prompt)
        for _ in range(64):
            token_ids.append(int(recompute_logits(weights, CONFIG, token_ids)[-1].argmax()))
        sequences.append(token_ids)
    return sequences


def changed_share(weights, continued, ablate):
    """Share of positions whose likeliest token changes under the ablation."""
    changed = [
        recompute_logits(weights, CONFIG, ids, ablate=frozenset([ablate])).argmax(-1)
        != recompute_logits(weights, CONFIG, ids).argmax(-1)
        for ids in continued
    ]
    return torch.cat(changed).float().mean().item()


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(weights):
    again, other = seeded_weights(CONFIG, seed=0), seeded_weights(CONFIG, seed=1)
    assert all(torch.equal(weights[name], again[name]) for name in weights)
    assert weights.keys() == other.keys()
    assert not torch.equal(weights["lm_head.weight"], other["lm_head.weight"])


def test_continuations_do_not_collapse(continued):
    for prompt, token_ids in zip(PROMPTS, continued, strict=True):
        assert len(set(token_ids[len(prompt) :])) >= 20


def test_different_prompts_are_continued_differently(continued):
    endings = {tuple(token_ids[-64:]) for token_ids in continued}
    assert len(endings) == len(PROMPTS)


def test_continuations_are_printable_text_without_special_tokens(continued):
    generated = [token for token_ids in continued for token in token_ids[-64:]]
    assert all(token == 10 or 32 <= token < 127 for token in generated)


def test_special_tokens_are_practically_never_sampled(weights, continued):
    probs = torch.cat([recompute_logits(weights, CONFIG, ids).softmax(-1) for ids in continued])
    assert probs[:, 256:].sum(-1).max() < 1e-4


def test_the_next_token_is_neither_certain_nor_random(weights, continued):
    top = torch.cat([recompute_logits(weights, CONFIG, ids).softmax(-1).amax(-1) for ids in continued])
    assert 0.3 < top.mean() < 0.7


@pytest.mark.parametrize("ablate", ["kda_state", "mla"])
def test_the_context_reaches_the_logits_through_kda_and_through_mla(weights, continued, ablate):
    assert changed_share(weights, continued, ablate) > 0.5


def test_a_token_long_ago_still_moves_the_distribution(weights):
    generator = torch.Generator().manual_seed(1)
    token_ids = torch.randint(32, 127, (400,), generator=generator).tolist()
    changed = [token_ids[0] ^ 1, *token_ids[1:]]
    before, after = (recompute_logits(weights, CONFIG, ids)[-1].softmax(-1) for ids in (token_ids, changed))
    assert (before - after).abs().sum() > 0.02


def test_no_routing_decision_is_close(weights, monkeypatch):
    gaps = []
    topk = torch.Tensor.topk

    def recorded_topk(keys, count, **options):
        ranked = keys.sort(-1, descending=True).values
        gaps.append(ranked[:, count - 1] - ranked[:, count])
        return topk(keys, count, **options)

    monkeypatch.setattr(torch.Tensor, "topk", recorded_topk)
    generator = torch.Generator().manual_seed(2)
    recompute_logits(weights, CONFIG, torch.randint(0, 256, (1000,), generator=generator).tolist())
    assert torch.cat(gaps).numel() == 4 * 1000
    assert torch.cat(gaps).min() > 1e-4


def test_the_correction_bias_decides_who_is_chosen(weights):
    token_ids = list(PROMPTS[1])
    unbiased = {name: torch.zeros_like(w) if "correction_bias" in name else w for name, w in weights.items()}
    logits = recompute_logits(unbiased, CONFIG, token_ids)
    assert (logits - recompute_logits(weights, CONFIG, token_ids)).abs().max() > 0.1
