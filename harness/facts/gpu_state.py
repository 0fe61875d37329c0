"""What NVML tells of the GPU that the engines compute on; it reads and sets nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from harness.model.evidence import SLOWDOWNS, GpuState


def find_gpu_reader(nvml: Any = None) -> tuple[Callable[[], GpuState | None], str]:
    """What reads the state of the first visible GPU, and why it reads nothing; empty where it does.

    Args:
        nvml: The module `pynvml`; None imports it.
    """
    nvml, device, why_not = _open(nvml)
    return (_nothing, why_not) if why_not else (lambda: read_state(nvml, device), "")


def find_memory(nvml: Any = None) -> tuple[int, int] | None:
    """All bytes of the first visible GPU's memory, and those that are free; None where they cannot be read."""
    nvml, device, why_not = _open(nvml)
    if why_not:
        return None
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(device)
    except nvml.NVMLError:
        return None
    return int(memory.total), int(memory.free)


def _open(nvml: Any) -> tuple[Any, Any, str]:
    """The module, the device, and why there is none."""
    try:
        nvml = nvml or import_module("pynvml")
    except ImportError:
        return None, None, "nvidia-ml-py is not installed"
    try:
        nvml.nvmlInit()
        return nvml, _first_visible(nvml), ""
    except nvml.NVMLError as error:
        return None, None, f"NVML: {error}"


def _nothing() -> None:
    return None


def _first_visible(nvml: Any) -> Any:
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0].strip()
    if first and not first.isdigit():
        return nvml.nvmlDeviceGetHandleByUUID(first)
    return nvml.nvmlDeviceGetHandleByIndex(int(first or 0))


def read_state(nvml: Any, device: Any) -> GpuState:
    """The device's state now; None for each thing that its driver refuses to tell."""

    def ask(function: str, *arguments: Any) -> Any:
        try:
            return getattr(nvml, function)(device, *arguments)
        except (nvml.NVMLError, AttributeError):
            return None

    power = ask("nvmlDeviceGetPowerUsage")
    # NVML has called them throttle reasons before.
    bits = ask("nvmlDeviceGetCurrentClocksEventReasons")
    bits = ask("nvmlDeviceGetCurrentClocksThrottleReasons") if bits is None else bits
    name = ask("nvmlDeviceGetName") or ""
    return GpuState(
        name=name.decode() if isinstance(name, bytes) else name,
        sm_clock_mhz=ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
        memory_clock_mhz=ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
        power_w=None if power is None else power / 1000,
        temperature_c=ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        slowdowns=None if bits is None else tuple(word for bit, word in SLOWDOWNS.items() if bits & bit),
    )
