"""Laws of the load meter: own work is not foreign, others' is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perf_sweeps import machine_load
from perf_sweeps.machine_load import LoadMeter

TICK = os.sysconf("SC_CLK_TCK")


def write(proc: Path, *, busy_s: float, own_s: float, child_s: float) -> None:
    """A /proc of three processes: this one, a child of it and a stranger."""
    (proc / "stat").write_text(f"cpu {int(busy_s * TICK)} 0 0 999 999 0 0 0 0 0\n")
    me = os.getpid()
    for pid, parent, seconds in ((me, 1, own_s), (me + 1, me, child_s), (me + 2, 1, 77.0)):
        (proc / str(pid)).mkdir(exist_ok=True)
        ticks = int(seconds * TICK)
        (proc / str(pid) / "stat").write_text(
            f"{pid} (a b) S {parent} {' '.join(['0'] * 9)} {ticks} 0 0 0 20\n"
        )


def share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, own_s: float, child_s: float) -> float | None:
    """Of two seconds on all cores of which 1 s was busy."""
    clock = [0.0]
    monkeypatch.setattr(machine_load.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(machine_load.os, "cpu_count", lambda: 2)
    write(tmp_path, busy_s=10, own_s=1, child_s=1)
    meter = LoadMeter(tmp_path)
    clock[0] = 2.0
    write(tmp_path, busy_s=11, own_s=1 + own_s, child_s=1 + child_s)
    return meter.foreign_share()


def test_time_of_this_process_and_of_its_children_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert share(tmp_path, monkeypatch, own_s=0.5, child_s=0.5) == pytest.approx(0)


def test_the_rest_of_the_busy_time_is_foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert share(tmp_path, monkeypatch, own_s=0.2, child_s=0.0) == pytest.approx(0.2)


def test_a_machine_that_does_not_say_is_not_called_quiet(tmp_path: Path) -> None:
    assert LoadMeter(tmp_path).foreign_share() is None


def test_a_machine_that_counts_no_busy_core_is_not_called_quiet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert share(tmp_path, monkeypatch, own_s=2.5, child_s=0.0) is None
