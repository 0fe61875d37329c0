"""What a GPU did in decode steps that go on alike, as a worker's `fasttrack_profile` tells it."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from harness.model.record import Record


class KernelTime(Record):
    """One kernel in a decode step."""

    name: str
    """Untrusted text."""
    launches: float
    us: float


class StepKernels(Record):
    """The GPU in a decode step, by PyTorch's profiler; means over `num_steps`."""

    num_steps: int = Field(ge=0)
    """0: nothing was seen, as without a GPU."""
    busy_us: float | None = Field(gt=0, default=None)
    """In which the GPU did anything."""
    num_kernels: float | None = Field(gt=0, default=None)
    kernels: tuple[KernelTime, ...] = ()
    """Those that take the most time."""
    problem: str = ""
    """Why nothing was seen, where that is known."""

    @model_validator(mode="after")
    def _tells_all_or_nothing(self) -> Self:
        if any((value is not None) is not (self.num_steps > 0) for value in (self.busy_us, self.num_kernels)):
            raise ValueError("steps have a busy time and kernels; where there are none, there is neither")
        return self
