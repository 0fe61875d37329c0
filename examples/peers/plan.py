"""What a run consists of: jobs of one group of processes each, their parts, and their cases. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

GPUS = (2, 4, 8)
DEPLOYED_RANKS = 8
"""Ranks of the TP8 deployment: on fewer GPUs several ranks share one, and their peers' stores cross as well."""
FORMS = ("one-shot", "two-shot")
ARMS = (*FORMS, "nccl")
LAUNCHES = ("plain", "dependent")
UPDATES = ("add", "block write")
PLACES = ("publish", "consume")
BATCHES = (1, 2, 4, 8, 16, 32, 64)
PAYLOADS = (
    *("normal", "cancelling", "negative zeros", "nearly overflowing", "tiny"),
    *("one rank infinite", "one rank NaN"),
)
ROW_EXCHANGES = ("dcp merge", "front", "latent", "output")
"""Exchanges whose rows travel by kernels of their own."""
LOSSES: Mapping[str, str] = {"killed": "SIGKILL", "stalled": "SIGSTOP"}
"""What is done to the last process in the middle of exchanges, by part."""
START_LIMIT_S = 120.0
"""For all processes to import, compile and meet; they do so side by side."""
NOT_BUILT: Mapping[str, str] = {
    "fused row exchanges": "attention and experts neither publish nor poll: rows are copied in and out",
    "sharded front and up-projection": "no kernel computes a rank's columns of them: the rows exchanged are drawn",
}
"""What a run cannot show, and why."""

Part = Literal["payloads", "iterations", "delays", "absence", "times", "killed", "stalled", "rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Processes that start together, meet, and go through parts one after the other."""

    num_processes: int
    num_ranks: int
    parts: tuple[Part, ...]
    limit_s: float
    """After it the processes are ended; the start is not counted."""

    @property
    def name(self) -> str:
        """Unique in a run."""
        return f"{self.parts[0]}, {self.num_ranks} ranks"


def make_jobs(num_gpus: int) -> tuple[Job, ...]:
    """The jobs of a run, in their order; raises ValueError for other numbers of GPUs than 2, 4 and 8."""
    if num_gpus not in GPUS:
        raise ValueError(f"ranks: got {num_gpus}, expected one of {GPUS}")
    exchanges: tuple[Part, ...] = ("payloads", "iterations", "delays", "absence")
    made: list[tuple[int, tuple[Part, ...], float]] = [
        (num_gpus, exchanges, 90.0),
        (num_gpus, ("times",), 60.0),
        (num_gpus, ("killed",), 40.0),
        (num_gpus, ("stalled",), 40.0),
        (num_gpus, ("rows",), 60.0),
    ]
    if num_gpus != DEPLOYED_RANKS:
        made.append((DEPLOYED_RANKS, exchanges, 90.0))
    return tuple(
        Job(num_processes=num_gpus, num_ranks=ranks, parts=parts, limit_s=limit)
        for ranks, parts, limit in made
    )


def cases(part: Part, num_processes: int, num_ranks: int) -> tuple[str, ...]:
    """Every case that each process must answer for, in order."""
    if part == "payloads":
        return tuple(f"{f}, {update}, {name}" for f in FORMS for update in UPDATES for name in PAYLOADS)
    if part == "iterations":
        return tuple(f"{form}, {launch}" for form in FORMS for launch in LAUNCHES)
    if part == "delays":
        late = range(num_processes)
        return tuple(f"{f}, process {p} late to {place}" for f in FORMS for p in late for place in PLACES)
    if part == "absence":
        return tuple(f"{form}, rank {rank} absent" for form in FORMS for rank in (0, num_ranks - 1))
    if part == "rows":
        return tuple(f"{exchange}, {launch}" for exchange in ROW_EXCHANGES for launch in LAUNCHES)
    if part == "times":
        return tuple(f"batch {batch}" for batch in BATCHES)
    return (f"process {num_processes - 1} {part}",)


def render_plan(num_gpus: int, num_iterations: int) -> str:
    """The jobs with their limits, and what would not run, as text."""
    jobs = make_jobs(num_gpus)
    lines = [
        f"{num_gpus} GPUs of one host, one process each; all start at once: at most {START_LIMIT_S:.0f} s"
    ]
    for job in jobs:
        lines.append(
            f"{job.num_ranks} ranks ({job.num_ranks // num_gpus} a GPU): at most {job.limit_s:.0f} s"
        )
        for part in job.parts:
            count = len(cases(part, num_gpus, job.num_ranks))
            of = f" of {num_iterations:,} exchanges" if part == "iterations" else ""
            lines.append(f"  {part}: {count} case{'s' if count > 1 else ''}{of}")
    lines += ["not run:", *(f"  {name}: {why}" for name, why in NOT_BUILT.items())]
    total = START_LIMIT_S + sum(job.limit_s for job in jobs)
    lines.append(f"all together: at most {total:.0f} s")
    return "\n".join(lines)
