"""Kernels as CuTe DSL compiles them: each fault is found in PTX and in machine code, each twin passes both."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.audit.audit import audit_kernels
from harness.audit.decide import AuditResult, Decision
from harness.audit.ptx import read_ptx
from harness.audit.roles import parse_options
from harness.audit.sass import read_sass
from tests.harness.audit.fixture_cases import rules_with

FOLDER = Path(__file__).parent / "fixtures" / "cute"
ARCHES = ("sm_90a", "sm_100a", "sm_103a")
FLAT = {"0": "activation", "1": "static", "2": "output"}
BEFORE = frozenset({"PDL001"})
NEVER = frozenset({"PDL001", "PDL003", "PDL004"})
ROLES = {"mailbox": {"0": "mailbox:sys", "1": "output"}, "tensor_map": {"0": "activation", "1": "output"}}
FAULTS = {
    "hoisted_load": BEFORE,
    "one_role_waits": frozenset({"PDL001", "PDL004"}),
    "conditional_wait": NEVER,
    "trigger_before_stores": frozenset({"PDL002"}),
    "loop_carried": BEFORE,
    "struct_argument": BEFORE,
    "shared_memory": BEFORE,
    "early_exit": frozenset({"PDL003"}),
    "leader_waits": frozenset({"PDL001", "PDL004"}),
    "tensor_map": BEFORE,
    "mailbox": frozenset({"SYN001"}),
}
"""The rules that a kernel's fault breaks."""


def audited(kind: str, end: str, arch: str, suffix: str) -> list[AuditResult]:
    path = FOLDER / arch / f"{kind}_{end}{suffix}"
    read = read_ptx if suffix == ".ptx" else read_sass
    facts = {"roles": ROLES.get(kind, FLAT), "launch": "pdl"}
    return audit_kernels(read(path.read_text(), path.name).kernels, parse_options(facts))


@pytest.mark.parametrize("suffix", [".ptx", ".sass"])
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("kind", FAULTS)
def test_a_compiled_fault_is_shown_by_exactly_the_rules_that_it_breaks(
    kind: str, arch: str, suffix: str
) -> None:
    assert rules_with(audited(kind, "fault", arch, suffix), Decision.SHOWN) == FAULTS[kind]


@pytest.mark.parametrize("suffix", [".ptx", ".sass"])
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("kind", FAULTS)
def test_a_compiled_twin_passes_every_rule_that_applies(kind: str, arch: str, suffix: str) -> None:
    found = {r.decision for r in audited(kind, "clean", arch, suffix)}
    assert found <= {Decision.PROVEN, Decision.NOT_APPLICABLE}


def test_every_compiled_kernel_is_one_of_the_kinds() -> None:
    names = {p.stem.rsplit("_", 1)[0] for p in FOLDER.glob("*/*.ptx")}
    assert names == set(FAULTS)
