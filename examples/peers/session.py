"""What a process knows of its place among the others, and how they meet outside of the exchanges."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One process of a job."""

    process: int
    gpu: int
    """Its number on this host."""
    num_processes: int
    num_ranks: int
    lines: Path
    """Where it writes what it has to say."""
    num_iterations: int
    """Exchanges of each case of `iterations`."""
    case_s: float
    """Longest time of one such case."""

    @property
    def num_local(self) -> int:
        """Ranks of this process."""
        return self.num_ranks // self.num_processes

    @property
    def first_rank(self) -> int:
        """Of this process."""
        return self.process * self.num_local

    @property
    def device(self) -> torch.device:
        """The GPU of this process."""
        return torch.device("cuda", self.gpu)

    def say(self, event: str, **content: Any) -> None:
        """Writes a line, with the monotonic time, which all processes of a host share."""
        with self.lines.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({"event": event, "at": time.monotonic(), **content}) + "\n")

    def gather(self, mine: Any) -> Sequence[Any]:
        """What every process brought, in their order; raises when one does not come within the group's timeout."""
        found: list[Any] = [None] * self.num_processes
        dist.all_gather_object(found, mine)
        return found

    def meet(self) -> None:
        """Returns when the GPUs of all processes have done all that they were given."""
        torch.cuda.synchronize(self.device)
        self.gather(None)
