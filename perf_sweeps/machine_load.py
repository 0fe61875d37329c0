"""How much of the machine's cores others used over a stretch of time, from /proc."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from pathlib import Path

_BUSY = (0, 1, 2, 5, 6, 7)
"""Columns of /proc/stat: user, nice, system, irq, softirq, steal; idle and iowait are not busy."""
MIN_ELAPSED_S = 0.2
"""The kernel counts in hundredths of a second: shorter stretches say nothing."""


class LoadMeter:
    """Started when it is made; `foreign_cpu_s` tells what others took since."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc, self._started = proc, time.monotonic()
        self._before = self._read()

    def foreign_cpu_s(self) -> float | None:
        """CPU seconds outside this process and its descendants; None where the machine does not say.

        Some sandboxes list their processes and count no busy core at all: that tells nothing of others.
        """
        after = self._read()
        if self._before is None or after is None:
            return None
        busy, own = (b - a for a, b in zip(self._before, after, strict=True))
        return None if busy < own / 2 else max(0.0, busy - own)

    def foreign_share(self) -> float | None:
        """The same as a share of all cores; None where the stretch is too short to tell."""
        elapsed_s, foreign_s = time.monotonic() - self._started, self.foreign_cpu_s()
        if foreign_s is None or elapsed_s < MIN_ELAPSED_S:
            return None
        return foreign_s / (elapsed_s * (os.cpu_count() or 1))

    def _read(self) -> tuple[float, float] | None:
        """Busy seconds of all cores, and of this process and its descendants."""
        tick = os.sysconf("SC_CLK_TCK")
        try:
            columns = (self._proc / "stat").read_text().split("\n", 1)[0].split()[1:]
        except OSError:
            return None
        busy = sum(int(columns[i]) for i in _BUSY) / tick
        return busy, self._own_ticks() / tick

    def _own_ticks(self) -> int:
        children: dict[int, list[int]] = defaultdict(list)
        ticks: dict[int, int] = {}
        for folder in self._proc.iterdir():
            if not folder.name.isdigit():
                continue
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            pid = int(folder.name)
            children[int(fields[1])].append(pid)
            ticks[pid] = sum(map(int, fields[11:15]))
        waiting, total = [os.getpid()], 0
        while waiting:
            pid = waiting.pop()
            total += ticks.get(pid, 0)
            waiting += children[pid]
        return total
