"""What is asked of a case of the gpu tier: the processes and engines that its expected checks rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.app.gpu_tier import BEYOND, GRAPHS, HANDOVER
from harness.app.selftest.catalogue import Case
from harness.model.probe import LORA

Asked = Mapping[str, frozenset[str]]
"""Names of engines, by process."""

_OFF = frozenset({"bystander", "off"})
EVERY: Asked = {
    "candidate": frozenset({GRAPHS, HANDOVER, BEYOND, LORA}),
    "twin": frozenset({HANDOVER}),
    "head": _OFF,
    "base": _OFF,
}
_BESIDE_A_TWIN: Asked = {"candidate": frozenset({HANDOVER}), "twin": frozenset({HANDOVER})}
RESTS_ON: Mapping[str, Asked] = {
    "COR012": _BESIDE_A_TWIN,
    "ISO009": {"candidate": frozenset({GRAPHS})},
    "ISO010": {"head": _OFF, "base": _OFF},
    "ISO011": {"candidate": frozenset({GRAPHS})},
    "ISO012": _BESIDE_A_TWIN,
    "SCO006": {"candidate": frozenset({GRAPHS, BEYOND, LORA})},
}
"""By check: with these a clean change passes it, and with less it does not."""
_SERVES_THE_SLICE = frozenset({GRAPHS, HANDOVER, "off"})
"""The others are refused before they load anything, or serve a model of a few megabytes."""


def asked_of(cases: Sequence[Case]) -> Asked:
    """Of twins everything, since anything might reject them; of a fault what can show it."""
    if any(case.is_twin for case in cases):
        return EVERY
    expected = {check for case in cases for check in case.fault.expected}
    if not expected <= RESTS_ON.keys():
        return EVERY
    return {
        process: engines
        for process in EVERY
        if (engines := frozenset().union(*(RESTS_ON[check].get(process, ()) for check in expected)))
    }


def shares_of(asked: Asked) -> dict[str, int]:
    """By process: shares of a GPU's memory. Each engine with the slice takes one, since what an engine held may stay
    until its process ends."""
    return {process: max(1, len(engines & _SERVES_THE_SLICE)) for process, engines in asked.items()}
