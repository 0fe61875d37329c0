"""What a GPU does in decode steps that go on alike, by PyTorch's profiler: microseconds in which it is busy, kernels.

Replayed graphs are seen as well: it is the device's own record. Imports torch only once it profiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

MAX_STEPS = 16
FAULTS = (RuntimeError, AttributeError, TypeError, ValueError, ImportError, OSError)
"""What starting, stopping or reading a profiler may raise; it must not end the step that it looks at."""
NO_WORK = ("annotation", "sync", "overhead", "range")
"""In the kinds of a profiler's events that stand beside the device's work and last as long as it."""
MAX_NAMES = 24
NAME_LENGTH = 80
MAX_WORDS = 500


class Span(NamedTuple):
    """One piece of work of the device, in nanoseconds."""

    start: int
    end: int
    name: str


class Profiler(Protocol):
    """Records from `start` to `stop`."""

    def start(self) -> None:
        """Begins."""
        ...

    def stop(self) -> Sequence[Span]:
        """Ends, and gives what the device did."""
        ...


class StepProfile:
    """Profiles the first steps that go on as the one before, once it is armed."""

    def __init__(self, make_profiler: Callable[[], Profiler | None]) -> None:
        self._make_profiler = make_profiler
        self.is_armed = False
        """Steps are profiled, or the next that goes on is."""
        self._profiler: Profiler | None = None
        self._num_steps = 0
        self._spans: Sequence[Span] = ()
        self._problem = ""

    def arm(self) -> None:
        """The next steps that go on are profiled."""
        self.is_armed, self._num_steps, self._spans, self._problem = True, 0, (), ""

    def begin_step(self, *, goes_on: bool) -> None:
        """Is told of every step before it computes."""
        if not self.is_armed:
            return
        if self._profiler is not None and (not goes_on or self._num_steps == MAX_STEPS):
            self._finish()
        elif self._profiler is None and goes_on:
            self._start()
        self._num_steps += self._profiler is not None

    def _start(self) -> None:
        try:
            self._profiler = self._make_profiler()
            if self._profiler is not None:
                self._profiler.start()
            else:
                self._problem = "no CUDA device"
        except FAULTS as error:
            self._profiler, self._problem = None, _words(error)
        self.is_armed = self._profiler is not None

    def _finish(self) -> None:
        profiler, self._profiler, self.is_armed = self._profiler, None, False
        assert profiler is not None
        try:
            self._spans = profiler.stop()
        except FAULTS as error:
            self._num_steps, self._problem = 0, _words(error)

    def result(self) -> dict[str, Any]:
        """What was seen, a step; `num_steps` is 0 where there is no GPU, no step went on, or the profiler failed.

        `problem` says why, but for steps that did not go on.
        """
        if self._profiler is not None:
            self._finish()
        self.is_armed = False
        seen = describe(self._spans, self._num_steps)
        return seen | {"problem": self._problem} if self._problem else seen


def _words(error: BaseException) -> str:
    return f"the profiler failed: {type(error).__name__}: {error}"[:MAX_WORDS]


def describe(spans: Sequence[Span], num_steps: int) -> dict[str, Any]:
    """Busy microseconds and kernels a step, and both by name for those that take the most time."""
    kernels = [span for span in spans if not span.name.startswith(("Memcpy", "Memset"))]
    if not num_steps:
        return {"num_steps": 0}
    if not kernels:
        text = f"the profiler told {len(spans)} spans of the device in {num_steps} steps, none of a kernel"
        return {"num_steps": 0, "problem": text}
    by_name: dict[str, list[float]] = {}
    for span in kernels:
        entry = by_name.setdefault(span.name[:NAME_LENGTH], [0.0, 0.0])
        entry[0] += 1 / num_steps
        entry[1] += (span.end - span.start) / 1000 / num_steps
    longest = sorted(by_name.items(), key=lambda item: -item[1][1])[:MAX_NAMES]
    return {
        "num_steps": num_steps,
        "busy_us": covered_ns(spans) / 1000 / num_steps,
        "num_kernels": len(kernels) / num_steps,
        "kernels": [{"name": name, "launches": launches, "us": us} for name, (launches, us) in longest],
    }


def covered_ns(spans: Sequence[Span]) -> int:
    """Nanoseconds in which at least one of the spans runs."""
    covered, reached = 0, 0
    for start, end, _ in sorted(spans):
        covered += max(0, end - max(start, reached))
        reached = max(reached, end)
    return covered


def make_cuda_profiler() -> Profiler | None:
    """PyTorch's profiler of the device; None where there is none."""
    import torch

    return CudaProfiler() if torch.cuda.is_available() else None


class CudaProfiler:
    """Waits for the device at both ends, so that all that was asked of it in between is seen, and nothing else."""

    def __init__(self) -> None:
        import torch

        self._profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])

    def start(self) -> None:
        """See `Profiler`."""
        import torch

        torch.cuda.synchronize()
        self._profile.start()

    def stop(self) -> Sequence[Span]:
        """See `Profiler`."""
        import torch

        torch.cuda.synchronize()
        self._profile.stop()
        results: Any = self._profile.profiler
        return [
            Span(event.start_ns(), event.start_ns() + event.duration_ns(), event.name())
            for event in results.kineto_results.events()
            if event.device_type() == torch.autograd.DeviceType.CUDA and is_work(event)
        ]


def is_work(event: Any) -> bool:
    """Whether an event of the device is work of it: an annotation lasts as long as the work it names, gaps included.

    PyTorch names an event's kind from some version on; without it all are taken for work.
    """
    kind = str(event.activity_type()).lower() if hasattr(event, "activity_type") else ""
    return not any(word in kind for word in NO_WORK)
