"""The timing loop: CUDA graphs of rotating copies, candidates and baselines interleaved.

Imports the standard library, and torch and NumPy when called: any interpreter that has the subject's DSL runs it.
Results are plain values that `records` gives their types.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any

Calls = Sequence[Callable[[], object]]
Facts = dict[str, Any]
"""Fields of a record of the same name."""
_MIN_CALLS = 24
"""Calls in a graph, so that its launch is a small part."""
_COPY_BYTES = 2**31
_SOFTWARE = ("torch", "nvidia-cutlass-dsl-libs-base", "nvidia-cutlass-dsl", "vllm")


def gpu_gap() -> str:
    """Why nothing can be timed here; empty where PyTorch has a CUDA GPU."""
    try:
        import torch
    except ImportError as error:
        return f"this interpreter cannot import PyTorch ({error})"
    return "" if torch.cuda.is_available() else f"PyTorch {torch.__version__} sees none"


def measure_machine(before: Facts | None = None) -> Facts:
    """A `Machine`: the GPU that PyTorch uses, with its clocks now, and before where given."""
    import torch

    sm, memory, driver = _query(torch.cuda.current_device())
    earlier = before or {"sm_clock_mhz": [], "memory_clock_mhz": []}
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": driver,
        "num_gpus": torch.cuda.device_count(),
        "sm_clock_mhz": [*earlier["sm_clock_mhz"], *sm],
        "memory_clock_mhz": [*earlier["memory_clock_mhz"], *memory],
        "software": _software(),
    }


def _query(device: int) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """SM clock, memory clock and driver from `nvidia-smi`; empty where it cannot be asked."""
    command = ["nvidia-smi", f"--id={device}", "--query-gpu=clocks.sm,clocks.mem,driver_version"]
    try:
        result = subprocess.run(
            [*command, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        sm, memory, driver = result.stdout.strip().splitlines()[0].split(", ")
        return (int(sm),), (int(memory),), driver
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return (), (), ""


def _software() -> dict[str, str]:
    found = {}
    for name in _SOFTWARE:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def measure_copies(rounds: int = 9) -> dict[str, float]:
    """Bytes read plus bytes written a second, by kind of copy of 2 GiB on the device.

    A memory copy in a graph may be given to a copy engine, which is slower than the multiprocessors; a kernel that
    reads and writes every word is given to these.
    """
    import torch

    source = torch.empty(_COPY_BYTES // 4, dtype=torch.int32, device="cuda").random_()
    target = torch.empty_like(source)
    copies = {
        "memory copy": lambda: target.copy_(source),
        "kernel": lambda: torch.bitwise_not(source, out=target),
    }
    graphs = {name: capture([copy], min_calls=4) for name, copy in copies.items()}
    times = time_interleaved(graphs, rounds)
    return {name: 2 * _COPY_BYTES / found["median_us"] * 1e6 for name, found in times.items()}


class Captured:
    """A CUDA graph of a number of calls.

    It keeps the calls: a graph holds neither their kernels, which a compiler's object unloads when it goes, nor their
    tensors.
    """

    def __init__(self, graph: Any, calls: Calls, num_calls: int) -> None:
        self.graph, self.calls, self.num_calls = graph, calls, num_calls


def capture(calls: Calls, *, min_calls: int = _MIN_CALLS) -> Captured:
    """Whole turns over all copies, at least `min_calls` calls, in one graph that has run once."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls[:2]:
            call()
    torch.cuda.synchronize()
    laps = -(-min_calls // len(calls))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(laps):
            for call in calls:
                call()
    graph.replay()
    torch.cuda.synchronize()
    return Captured(graph, calls, laps * len(calls))


def time_interleaved(graphs: Mapping[str, Captured], rounds: int) -> dict[str, Facts]:
    """Each graph once a round, in turn; a call's time is the graph's over its number of calls, by device events."""
    import torch

    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(rounds):
        for name, captured in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            captured.graph.replay()
            begin.record()
            captured.graph.replay()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e3 / captured.num_calls)
    return {name: summarise(values) for name, values in times.items()}


def summarise(values: Sequence[float]) -> Facts:
    """A `Timing`: median and quartiles of at least two times in microseconds."""
    import numpy as np

    low, median, high = np.percentile(values, (25, 50, 75)).tolist()
    return {"median_us": median, "low_us": low, "high_us": high, "rounds": len(values)}


def utc_now() -> str:
    """The time as records have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
