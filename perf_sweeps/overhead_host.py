"""The tracer's overhead: one engine, whose tracer is set aside by turns within the decode of one batch.

Two processes of the same code differ by more than the tracer takes, and so do two seconds of one process. Here the arms
are turns of a few dozen steps each, one after the other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from harness.engine.block_server import BlockServer, TracedTurn
from harness.model.completion import CompletionRequest
from harness.model.errors import EvidenceError
from harness.model.words import Arm
from perf_sweeps.block import BlockTask, MachineState, Visit
from perf_sweeps.engine_host import require_sound, vocabulary_of
from perf_sweeps.gpu_sampler import GpuSampler, Observe
from perf_sweeps.machine_load import LoadMeter
from perf_sweeps.prompts import PromptSource


class OverheadHost:
    """One engine with the path on. Visits of the candidate are traced, those of the baselines are not."""

    gpu_topology = ""

    def __init__(
        self,
        server: BlockServer,
        *,
        passages: Sequence[str],
        seed: int,
        hardware: str,
        host: str,
        observe: Observe = lambda: None,
    ) -> None:
        """Starts the engine; raises `EngineError`. `observe` reads the GPU."""
        self.hardware, self.host = hardware, host
        self._server, self._observe = server, observe
        server.start()
        try:
            require_sound(Arm.CANDIDATE, server.spec)
        except BaseException:
            server.kill()
            raise
        self._prompts = PromptSource(
            server.tokenize, passages, seed=seed, vocabulary=vocabulary_of(server.spec.model_dir)
        )
        self._warm: set[str] = set()
        self._visits: tuple[Visit, ...] = ()

    def visit(self, task: BlockTask, arm: Arm, position: int) -> Visit:
        """A turn of the block, all of which are taken with its first."""
        if position == 0:
            if task.cell.name not in self._warm:
                self._turns(task, "warm")
                self._warm.add(task.cell.name)
            self._visits = self._measure(task)
        visit = self._visits[position]
        assert visit.arm is arm
        return visit

    def _turns(self, task: BlockTask, name: str) -> tuple[TracedTurn, ...]:
        cell = task.cell
        num_turns = len(task.order)
        requests = [
            CompletionRequest(
                item=f"r{index}",
                prompt_token_ids=prompt,
                max_tokens=num_turns * cell.output_len + 2,
                ignore_eos=True,
            )
            for index, prompt in enumerate(self._prompts.of(cell, task.index, 0))
        ]
        self._server.reset_prefix_cache()
        return self._server.alternate(
            requests,
            [arm is Arm.CANDIDATE for arm in task.order],
            num_steps=cell.output_len,
            suite=f"{cell.name}/{task.index}/{name}",
        )

    def _measure(self, task: BlockTask) -> tuple[Visit, ...]:
        cell = task.cell
        with GpuSampler(self._observe) as sampler:
            meter, started = LoadMeter(), time.monotonic()
            turns = self._turns(task, "timed")
            wall_s, share = time.monotonic() - started, meter.foreign_share()
        machine = MachineState(foreign_cpu_share=share, num_cores=os.cpu_count()).model_copy(
            update=sampler.state()
        )
        _require_told(task, turns)
        _require_clock(turns, wall_s)
        return tuple(
            Visit(
                arm=arm,
                position=position,
                duration_s=turn.seconds,
                num_asked=cell.batch,
                num_answered=cell.batch,
                num_failed=0,
                input_lens=(cell.input_len,) * cell.batch,
                output_lens=(cell.output_len,) * cell.batch,
                counted_tokens=turn.num_tokens,
                machine=machine,
            )
            for position, (arm, turn) in enumerate(zip(task.order, turns, strict=True))
        )

    def close(self) -> None:
        """Ends the engine."""
        self._server.kill()


def _require_told(task: BlockTask, turns: Sequence[TracedTurn]) -> None:
    """Raises `EvidenceError` unless the tracer wrote each step of its own turns, and none of the others."""
    if len(turns) != len(task.order):
        raise EvidenceError("overhead-turns", f"{len(turns)} turns of {len(task.order)} were told")
    for arm, turn in zip(task.order, turns, strict=True):
        expected = task.cell.output_len if arm is Arm.CANDIDATE else 0
        if turn.num_rows != expected:
            message = f"{turn.num_rows} rows came of a turn of {arm}, not {expected}: nothing was compared"
            raise EvidenceError("overhead-rows", message)


def _require_clock(turns: Sequence[TracedTurn], wall_s: float) -> None:
    """Raises `EvidenceError` where the turns together are longer than the harness's clock says."""
    if (told := sum(turn.seconds for turn in turns)) > 1.01 * wall_s:
        message = f"the engine says {told:.2f} s and the harness's clock {wall_s:.2f} s"
        raise EvidenceError("overhead-clock", message)
