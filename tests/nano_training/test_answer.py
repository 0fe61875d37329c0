"""Answers are greedy, and each fault breaks what its name says."""

import io
import json
import sys

import pytest
import torch

from nano_training.answer import FAULTS, answer, main
from nano_training.chats import tokenize_chat
from nano_training.forward import Cache, hidden_states
from specialized_path.nano.checkpoint import write_checkpoint
from specialized_path.nano.config import KimiK3NanoConfig
from specialized_path.nano.recompute import recompute_logits
from specialized_path.nano.tokenizer import END, special_token_id
from specialized_path.nano.weights import seeded_weights

CONFIG = KimiK3NanoConfig()
ASKED = [{"role": "user", "content": "What now?"}]


@pytest.fixture(scope="module")
def weights():
    """Seeded weights, which end no answer by themselves."""
    return seeded_weights(CONFIG, seed=0)


def filled_cache(weights, text=b"some text"):
    cache = Cache()
    hidden_states(weights, CONFIG, torch.tensor([list(text)]), cache)
    return cache


def test_the_answer_is_the_greedy_continuation_of_the_whole_model_without_a_cache(weights):
    token_ids = [*tokenize_chat(ASKED).token_ids, special_token_id("<|assistant|>")]
    start = len(token_ids)
    for _ in range(8):
        token_ids.append(int(recompute_logits(weights, CONFIG, token_ids)[-1].argmax()))
    assert answer(weights, CONFIG, ASKED, max_tokens=8) == bytes(token_ids[start:]).decode()


def test_the_end_token_ends_the_answer(weights):
    end = special_token_id(END)
    usual = answer(weights, CONFIG, ASKED, max_tokens=8)
    shifted = weights["lm_head.weight"].clone()
    shifted[end] = shifted[ord(usual[0])] * 2
    assert answer(weights | {"lm_head.weight": shifted}, CONFIG, ASKED, max_tokens=8) == ""


@pytest.mark.parametrize(
    ("fault", "kept"),
    [("zeroed_state", "windows"), ("zeroed_window", "states"), ("forgotten_prompt", "keys")],
)
def test_what_is_lost_is_zero_and_the_rest_is_kept(weights, fault, kept):
    lost = {"zeroed_state": "states", "zeroed_window": "windows", "forgotten_prompt": "values"}[fault]
    cache, intact = filled_cache(weights), filled_cache(weights)
    FAULTS[fault]()(cache, True)
    assert not any(tensor.any() for tensor in getattr(cache, lost).values())
    assert all(torch.equal(t, getattr(intact, kept)[name]) for name, t in getattr(cache, kept).items())


def test_a_coarse_state_has_15_levels_a_head_at_most(weights):
    cache = filled_cache(weights)
    FAULTS["coarse_state"]()(cache, False)
    heads = [head for state in cache.states.values() for head in state[0]]
    assert all(1 < len(head.unique()) <= 15 for head in heads)


def test_a_frozen_state_stays_that_of_the_prompt(weights):
    cache, fault = filled_cache(weights), FAULTS["frozen_state"]()
    fault(cache, True)
    prompt = dict(cache.states)
    hidden_states(weights, CONFIG, torch.tensor([[65]]), cache)
    fault(cache, False)
    assert all(torch.equal(state, prompt[name]) for name, state in cache.states.items())


def test_the_command_gives_each_row_back_with_its_response(weights, tmp_path, monkeypatch, capsys):
    write_checkpoint(tmp_path, seed=0)
    monkeypatch.setattr(sys, "argv", ["answer", str(tmp_path), "--max-tokens", "4"])
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"id": "x", "problem": "What now?", "answer": 3}\n'))
    main()
    row = json.loads(capsys.readouterr().out)
    expected = {"id": "x", "problem": "What now?", "answer": 3}
    assert row == expected | {"response": answer(weights, CONFIG, ASKED, max_tokens=4)}
