"""Samples the GPUs' clocks, power, temperature and throttle reasons while an arm is visited, by `nvidia-smi`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from types import TracebackType
from typing import Any, Self

from harness.model.evidence import SLOWDOWNS

INTERVAL_MS = 200
FIELDS = ("clocks.sm", "power.draw", "temperature.gpu", "clocks_event_reasons.active")


class GpuSampler:
    """Samples between entering and leaving; where there is no `nvidia-smi` it samples nothing and says so."""

    def __init__(self, find: Callable[[str], str | None] = shutil.which) -> None:
        self._program = find("nvidia-smi")
        self._process: subprocess.Popen[str] | None = None
        self._lines: Sequence[str] = ()

    def __enter__(self) -> Self:
        if self._program is not None:
            query = f"--query-gpu={','.join(FIELDS)}"
            self._process = subprocess.Popen(
                (self._program, query, "--format=csv,noheader,nounits", f"--loop-ms={INTERVAL_MS}"),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._lines = self._process.communicate()[0].splitlines()

    def state(self) -> dict[str, Any]:
        """The fields of a `MachineState` that the samples fill."""
        return parse_samples(self._lines)


def parse_samples(lines: Sequence[str]) -> dict[str, Any]:
    """Means and reasons of the lines that hold four values; what a GPU does not report is left out of its mean."""
    rows = [parts for line in lines if len(parts := [p.strip() for p in line.split(",")]) == len(FIELDS)]
    if not rows:
        return {"num_gpu_samples": 0}
    bits = [int(row[3], 16) for row in rows if row[3].startswith("0x")]
    return {
        "num_gpu_samples": len(rows),
        "sm_clock_mhz": _mean(row[0] for row in rows),
        "power_w": _mean(row[1] for row in rows),
        "temperature_c": _mean(row[2] for row in rows),
        "throttle_reasons": tuple(name for bit, name in SLOWDOWNS.items() if any(b & bit for b in bits)),
    }


def _mean(values: Iterable[str]) -> float | None:
    numbers = [float(v) for v in values if v.replace(".", "", 1).isdigit()]
    return fmean(numbers) if numbers else None
