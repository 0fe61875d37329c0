"""A GPU's memory as the cases of one selftest share it: side by side, as far as it goes."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from harness.facts.gpu_state import find_memory

SHARE_BYTES = 27 * 2**29
"""Of a process with one engine of the slice: three held 37 GiB at most (an H200, 2026-11-30), and what follows the
cache step by step needs more."""
_ONE_RUN = 5
"""Shares where the memory is not told: those of one whole run of the tier."""
_POLL_S = 0.2
_MOST = 99


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory:
    """How it is divided."""

    num_shares: int
    share: str
    """Of all, as vLLM takes it; empty: not told."""

    @classmethod
    def measured(cls) -> Self:
        """Of the first visible GPU, as much as is free now."""
        found = find_memory()
        if found is None:
            return cls(num_shares=_ONE_RUN, share="")
        total, free = found
        return cls(num_shares=max(1, free // SHARE_BYTES), share=f"{SHARE_BYTES / total:.4f}")


NOT_MEASURED = GpuMemory(num_shares=_ONE_RUN, share="")


class GpuRoom:
    """Lets processes take shares, in any of the processes that open the same folder.

    The case that needs most in all comes first, whenever it was announced, and none overtakes it; what one process
    needs is given at once or not at all. What is left by a process that died counts no more.
    """

    def __init__(self, folder: Path, memory: GpuMemory) -> None:
        self.memory = memory
        self._waiting, self._taken = folder / "gpu-waiting", folder / "gpu-taken"
        for place in (self._waiting, self._taken):
            place.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def announced(self, needs: Mapping[str, int]) -> Iterator[Announced]:
        """While it lasts, cases that need less wait until each of these processes has taken what it needs."""
        rank = _MOST - min(_MOST, sum(needs.values()))
        mark = f"{rank:02}.{time.monotonic_ns():020}.{os.getpid()}.{secrets.token_hex(4)}"
        tickets = {name: f"{mark}.{name}.{number}" for name, number in needs.items()}
        for ticket in tickets.values():
            (self._waiting / ticket).touch()
        try:
            yield Announced(self, tickets)
        finally:
            for ticket in tickets.values():
                self.give_back(ticket)

    def take(self, ticket: str) -> bool:
        """Takes what a ticket is for, if it is its case's turn and there is room; one ticket of a case at a time."""
        if not self._may_go(ticket):
            return False
        (self._waiting / ticket).rename(self._taken / ticket)
        return True

    def give_back(self, ticket: str) -> None:
        """Whether it was taken or still waits."""
        for place in (self._waiting, self._taken):
            (place / ticket).unlink(missing_ok=True)

    def _may_go(self, ticket: str) -> bool:
        # Only the first case may, so nothing is taken between the two looks; what is given back makes more room.
        if _case_of(_living(self._waiting)[0]) != _case_of(ticket):
            return False
        used = sum(_need(other) for other in _living(self._taken))
        return not used or used + _need(ticket) <= self.memory.num_shares


@dataclass(frozen=True, slots=True)
class Announced:
    """What one case will need."""

    _room: GpuRoom
    _tickets: Mapping[str, str]
    _turn: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def taken(self, process: str) -> Iterator[None]:
        """While it lasts, the process has what was announced for it."""
        ticket = self._tickets[process]
        with self._turn:
            while not self._room.take(ticket):
                time.sleep(_POLL_S)
        try:
            yield
        finally:
            self._room.give_back(ticket)


def _case_of(ticket: str) -> str:
    return ticket.rsplit(".", 2)[0]


def _need(ticket: str) -> int:
    return int(ticket.rpartition(".")[2])


def _living(place: Path) -> list[str]:
    """Tickets of processes that live, in order."""
    names = sorted(path.name for path in place.iterdir())
    return [name for name in names if Path("/proc", name.split(".")[2]).exists()]
