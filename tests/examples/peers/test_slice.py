"""Ranks of a served slice: processes that all obey, and must answer alike."""

import json
import sys

import pytest

from examples.peers import slice as subject
from examples.peers.slice import Ranks, RanksDiffer, measure
from tests.examples.peers.good import PLACE

OBEY = """
import json, os, sys
def answer(**content): print(json.dumps(content), flush=True)
answer(ready=1.0)
for line in sys.stdin:
    asked = json.loads(line)
    answer({answer})
"""
SAME, OTHERS = "logprobs=[asked['n']]", "logprobs=[os.environ['RANK']]"


@pytest.fixture
def ranks(tmp_path):
    """Starts two ranks that run a script; they are ended afterwards."""
    started = []

    def start(script):
        logs = [tmp_path / f"{rank}.log" for rank in range(2)]
        started.append(Ranks([[sys.executable, "-S", "-c", script]] * 2, logs, 1))
        return started[-1]

    yield start
    for one in started:
        one.end()


def test_every_rank_obeys_and_one_answers_for_all(ranks):
    found = ranks(OBEY.format(answer=SAME))
    assert [found.answer(), found.ask("force", n=7)] == [{"ready": 1.0}, {"logprobs": [7]}]


def test_ranks_that_have_other_bits_are_an_error(ranks):
    found = ranks(OBEY.format(answer=OTHERS))
    found.answer()
    with pytest.raises(RanksDiffer, match=r"ranks \[1\] answered other log probabilities"):
        found.ask("force", n=7)


def test_times_may_differ_between_ranks(ranks):
    found = ranks(OBEY.format(answer="busy_us=os.environ['RANK']"))
    found.answer()
    assert found.ask("time") == {"busy_us": "0"}


def test_a_rank_that_has_ended_is_named(ranks):
    with pytest.raises(RuntimeError, match="rank 0 ended with 5"):
        ranks("raise SystemExit(5)").answer()


def test_the_reason_of_a_rank_that_refuses_is_told(ranks):
    with pytest.raises(RuntimeError, match="rank 0 refused: UnsupportedDeployment: local_heads"):
        ranks('print(\'{"refused": "UnsupportedDeployment: local_heads"}\')').answer()


def test_ranks_know_their_place_and_make_no_multicast_object(ranks):
    names = [
        "RANK",
        "WORLD_SIZE",
        "NCCL_NVLS_ENABLE",
        "VLLM_ALLREDUCE_USE_SYMM_MEM",
        "VLLM_USE_NCCL_SYMM_MEM",
    ]
    found = ranks(f"import json, os\nprint(json.dumps([os.environ[n] for n in {names}]))")
    lines = [json.loads(process.stdout.readline()) for process in found._ranks]
    assert lines == [["0", "2", "0", "0", "0"], ["1", "2", "0", "0", "0"]]


def test_a_leg_that_fails_is_recorded_and_the_next_one_runs(ranks, tmp_path, monkeypatch):
    monkeypatch.setattr(subject, "collect_place", lambda: PLACE)
    monkeypatch.setattr(subject, "agreement", lambda arms, _names: next(iter(arms.values())).ask("force"))
    monkeypatch.setattr(subject, "layer_times", lambda *_: ["a row"])
    measure({("stock", 5): ranks(OBEY.format(answer=OTHERS))}, [1], 1, tmp_path / "slice.json")
    found = json.loads((tmp_path / "slice.json").read_text())
    assert (list(found["failed"]), found["layers"]) == (["agreement", "about"], ["a row"])


def test_nothing_is_asked_of_engines_that_did_not_start(ranks, tmp_path, monkeypatch):
    monkeypatch.setattr(subject, "collect_place", lambda: PLACE)
    measure({("stock", 5): ranks("raise SystemExit(5)")}, [1], 1, tmp_path / "slice.json")
    assert list(json.loads((tmp_path / "slice.json").read_text())["failed"]) == ["ready_s"]
