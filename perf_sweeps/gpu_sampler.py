"""Samples the GPU's clocks, power, temperature and throttle reasons while an arm is visited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from threading import Event, Thread
from types import TracebackType
from typing import Any, Self

from harness.model.evidence import GpuState

INTERVAL_S = 0.2
Observe = Callable[[], GpuState | None]
"""Reads the state of the GPU that is computed on; None where nothing tells it."""


class GpuSampler:
    """Samples on entering, every `INTERVAL_S` and on leaving."""

    def __init__(self, observe: Observe) -> None:
        self._observe = observe
        self._states: list[GpuState] = []
        self._left = Event()
        self._thread = Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        while not self._left.wait(INTERVAL_S):
            self._read()

    def _read(self) -> None:
        state = self._observe()
        if state is not None:
            self._states.append(state)

    def __enter__(self) -> Self:
        self._read()
        if self._states:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        if self._states:
            self._thread.join()
            self._read()

    def state(self) -> dict[str, Any]:
        """The fields of a `MachineState` that the samples fill; one that tells no throttle reasons is no sample."""
        told = [state for state in self._states if state.slowdowns is not None]
        words = {word for state in told for word in state.slowdowns or ()}
        return {
            "num_gpu_samples": len(told),
            "sm_clock_mhz": _mean([state.sm_clock_mhz for state in told]),
            "power_w": _mean([state.power_w for state in told]),
            "temperature_c": _mean([state.temperature_c for state in told]),
            "throttle_reasons": tuple(sorted(words)),
        }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
