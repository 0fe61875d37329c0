"""Laws of what a served visit becomes: the client's account beside the engine's, and a ledger read as it grows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.model.evaluation import SuiteItem
from harness.model.words import Arm
from perf_sweeps.block import Block, MachineState, Visit
from perf_sweeps.cell import Cell, Workload
from perf_sweeps.decode_steps import VisitSteps
from perf_sweeps.engine_host import EngineHost, trace_of
from perf_sweeps.ledger_tail import LedgerTail
from perf_sweeps.replay import ReplayResult, TurnResult
from perf_sweeps.turns import BenchTurn, ClientTurn, ReplayTurn, VisitFrame
from perf_sweeps.void import find_faults
from tests.perf_sweeps.sweeps import decode_cells, plan_of, simulate

STEPS = VisitSteps(
    num_tokens=16, num_prefill_tokens=32, decode_step_ms=2.0, acceptance_length=1.0, specialized_share=1.0
)


FRAME = VisitFrame(
    cell=decode_cells(2)[0], arm=Arm.CANDIDATE, position=0, wall_s=0.02, machine=MachineState()
)


def item(**changed: Any) -> SuiteItem:
    return SuiteItem.model_validate(
        {
            "item": "r0",
            "request_id": "x",
            "concurrency": 2,
            "num_prompt_tokens": 16,
            "token_ids": (1,) * 8,
            "text": "",
            "finish_reason": "length",
            "num_completion_tokens": 8,
            "token_times_ms": tuple(10.0 + i for i in range(8)),
        }
        | changed
    )


def described(*items: SuiteItem, steps: VisitSteps = STEPS) -> Visit:
    return ClientTurn(items).visit(FRAME, steps)


def test_the_client_and_the_engine_give_two_accounts_of_one_visit() -> None:
    visit = described(item(), item())
    assert (visit.output_lens, visit.counted_tokens, visit.decode_step_ms) == ((8, 8), 16, 2.0)
    assert (visit.duration_s, visit.wall_s, visit.ttfts_ms) == (0.017, 0.02, (10.0, 10.0))


def test_prompt_tokens_that_the_engine_did_not_compute_were_cached() -> None:
    steps = VisitSteps(
        num_tokens=16, num_prefill_tokens=20, decode_step_ms=2.0, acceptance_length=1.0, specialized_share=1.0
    )
    assert described(item(), item(), steps=steps).num_cached_tokens == 12


@pytest.mark.parametrize("changed", [{"error": "HTTP 500: no"}, {"token_ids": (), "token_times_ms": ()}])
def test_a_request_with_an_error_or_without_tokens_is_lost(changed: dict[str, Any]) -> None:
    visit = described(item(), item(**changed))
    assert (visit.num_asked, visit.num_answered, visit.num_failed) == (2, 1, 1)


def block_of(visit: Visit) -> Block:
    return simulate(plan_of(decode_cells(2)))[0].model_copy(update={"visits": (visit,)})


def test_a_ledger_is_read_as_it_grows_and_a_line_that_is_not_whole_is_left_for_later(tmp_path: Path) -> None:
    def line(step: int) -> bytes:
        row = {
            "step": step,
            "started_ns": 0,
            "duration_ns": 0,
            "num_reqs": 0,
            "requests": [],
            "decisions": [],
        }
        return json.dumps({"kind": "row", "ran": {}} | row).encode() + b"\n"

    path, tail = tmp_path / "1.jsonl", LedgerTail(tmp_path)
    path.write_bytes(b'{"kind": "header"}\n' + line(0) + line(1)[:9])
    first = [row.step for row in tail.new_rows()]
    path.write_bytes(path.read_bytes()[:-9] + line(1) + line(2))
    assert (first, [row.step for row in tail.new_rows()], tail.new_rows()) == ([0], [1, 2], ())


def test_a_replays_turns_that_were_never_sent_are_asked_and_not_answered() -> None:
    turn = TurnResult(
        conversation="a", turn=0, started_s=0, num_output_tokens=3, wanted_tokens=4, token_ms=2.0
    )
    result = ReplayResult(turns=(turn,), num_turns=3, wall_s=1.0)
    visit = ReplayTurn(result).visit(FRAME, STEPS)
    assert (visit.num_asked, visit.num_answered, visit.num_failed, visit.num_truncated) == (3, 1, 2, 1)


def test_an_agent_cells_conversations_fit_into_its_context_and_share_a_prefix() -> None:
    cell = Cell(workload=Workload.AGENT, batch=3, input_len=400, output_len=40)
    trace = trace_of(cell, "0/0")
    assert max(c.context_tokens for c in trace) <= 440
    assert {(c.prefix, c.prefix_tokens) for c in trace} == {("shared", 200)}
    assert len(trace) >= 3


def bench(**changed: Any) -> Visit:
    result = {
        "duration": 0.018,
        "completed": 2,
        "failed": 0,
        "input_lens": [16, 16],
        "output_lens": [8, 8],
        "ttfts": [0.01, 0.01],
    }
    turn = BenchTurn(text=json.dumps(result | changed), request_ids=("x0", "x1"), output_len=8)
    return turn.visit(FRAME, STEPS)


def test_a_load_generators_counts_stand_beside_the_engines() -> None:
    visit = bench()
    assert (visit.duration_s, visit.wall_s, visit.counted_tokens) == (0.018, 0.02, 16)
    assert find_faults(FRAME.cell, block_of(visit)) == ()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"output_lens": [8, 3]}, "another length"),
        ({"output_lens": [8, 0], "completed": 1, "failed": 1}, "1 of 2 requests"),
        ({"output_lens": [8], "input_lens": [16], "completed": 1, "ttfts": [0.1]}, "1 of 2 requests"),
        ({"input_lens": [16, 15]}, "15"),
        ({"duration": 0.1}, "harness's clock"),
    ],
    ids=["stops early", "loses one", "asks fewer", "other prompts", "another time"],
)
def test_a_load_generator_that_did_other_work_than_it_was_asked_makes_the_block_void(
    changed: dict[str, Any], said: str
) -> None:
    assert said in " ".join(find_faults(FRAME.cell, block_of(bench(**changed))))


def test_the_start_of_the_generator_is_no_fault_and_a_time_shorter_than_the_engines_is() -> None:
    slow_start = bench().model_copy(update={"wall_s": 4.0, "engine_s": 0.017})
    assert find_faults(FRAME.cell, block_of(slow_start)) == ()
    too_short = bench().model_copy(update={"engine_s": 0.03})
    assert "the engine worked for 0.03 s" in " ".join(find_faults(FRAME.cell, block_of(too_short)))


def test_tokens_that_the_engine_never_made_make_the_block_void() -> None:
    visit = bench().model_copy(update={"counted_tokens": 0})
    assert "the engine made 0: cached" in " ".join(find_faults(FRAME.cell, block_of(visit)))


def test_prompts_are_read_by_the_arm_that_is_awake_since_a_stopped_server_answers_nothing() -> None:
    host: Any = EngineHost.__new__(EngineHost)
    host._clients = {arm: arm for arm in Arm}
    host._awake = None
    assert host._reader is Arm.BASELINE
    host._awake = Arm.CANDIDATE
    assert host._reader is Arm.CANDIDATE
