"""What a run asks of its arms, in which order, and what of it is written."""

import argparse
import json
import math
from types import SimpleNamespace

import pytest

from examples.slice.__main__ import ARMS, DEPTHS, Record, layer_times, measure
from examples.slice.arm import Arm
from harness.engine.step_profile import Span

CELLS = {"contexts": [1024, 32768], "batches": [1, 8], "long_batches": [8], "prefills": [256]}


class Scripted:
    """An arm whose layers take 3 microseconds (2 where specialised); notes what it is asked."""

    def __init__(self, arm, depth, asked):
        self.arm, self.depth, self.asked = arm, depth, asked
        self.layer_us = 3.0 if arm == "stock" else 2.0

    def ask(self, do, **arguments):
        self.asked.append((self.arm, self.depth, do, arguments))
        busy_us = 10 + self.layer_us * self.depth
        answers = {
            "fill": {"tokens": [arguments.get("context", 0) + 4]},
            "time": {"busy_us": busy_us, "kernels": 7 + 2 * self.depth, "wall_us": 99.0, "names": {}},
            "prefill": {"busy_us": [busy_us]},
            "force": {"logprobs": [[{"1": -0.5}]]},
        }
        return answers.get(do, {})


@pytest.fixture
def asked():
    return []


@pytest.fixture
def arms(asked):
    return {(arm, depth): Scripted(arm, depth, asked) for arm in ARMS for depth in DEPTHS}


def run(tmp_path, arms, deadline=math.inf, **more):
    options = {**CELLS, "schedules": ["batch 1"], "rounds": 3, "soak_steps": 0, **more}
    record = Record(tmp_path, deadline)
    measure(record, arms, argparse.Namespace(**options))
    return json.loads((tmp_path / "slice.json").read_text())


def test_later_contexts_have_batches_of_their_own(tmp_path, arms):
    rows = run(tmp_path, arms)["layers"]
    assert [(row["context"], row["batch"]) for row in rows] == [(1024, 1), (1024, 8), (32768, 8)]


def test_without_batches_of_their_own_later_contexts_have_those_of_the_first(tmp_path, arms):
    rows = run(tmp_path, arms, long_batches=None)["layers"]
    assert [(row["context"], row["batch"]) for row in rows][2:] == [(32768, 1), (32768, 8)]


def test_a_prompt_is_prefilled_once_for_all_rounds_of_a_batch(arms, asked):
    layer_times(arms, [8], 131072, rounds=3)
    mine = [(do, arguments) for arm, depth, do, arguments in asked if (arm, depth) == ("stock", 9)]
    fill = ("fill", {"batch": 8, "context": 131072, "steps": 60})
    assert mine == [fill, *[("time", {"steps": 20})] * 3, ("empty", {})]


def test_arms_are_timed_by_turns_and_in_both_orders(arms, asked):
    layer_times(arms, [1], 1024, rounds=2)
    turns = [(arm, depth) for arm, depth, do, _ in asked if do == "time"]
    assert turns[:4] == turns[4:][::-1] and len(set(turns[:4])) == 4


def test_a_layer_is_what_four_more_layers_add(arms):
    (row,) = layer_times(arms, [1], 1024, rounds=2)
    assert (row["stock"]["layer_us"], row["specialised"]["layer_us"]) == ([3.0, 3.0], [2.0, 2.0])
    assert (row["ratio"], row["stock"]["layer_kernels"]) == (pytest.approx(2 / 3), 2.0)


def test_the_record_is_there_before_the_next_part_begins(tmp_path, arms):
    def fail(*_, **__):
        raise RuntimeError("out of memory")

    arms["stock", 9].ask = lambda do, **more: fail() if more.get("context") == 32768 else Scripted.ask(
        SimpleNamespace(arm="stock", depth=9, layer_us=3.0, asked=[]), do, **more
    )  # fmt: skip
    with pytest.raises(RuntimeError):
        run(tmp_path, arms)
    found = json.loads((tmp_path / "slice.json").read_text())
    assert (len(found["layers"]), set(found)) == (2, {"layers", "agreement", "about", "prefill"})


def test_no_part_begins_when_the_time_is_over_and_each_is_named(tmp_path, arms, asked):
    found = run(tmp_path, arms, deadline=-math.inf, soak_steps=10)
    assert {do for _, _, do, _ in asked} == {"about"}
    assert found["left_out"] == [
        *("layers, batch 1 of 1024", "layers, batch 8 of 1024", "agreement, batch 1", "prefill, 256"),
        *("layers, batch 8 of 32768", "soak"),
    ]


class Engine:
    """Prefills one request a step and then gives each prefilled one a token a step, as vLLM's engine says it."""

    def __init__(self):
        self.requests = {}

    def add_request(self, name, prompt, params):
        self.requests[name] = [len(prompt["prompt_token_ids"]), params.max_tokens, []]

    def has_unfinished_requests(self):
        return self.get_num_unfinished_requests() > 0

    def get_num_unfinished_requests(self):
        return sum(len(tokens) < most for _, most, tokens in self.requests.values())

    def step(self):
        found, may_start = [], True
        for name, (_, most, tokens) in self.requests.items():
            if (tokens or may_start) and len(tokens) < most:
                may_start = may_start and bool(tokens)
                tokens.append(0)
                found.append(
                    SimpleNamespace(request_id=name, outputs=[SimpleNamespace(token_ids=list(tokens))])
                )
        return found


@pytest.fixture
def arm(monkeypatch):
    """An arm over that engine, and a profiler that sees one kernel a step."""
    engine = Engine()
    found = Arm(SimpleNamespace(llm_engine=engine, model_config=SimpleNamespace(get_vocab_size=lambda: 512)))

    def add(num_prompt, _token, count, **_):
        found._next_id += 1
        engine.add_request(
            str(found._next_id), {"prompt_token_ids": [0] * num_prompt}, SimpleNamespace(max_tokens=count)
        )

    def profiled(steps):
        for _ in range(steps):
            engine.step()
        return [Span(1000 * i, 1000 * i + 500, "kernel") for i in range(steps)], 1e-3

    monkeypatch.setattr(found, "_add", add)
    monkeypatch.setattr(found, "_profiled", profiled)
    return found


def test_requests_last_for_all_rounds_that_they_were_filled_for(arm):
    filled = arm.fill(batch=5, context=100, steps=60)
    times = [arm.time(20) for _ in range(3)]
    assert [time["busy_us"] for time in times] == [0.5] * 3
    assert filled["tokens"] == [108, 107, 106, 105, 104]


def test_steps_in_which_a_request_ended_are_not_a_time(arm):
    arm.fill(batch=5, context=100, steps=20)
    with pytest.raises(RuntimeError, match="of 5 requests are left"):
        for _ in range(3):
            arm.time(20)


def test_what_an_earlier_cell_left_does_not_decode_beside_the_next_one(arm):
    arm.fill(batch=5, context=100, steps=60)
    arm.fill(batch=2, context=100, steps=60)
    assert arm._engine.get_num_unfinished_requests() == 2 and arm.time(20)["kernels"] == 1
