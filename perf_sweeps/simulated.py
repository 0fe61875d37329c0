"""Arms that answer by arithmetic: a rehearsal of a sweep, its schedule and its statistics, without an engine."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp

from harness.model.words import Arm
from perf_sweeps.block import BlockTask, MachineState, Visit
from perf_sweeps.cell import Engine, Workload

HARDWARE = "simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What the simulated arms do. It is an `OpenHost`: calling it gives a host."""

    ratio: float = 1.0
    """Candidate's time over the baseline's, where `ratios` names no other."""
    ratios: Mapping[int, float] = field(default_factory=dict)
    """The same by batch."""
    noise: float = 0.002
    """Standard deviation of a visit's log time."""
    drift: float = 0.001
    """By how much a visit is slower than the one before it, on the log scale."""

    def __call__(self, _engine: Engine, _arms: tuple[Arm, ...]) -> SimulatedHost:
        """A host of its own."""
        return SimulatedHost(self)


@dataclass(slots=True)
class SimulatedHost:
    """One host; the same plan gives the same visits on every machine."""

    simulation: Simulation
    hardware: str = HARDWARE
    host: str = HARDWARE
    gpu_topology: str = ""

    def visit(self, task: BlockTask, arm: Arm, position: int) -> Visit:
        """The visit by arithmetic: a step takes 1 ms and 0.1 ms a request."""
        cell, how = task.cell, self.simulation
        rng = random.Random(f"{task.seed}/{cell.name}/{task.index}/{position}")
        ratio = how.ratios.get(cell.batch, how.ratio) if arm is Arm.CANDIDATE else 1.0
        slower = ratio * exp(rng.gauss(0.0, how.noise) + how.drift * position)
        step_ms = (1 + 0.1 * cell.batch) * slower
        ttft_ms = 0.05 * cell.input_len * slower + step_ms
        decodes = cell.workload not in (Workload.PREFILL, Workload.MIXED)
        accepted = cell.engine.acceptance_length or 1.0
        outputs = (cell.output_len,) * cell.batch
        duration_s = (ttft_ms + (cell.output_len - 1) * step_ms / accepted) / 1000
        return Visit(
            arm=arm,
            position=position,
            duration_s=duration_s,
            num_asked=cell.batch,
            num_answered=cell.batch,
            num_failed=0,
            input_lens=(cell.input_len,) * cell.batch,
            output_lens=outputs,
            ttfts_ms=(ttft_ms,) * cell.batch,
            turn_token_ms=(step_ms,) * cell.batch if cell.workload is Workload.AGENT else (),
            decode_step_ms=step_ms if decodes else None,
            acceptance_length=accepted if cell.workload is Workload.SPECULATIVE else None,
            counted_tokens=sum(outputs),
            wall_s=duration_s,
            specialized_share=float(arm is Arm.CANDIDATE),
            num_ranks=cell.engine.tensor_parallel,
            machine=MachineState(foreign_cpu_share=0.0),
        )

    def close(self) -> None:
        """Nothing is running."""
