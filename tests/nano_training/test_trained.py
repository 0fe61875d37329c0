"""The trained weights fit the model, are what their record says, and can do what they are there for."""

import hashlib
import json
import sys
from difflib import SequenceMatcher

import pytest
import torch
from safetensors.torch import load_file

from eval_suites import aime_generator, mrcr_generator
from nano_training.answer import FAULTS, answer
from nano_training.chats import prompt_messages, tokenize_chat
from nano_training.checkpoint import TRAINED_WEIGHTS, main
from specialized_path.nano.config import KimiK3NanoConfig
from specialized_path.nano.recompute import recompute_logits
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
    return list(mrcr_generator.generate_rows(seed=77, count=5, num_bytes=400, needles=2))


def mean_score(weights, rows, fault=None):
    scores = []
    for row in rows:
        broken = FAULTS[fault]() if fault else None
        response = answer(weights, CONFIG, prompt_messages(row), max_tokens=80, fault=broken)
        prefix = row["random_string_to_prepend"]
        wanted, got = (text.removeprefix(prefix) for text in (row["answer"], response))
        scores.append(response.startswith(prefix) * SequenceMatcher(None, got, wanted).ratio())
    return sum(scores) / len(scores)


def test_the_file_is_the_recorded_one_each_step_started_from_the_one_before_and_all_is_small():
    record = json.loads(TRAINED_WEIGHTS.with_name("record.json").read_text())
    assert hashlib.sha256(TRAINED_WEIGHTS.read_bytes()).hexdigest() == record["sha256"]
    ends = [step["sha256"] for step in record["steps"]]
    assert [step.get("start") for step in record["steps"]] == [None, *ends[:-1]]
    assert ends[-1] == record["sha256"]
    assert sum(path.stat().st_size for path in TRAINED_WEIGHTS.parent.iterdir()) < 10e6


def test_names_shapes_and_dtypes_are_those_of_the_model(weights):
    seeded = seeded_weights(CONFIG, seed=0)
    assert {n: (w.shape, w.dtype) for n, w in weights.items()} == {
        n: (w.shape, w.dtype) for n, w in seeded.items()
    }


def test_single_and_double_precision_choose_the_same_experts_and_no_decision_is_a_tie(weights, monkeypatch):
    chosen, gaps = [], []
    topk = torch.Tensor.topk

    def recorded_topk(keys, count, **options):
        ranked = keys.sort(-1, descending=True)
        chosen.append(ranked.indices[:, :count].sort(-1).values)
        gaps.append(ranked.values[:, count - 1] - ranked.values[:, count])
        return topk(keys, count, **options)

    monkeypatch.setattr(torch.Tensor, "topk", recorded_topk)
    (row,) = mrcr_generator.generate_rows(seed=77, count=1, num_bytes=1000, needles=4)
    drawn = torch.randint(0, 256, (500,), generator=torch.Generator().manual_seed(2))
    token_ids = [*tokenize_chat(prompt_messages(row)).token_ids, *drawn.tolist()]
    recompute_logits(weights, CONFIG, token_ids)
    recompute_logits({name: weight.double() for name, weight in weights.items()}, CONFIG, token_ids)
    assert len(chosen) == 8
    assert all(torch.equal(single, double) for single, double in zip(chosen[:4], chosen[4:], strict=True))
    assert torch.cat(gaps).min() > 1e-5


def test_texts_are_retrieved(weights, rows):
    assert mean_score(weights, rows) > 0.9


@pytest.mark.parametrize("fault", ["zeroed_state", "frozen_state"])
def test_a_state_lost_after_the_prompt_or_not_written_back_costs_points(weights, rows, fault):
    assert mean_score(weights, rows[:3], fault) < 0.5


def test_sums_are_done(weights):
    problems = aime_generator.generate_rows(seed=77, count=12, kinds=["largest", "step", "sum", "difference"])
    right = [
        answer(weights, CONFIG, prompt_messages(row), max_tokens=6) == str(row["answer"]) for row in problems
    ]
    assert sum(right) >= 10


def test_the_command_writes_a_checkpoint_with_the_trained_weights(weights, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["checkpoint", str(tmp_path)])
    main()
    written = load_file(tmp_path / "model.safetensors")
    assert written.keys() == weights.keys()
    assert all(torch.equal(written[name], weight) for name, weight in weights.items())
