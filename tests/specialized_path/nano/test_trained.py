"""The trained weights fit the model, are what their record says, and can do what they are there for."""

import hashlib
import json
from difflib import SequenceMatcher

import pytest
import torch
from safetensors.torch import load_file

from eval_suites import aime_generator, mrcr_generator
from specialized_path.nano.checkpoint import TRAINED_WEIGHTS, write_checkpoint
from specialized_path.nano.config import KimiK3NanoConfig
from specialized_path.nano.recompute import recompute_logits
from specialized_path.nano.training.answer import FAULTS, answer
from specialized_path.nano.training.chats import prompt_messages
from specialized_path.nano.weights import seeded_weights

CONFIG = KimiK3NanoConfig()


@pytest.fixture(scope="module")
def weights():
    """The committed weights; one thread, since more of them only wait for each other here."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield load_file(TRAINED_WEIGHTS)
    torch.set_num_threads(num_threads)


@pytest.fixture(scope="module")
def rows():
    """Retrieval problems of a seed that training never saw."""
    return list(mrcr_generator.generate_rows(seed=77, count=8, num_bytes=400, needles=2))


def mean_score(weights, rows, fault=None):
    scores = []
    for row in rows:
        broken = FAULTS[fault]() if fault else None
        response = answer(weights, CONFIG, prompt_messages(row), max_tokens=80, fault=broken)
        prefix = row["random_string_to_prepend"]
        wanted, got = (text.removeprefix(prefix) for text in (row["answer"], response))
        scores.append(response.startswith(prefix) * SequenceMatcher(None, got, wanted).ratio())
    return sum(scores) / len(scores)


def test_the_file_is_the_recorded_one_and_small():
    record = json.loads(TRAINED_WEIGHTS.with_name("record.json").read_text())
    content = TRAINED_WEIGHTS.read_bytes()
    assert hashlib.sha256(content).hexdigest() == record["sha256"]
    assert len(content) < 10e6


def test_names_shapes_and_dtypes_are_those_of_the_model(weights):
    seeded = seeded_weights(CONFIG, seed=0)
    assert {n: (w.shape, w.dtype) for n, w in weights.items()} == {
        n: (w.shape, w.dtype) for n, w in seeded.items()
    }


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


def test_texts_are_retrieved_and_a_state_lost_between_prompt_and_answer_costs_points(weights, rows):
    assert mean_score(weights, rows) > 0.3 + mean_score(weights, rows, "zeroed_state")


def test_numbers_are_looked_up_and_compared(weights):
    problems = aime_generator.generate_rows(seed=77, count=12, kinds=["look_up", "largest"])
    right = [
        answer(weights, CONFIG, prompt_messages(row), max_tokens=6) == str(row["answer"]) for row in problems
    ]
    assert sum(right) >= 8


def test_a_checkpoint_of_the_trained_weights_holds_them(weights, tmp_path):
    written = load_file(write_checkpoint(tmp_path, weights="trained") / "model.safetensors")
    assert all(torch.equal(written[name], weight) for name, weight in weights.items())


def test_trained_weights_of_other_sizes_are_refused(tmp_path):
    with pytest.raises(ValueError, match="default ones"):
        write_checkpoint(tmp_path, config=KimiK3NanoConfig(num_hidden_layers=4), weights="trained")
