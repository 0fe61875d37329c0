"""Ranks of a served slice: processes that all obey, must answer alike, and end together."""

import json
import os
import signal
import sys
import time
from types import SimpleNamespace

import pytest

from examples.peers import slice as subject
from examples.peers.environment import (
    NO_MULTICAST,
    engine_environment,
    free_ports,
    rank_environment,
    refuse_multicast,
)
from examples.peers.lost import is_running, lose_rank, lose_worker
from examples.peers.ranks import Ranks, RanksDiffer, RanksFailed, find_lines, shorten
from examples.peers.slice import Session, first_differences, lose, measure, wait_until_ready, without_nan

OBEY = """
import json, os, sys, time
def answer(**content): print(json.dumps(content), flush=True)
answer(ready=1.0)
for line in sys.stdin:
    asked = json.loads(line)
    {body}
"""
SAME, OTHERS = "answer(logprobs=[asked['n']])", "answer(logprobs=[os.environ['RANK']])"
DECODES = "answer(running=100); time.sleep(60)"
ENGINE = """
import json, os, signal, subprocess, sys, time
def answer(**content): print(json.dumps(content), flush=True)
workers = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
answer(ready=1.0)
for line in sys.stdin:
    if json.loads(line)["do"] == "workers":
        answer(pids=[worker.pid for worker in workers])
    else:
        answer(running=100)
        {watch}
        answer(lost="EngineDeadError: it says", causes=[], steps=123)
"""
WATCHES = "workers[1].wait(); print('Worker proc 1 died unexpectedly', file=sys.stderr, flush=True);"


@pytest.fixture
def ranks(tmp_path):
    """Starts two ranks (or as many as there are scripts) that run a script; they are ended afterwards."""
    started = []

    def start(*scripts):
        scripts = scripts if len(scripts) > 1 else scripts * 2
        logs = [tmp_path / f"{len(started)}-{rank}.log" for rank in range(len(scripts))]
        seen = [rank_environment(rank, len(scripts), 1) for rank in range(len(scripts))]
        started.append(Ranks([[sys.executable, "-S", "-c", script] for script in scripts], logs, seen))
        started[-1].deadline = time.monotonic() + 60
        return started[-1]

    yield start
    for one in started:
        one.end()


@pytest.fixture
def engine(tmp_path):
    """Starts one process that has workers of its own; it is ended afterwards."""
    log, started = tmp_path / "engine.log", []

    def start(watch):
        script = ENGINE.format(watch=watch)
        started.append(Ranks([[sys.executable, "-S", "-c", script]], [log], [engine_environment(2, 25)]))
        started[-1].deadline = time.monotonic() + 60
        started[-1].answer()
        return started[-1], log

    yield start
    for one in started:
        one.end()


def session(tmp_path, limit=60.0):
    return Session(tmp_path / "slice.json", time.monotonic() + limit)


def written(tmp_path):
    return json.loads((tmp_path / "slice.json").read_text())


def test_every_rank_obeys_and_one_answers_for_all(ranks):
    found = ranks(OBEY.format(body=SAME))
    assert [found.answer(), found.ask("force", n=7)] == [{"ready": 1.0}, {"logprobs": [7]}]


@pytest.mark.parametrize("body", [OTHERS, "answer(tokens=[os.environ['RANK']])"])
def test_ranks_that_have_other_bits_are_an_error(ranks, body):
    found = ranks(OBEY.format(body=body))
    found.answer()
    with pytest.raises(RanksDiffer, match=r"ranks \[1\] answered other"):
        found.ask("force", n=7)


def test_of_times_the_rank_that_waited_least_for_the_others_is_believed(ranks):
    found = ranks(OBEY.format(body="answer(busy_us=9.0 - int(os.environ['RANK']), names=os.environ['RANK'])"))
    found.answer()
    assert found.ask("time") == {"busy_us": 8.0, "names": "1", "busy_us_of_ranks": [9.0, 8.0]}


def test_a_rank_that_has_ended_is_named_with_its_logs_end(ranks):
    script = "import sys; print('out of memory', file=sys.stderr); raise SystemExit(5)"
    with pytest.raises(RanksFailed, match=r"rank \d ended with 5; its log ends: out of memory"):
        ranks(script).answer()


def test_the_reason_of_a_rank_that_refuses_is_told(ranks):
    with pytest.raises(RanksFailed, match="rank 0 refused: UnsupportedDeployment: local_heads"):
        ranks(
            'print(\'{"refused": "UnsupportedDeployment: local_heads"}\')', "import time; time.sleep(60)"
        ).answer()


def test_a_rank_that_ended_is_told_at_once_while_the_other_hangs_and_none_is_left(ranks):
    """Rank 0 would be waited for first."""
    start = time.monotonic()
    found = ranks("import time; time.sleep(60)", "raise SystemExit(3)")
    with pytest.raises(RanksFailed, match="rank 1 ended with 3"):
        found.answer()
    assert found.has_ended and time.monotonic() - start < 10


def test_a_rank_that_is_silent_is_named_when_the_time_is_over(ranks):
    found = ranks(OBEY.format(body="pass"), OBEY.format(body="answer(done=1)"))
    found.answer()
    found.deadline = time.monotonic() + 0.5
    with pytest.raises(RanksFailed, match=r"ranks \[0\] did not answer in time"):
        found.ask("time")
    with pytest.raises(RanksFailed, match=r"ranks \[0\] did not answer in time"):
        found.ask("time")


def test_a_rank_that_ended_is_seen_though_a_child_of_it_holds_its_pipe(ranks):
    script = "import os, time\nif os.fork() == 0: time.sleep(30)\nos._exit(7)"
    with pytest.raises(RanksFailed, match="ended with 7"):
        ranks(script).answer()


def test_what_is_no_json_is_an_error_and_not_an_exception_of_another_kind(ranks):
    with pytest.raises(RanksFailed, match="no JSON"):
        ranks("print('INFO: starting')").answer()


@pytest.mark.parametrize("seen", [rank_environment(1, 2, 5), engine_environment(2, 25)])
def test_no_process_makes_a_multicast_object(seen):
    assert NO_MULTICAST.items() <= seen.items()
    assert {"NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS"} <= seen.keys()


@pytest.fixture
def switched(monkeypatch):
    """A process with every switch set, and a PyTorch that answers what it is told."""
    symmetric = pytest.importorskip("torch._C._distributed_c10d")

    def say(answer):
        memory = SimpleNamespace(has_multicast_support=answer)
        monkeypatch.setattr(symmetric, "_SymmetricMemory", memory)

    for name, value in NO_MULTICAST.items():
        monkeypatch.setenv(name, value)
    return say


def test_a_process_with_all_switches_may_start(switched):
    switched(lambda *_: False)
    assert refuse_multicast() is None


def test_a_process_refuses_to_start_where_multicast_is_offered_all_the_same(switched):
    switched(lambda *_: True)
    with pytest.raises(RuntimeError, match="offers multicast"):
        refuse_multicast()


@pytest.mark.parametrize("name", NO_MULTICAST)
def test_a_process_refuses_to_start_without_one_of_the_switches(switched, monkeypatch, name):
    switched(lambda *_: False)
    monkeypatch.delenv(name)
    with pytest.raises(RuntimeError, match=f"not set: {name}$"):
        refuse_multicast()


def test_ranks_know_their_place(ranks):
    """Both have ended when they are heard."""
    found = ranks(
        "import json, os\nprint(json.dumps({'tokens': [os.environ[n] for n in ('RANK', 'WORLD_SIZE')]}))"
    )
    with pytest.raises(RanksDiffer, match=r"ranks \[1\] answered other tokens"):
        found.answer()


def test_a_rank_that_answered_and_ended_is_missed_at_the_next_answer(ranks):
    found = ranks("print('{\"ready\": 1}')")
    assert found.answer() == {"ready": 1}
    with pytest.raises(RanksFailed, match=r"rank \d ended with 0"):
        found.ask("time")


def test_engines_that_start_side_by_side_meet_at_ports_of_their_own():
    found = free_ports(12)
    assert len(set(found)) == 12 and all(20_000 <= port < 30_000 for port in found)


def test_a_leg_that_fails_is_recorded_and_the_next_one_runs(ranks, tmp_path, monkeypatch):
    monkeypatch.setattr(
        subject, "agreement", lambda arms, names: {names[0]: arms["stock", 5].ask("force", n=1)}
    )
    monkeypatch.setattr(subject, "layer_times", lambda *_: [{"stock": "a row"}])
    arms = {(arm, 5): ranks(OBEY.format(body=OTHERS)) for arm in subject.ARMS}
    run = session(tmp_path)
    wait_until_ready(run, {f"{arm} 5": one for (arm, _), one in arms.items()})
    measure(run, arms, [1], 1, ["batch 1"])
    found = written(tmp_path)
    assert list(found["failed"]) == ["agreement, batch 1", "greedy", "about"]
    assert found["layers, batch 1"] == {"stock": "a row"}


def test_an_arm_that_does_not_start_leaves_the_other_its_times(ranks, tmp_path, monkeypatch):
    monkeypatch.setattr(subject, "layer_times", lambda arms, *_: [{key[0]: 1.0 for key in arms}])
    arms = {
        ("stock", 5): ranks(OBEY.format(body="answer(x=1)")),
        ("specialised", 5): ranks("raise SystemExit(5)"),
    }
    run = session(tmp_path)
    wait_until_ready(run, {arm: one for (arm, _), one in arms.items()})
    measure(run, arms, [1], 1, ["batch 1"])
    found = written(tmp_path)
    assert list(found["ready_s"]) == ["stock"] and found["layers, batch 1"] == {"stock": 1.0}
    assert "specialised does not serve" in found["failed"]["agreement, batch 1"]
    assert "ended with 5" in found["failed"]["start of specialised"]


def test_an_engine_that_fails_soon_is_started_once_more_and_that_is_told(ranks, tmp_path):
    mark = tmp_path / "was here"
    first = f"import pathlib, sys\nmark = pathlib.Path({str(mark)!r})\n"
    first += "if not mark.exists(): mark.touch(); sys.exit(4)\n"
    one = ranks(first + OBEY.format(body="answer(done=1)"), OBEY.format(body="answer(done=1)"))
    run = session(tmp_path)
    wait_until_ready(run, {"stock 5": one})
    assert written(tmp_path)["ready_s"] == {"stock 5": 1.0} and one.ask("about") == {"done": 1}
    assert "rank 0 ended with 4" in written(tmp_path)["started_again"]["stock 5"]


def test_a_leg_does_not_begin_when_the_time_is_over(tmp_path):
    session(tmp_path, -1.0).leg("late", [], lambda: 1)
    assert written(tmp_path)["failed"] == {"late": "the run's time was over"}


def test_the_record_is_json_where_a_number_is_none():
    assert without_nan({"a": [float("nan"), 1.0], "b": float("inf")}) == {"a": [None, 1.0], "b": None}


def test_a_killed_worker_is_told_by_its_engine(engine):
    process, log = engine(WATCHES + " workers[0].kill(); workers[0].wait()")
    found = lose_worker(process, signal.SIGKILL, 4, log)
    assert found["error"] == "EngineDeadError: it says" and found["error_after_s"] < 10
    assert found["workers_gone_after_s"] < 10 and found["log"] == ["Worker proc 1 died unexpectedly"]


def test_a_worker_that_outlives_its_engine_is_a_failure(engine, monkeypatch):
    monkeypatch.setattr("examples.peers.lost._GONE_S", 0.3)
    process, log = engine(WATCHES)
    with pytest.raises(RuntimeError, match="1 of 2 workers were left behind"):
        lose_worker(process, signal.SIGKILL, 4, log)


def test_an_engine_that_hangs_on_a_stalled_worker_is_a_failure_and_leaves_nothing(engine):
    """`wait` does not return for a process that is only stopped."""
    process, log = engine(WATCHES)
    process.deadline = time.monotonic() + 1.5
    pids = process.ask("workers")["pids"]
    with pytest.raises(RanksFailed, match="did not answer in time"):
        lose_worker(process, signal.SIGSTOP, 4, log)
    for _ in range(100):
        if not any(map(is_running, pids)):
            break
        time.sleep(0.05)
    assert not any(map(is_running, pids))


def test_a_process_that_nobody_waited_for_does_not_run():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    for _ in range(100):
        if not is_running(pid):
            break
        time.sleep(0.02)
    assert not is_running(pid) and is_running(os.getpid())
    os.waitpid(pid, 0)


@pytest.mark.parametrize(
    ("number", "said"),
    [(signal.SIGKILL, "rank 1 died of SIGKILL"), (signal.SIGSTOP, "did not answer in time")],
)
def test_a_rank_that_is_lost_ends_all_within_the_wait(ranks, number, said):
    found = ranks(OBEY.format(body=DECODES))
    found.answer()
    lost = lose_rank(found, number, 4, 1.0)
    assert said in lost["error"] and lost["all_ended_after_s"] < 10 and found.has_ended


def test_ranks_that_go_on_when_one_is_lost_are_a_failure(ranks):
    found = ranks(OBEY.format(body="answer(running=100); answer(done=1)"))
    found.answer()
    with pytest.raises(RuntimeError, match="all ranks answered after one was lost"):
        lose_rank(found, signal.SIGCONT, 4, 1.0)


def test_both_ways_to_lose_a_rank_are_legs(engine, ranks, tmp_path):
    killed, log = engine(WATCHES + " workers[0].kill(); workers[0].wait()")
    run = session(tmp_path)
    arms = {("stock", 5): ranks(OBEY.format(body=DECODES))}
    arms["stock", 5].answer()
    lose(run, arms, {"killed": killed}, {"killed": log})
    assert {"killed", "killed, launched from outside"} <= written(tmp_path).keys()


def test_where_greedy_texts_part_the_gap_of_the_reference_is_told():
    reference = {"tokens": [[1, 2, 3], [4, 5, 6]], "gaps": [[9.0, 9.0, 9.0], [9.0, 0.01, 9.0]]}
    assert first_differences(reference, [[1, 2, 3], [4, 7, 8]]) == {
        "requests": 2,
        "tokens": 6,
        "same": 1,
        "parted": [{"request": 1, "place": 1, "gap": 0.01}],
    }


def test_a_long_log_keeps_its_first_and_its_last_lines(tmp_path):
    log = tmp_path / "rank.log"
    log.write_text("first\n" + "x" * 500 + "\nUsing ['CUSTOM', 'PYNCCL'] all-reduce backends\nlast\n")
    assert find_lines(log, ["all-reduce backends"]) == ["Using ['CUSTOM', 'PYNCCL'] all-reduce backends"]
    shorten(log, 90)
    assert log.read_text().startswith("first") and log.read_text().endswith("last\n")
