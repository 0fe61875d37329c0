"""Every fault is found by the rules that it breaks and by no other; every twin passes."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from harness.audit.decide import Decision
from tests.harness.audit.fixture_cases import (
    CASES,
    CLEAN,
    FAULTY,
    FOLDER,
    Case,
    audit_text,
    findings_on,
    rules_with,
)


@pytest.mark.parametrize("case", FAULTY, ids=lambda c: c.name)
def test_a_fault_is_shown_by_exactly_the_rules_that_it_breaks(case: Case) -> None:
    assert rules_with(audit_text(case.text, case.options), Decision.SHOWN) == case.faults


@pytest.mark.parametrize("case", CLEAN, ids=lambda c: c.name)
def test_a_twin_without_the_fault_passes_every_rule_that_applies(case: Case) -> None:
    found = {r.decision for r in audit_text(case.text, case.options)}
    assert found <= {Decision.PROVEN, Decision.NOT_APPLICABLE}


@pytest.mark.parametrize("case", FAULTY, ids=lambda c: c.name)
def test_a_shown_fault_names_an_instruction_of_the_text(case: Case) -> None:
    lines = case.text.split("\n")
    results = [r for r in audit_text(case.text, case.options) if r.decision is Decision.SHOWN]
    assert all(
        r.sites and all(" ".join(lines[s.line - 1].split()).startswith(s.text[:8]) for s in r.sites)
        for r in results
    )


def test_each_fault_has_its_twin() -> None:
    kinds = Counter(c.name.rsplit("_", 1)[0] for c in CASES)
    assert len(kinds) >= 30 and set(kinds.values()) == {2}


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_every_result_makes_a_finding(case: Case) -> None:
    results = audit_text(case.text, case.options)
    assert len(findings_on(case.text, case.options)) == len(results)


def _ptxas() -> str | None:
    try:
        import triton
    except ImportError:
        return shutil.which("ptxas")
    found = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    return str(found) if found.is_file() else shutil.which("ptxas")


@pytest.mark.skipif(_ptxas() is None, reason="no ptxas")
def test_the_fixtures_are_real_ptx(tmp_path: Path) -> None:
    for path in sorted(FOLDER.glob("*.ptx")):
        command = [_ptxas() or "", "-arch=sm_90a", str(path), "-o", str(tmp_path / "out.cubin")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{path.name}: {done.stderr}"
