"""Laws of the tracer's own timing, with a made engine whose tracer takes what it is told to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.engine.block_server import TracedTurn
from harness.model.completion import CompletionRequest
from harness.model.words import Arm, Outcome
from perf_sweeps import overhead_host
from perf_sweeps.analysis import Margins, analyse
from perf_sweeps.block import Block, BlockTask, Failure, SweepPlan
from perf_sweeps.measure import run_here
from perf_sweeps.overhead_host import OverheadHost
from perf_sweeps.presets import tracer_overhead

CELLS = tracer_overhead(None)
PLAN = SweepPlan(subject="made", cells=CELLS, num_blocks=8)
MARGINS = Margins(alpha=0.05, margin=0.01)


class MadeServer:
    """A turn takes 0.2 ms, and `cost` of it more where the tracer is on; the machine is never quite even."""

    def __init__(self, cost: float, **told: Any) -> None:
        self.cost, self.told = cost, told
        self.spec = SimpleNamespace(model_dir=Path("nowhere"))
        self.asked: list[tuple[Sequence[CompletionRequest], Sequence[bool]]] = []

    def start(self) -> None:
        """Nothing is to be started."""

    kill = start

    def tokenize(self, text: str) -> tuple[int, ...]:
        return tuple(text.encode())

    def reset_prefix_cache(self) -> None:
        """Nothing is kept."""

    def alternate(
        self, requests: Sequence[CompletionRequest], turns: Sequence[bool], *, num_steps: int, suite: str
    ) -> tuple[TracedTurn, ...]:
        assert suite
        self.asked.append((requests, turns))
        uneven = 1 + 0.0001 * (len(self.asked) % 3)
        return tuple(
            TracedTurn(
                **{
                    "seconds": 2e-4 * (1 + self.cost * is_on) * uneven,
                    "num_tokens": len(requests) * num_steps,
                    "num_rows": num_steps * is_on,
                }
                | self.told
            )
            for is_on in turns
        )


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns of no length on a machine that nobody else uses, by an engine whose tracer lives."""
    meter = SimpleNamespace(foreign_share=lambda: 0.0)
    monkeypatch.setattr(overhead_host, "LoadMeter", lambda: meter)
    monkeypatch.setattr(overhead_host, "require_sound", lambda *_: None)


def measured(server: MadeServer) -> list[Block | Failure]:
    kept: list[Block | Failure] = []

    def open_host(*_: Any) -> OverheadHost:
        text = "some text that is long enough to be cut into prompts of thirty-two bytes"
        return OverheadHost(server, passages=(text,), seed=0, hardware="made", host="made")  # type: ignore[arg-type]

    run_here(PLAN.tasks(), open_host, kept.append, sweep=PLAN.digest, code_digest="")
    return kept


def outcomes(server: MadeServer) -> set[Outcome]:
    kept = measured(server)
    return {c.outcome for c in analyse(PLAN, lambda name: [r for r in kept if r.cell == name], MARGINS).cells}


@pytest.mark.parametrize(("cost", "outcome"), [(0.002, Outcome.PASS), (0.03, Outcome.FAIL)])
def test_what_the_tracer_takes_is_found(
    cost: float, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overhead_host, "_require_clock", lambda *_: None)
    assert outcomes(MadeServer(cost)) == {outcome}


def test_all_turns_of_a_block_are_of_one_batch_and_only_the_candidates_are_traced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(overhead_host, "_require_clock", lambda *_: None)
    server = MadeServer(0.0)
    blocks = [b for b in measured(server) if isinstance(b, Block)]
    # One more each cell, which warms up.
    assert len(server.asked) == len(blocks) + len(CELLS) == (PLAN.num_blocks + 1) * len(CELLS)
    task = BlockTask(cell=CELLS[0], index=0, arms=PLAN.arms, seed=0)
    requests, turns = server.asked[1]
    assert list(turns) == [arm is Arm.CANDIDATE for arm in task.order] and sum(turns) == 2
    assert all(r.max_tokens > len(turns) * CELLS[0].output_len for r in requests)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"num_rows": 0}, "0 rows came of a turn of candidate"),
        ({"num_rows": CELLS[0].output_len}, "rows came of a turn of baseline"),
        ({"seconds": 100.0}, "the harness's clock"),
    ],
    ids=["a tracer that writes nothing", "one that is never set aside", "a clock that runs ahead"],
)
def test_turns_that_are_not_what_they_stand_for_are_no_measurement(told: dict[str, Any], said: str) -> None:
    failures = measured(MadeServer(0.0, **told))
    assert failures and all(isinstance(f, Failure) and f.cause == "measurement" for f in failures)
    assert all(said in f.message for f in failures if isinstance(f, Failure))


def test_tokens_that_did_not_come_void_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overhead_host, "_require_clock", lambda *_: None)
    assert outcomes(MadeServer(0.0, num_tokens=1)) == {Outcome.INCONCLUSIVE}
