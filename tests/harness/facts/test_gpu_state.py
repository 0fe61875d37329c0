"""Laws of reading a GPU's state, with a made NVML."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.facts.gpu_state import find_gpu_reader, find_memory
from harness.model.evidence import GpuState


class NVMLError(Exception):
    pass


class Nvml:
    """NVML of a machine with two GPUs; what is in `refuses` raises."""

    NVMLError = NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, *refuses: str) -> None:
        self.refuses = refuses

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in object.__getattribute__(self, "refuses"):
            raise NVMLError(name)
        return object.__getattribute__(self, name)

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return f"GPU {index}"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        return uuid

    def nvmlDeviceGetMemoryInfo(self, device: str) -> SimpleNamespace:
        return SimpleNamespace(total=100, free=90 if device == "GPU 1" else 30)

    def nvmlDeviceGetName(self, device: str) -> bytes:
        return device.encode()

    def nvmlDeviceGetClockInfo(self, _: str, kind: int) -> int:
        return {1: 1980, 2: 2619}[kind]

    def nvmlDeviceGetPowerUsage(self, _: str) -> int:
        return 312_500

    def nvmlDeviceGetTemperature(self, _: str, __: int) -> int:
        return 41

    def nvmlDeviceGetCurrentClocksEventReasons(self, _: str) -> int:
        return 0x1 | 0x4 | 0x40

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, _: str) -> int:
        return 0x8


def state_by(nvml: Nvml) -> GpuState:
    read, why_not = find_gpu_reader(nvml)
    state = read()
    assert state is not None and not why_not
    return state


def test_clocks_power_temperature_and_what_slows_it_down_are_read_and_idle_is_no_slow_down() -> None:
    assert state_by(Nvml()) == GpuState(
        name="GPU 0",
        sm_clock_mhz=1980,
        memory_clock_mhz=2619,
        power_w=312.5,
        temperature_c=41,
        slowdowns=("sw_power_cap", "hw_thermal_slowdown"),
    )


@pytest.mark.parametrize(
    ("visible", "name"), [("1,0", "GPU 1"), ("GPU-7f", "GPU-7f"), ("", "GPU 0"), (" 1", "GPU 1")]
)
def test_the_first_visible_gpu_is_read(monkeypatch: pytest.MonkeyPatch, visible: str, name: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert state_by(Nvml()).name == name


def test_what_the_driver_does_not_tell_is_none_and_no_absence_of_slow_downs() -> None:
    refused = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    state = state_by(Nvml("nvmlDeviceGetPowerUsage", *refused))
    assert (state.power_w, state.slowdowns, state.temperature_c) == (None, None, 41)


def test_an_older_nvml_calls_the_reasons_otherwise() -> None:
    assert state_by(Nvml("nvmlDeviceGetCurrentClocksEventReasons")).slowdowns == ("hw_slowdown",)


@pytest.mark.parametrize("refused", ["nvmlInit", "nvmlDeviceGetHandleByIndex"])
def test_without_a_driver_nothing_is_read_and_the_reason_is_told(refused: str) -> None:
    read, why_not = find_gpu_reader(Nvml(refused))
    assert read() is None and refused in why_not


def test_without_the_package_nothing_is_read_and_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    read, why_not = find_gpu_reader()
    assert read() is None and "nvidia-ml-py" in why_not


@pytest.mark.parametrize(("visible", "free"), [("0", 30), ("1", 90), ("", 30)])
def test_the_memory_is_that_of_the_first_visible_gpu(
    visible: str, free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert find_memory(Nvml()) == (100, free)


@pytest.mark.parametrize("refused", ["nvmlInit", "nvmlDeviceGetMemoryInfo"])
def test_memory_that_the_driver_does_not_tell_is_not_known(refused: str) -> None:
    assert find_memory(Nvml(refused)) is None
