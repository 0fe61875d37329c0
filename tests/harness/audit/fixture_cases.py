"""The fixture kernels: what each file says of itself in its first lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from harness.audit.audit import audit_kernels
from harness.audit.decide import AuditResult, Decision
from harness.audit.findings import kernel_findings
from harness.audit.modules import Module, Text, audit_module
from harness.audit.ptx import read_ptx
from harness.audit.roles import AuditOptions, parse_options
from harness.model.finding import Finding

FOLDER = Path(__file__).parent / "fixtures" / "ptx"


@dataclass(frozen=True)
class Case:
    """A kernel text, the user's options, and the rules that must show a fault (none: a clean twin)."""

    name: str
    text: str
    options: AuditOptions
    faults: frozenset[str]


def _pairs(text: str) -> dict[str, str]:
    return dict(part.strip().split("=", 1) for part in text.split(",") if part.strip())


def read_case(path: Path) -> Case:
    text = path.read_text()
    head = dict(re.findall(r"^// (\w+): (.*)$", text, re.MULTILINE))
    faults = () if head["expect"] == "clean" else (e.split("=")[0] for e in head["expect"].split())
    facts = {k: int(v) if v.isdigit() else v for k, v in _pairs(head.get("options", "")).items()}
    options = {"roles": _pairs(head.get("roles", "")), **facts}
    return Case(path.stem, text, parse_options(options), frozenset(faults))


CASES = [read_case(path) for path in sorted(FOLDER.glob("*.ptx"))]
CLEAN = [case for case in CASES if not case.faults]
FAULTY = [case for case in CASES if case.faults]


def audit_text(text: str, options: AuditOptions | None = None) -> list[AuditResult]:
    return audit_kernels(read_ptx(text, "made.ptx").kernels, options)


def rules_with(results: list[AuditResult], decision: Decision) -> frozenset[str]:
    return frozenset(r.rule for r in results if r.decision is decision)


def decisions(results: list[AuditResult]) -> dict[str, list[str]]:
    """Decisions by rule, without places."""
    found: dict[str, list[str]] = {}
    for result in results:
        found.setdefault(result.rule, []).append(result.decision.value)
    return {rule: sorted(values) for rule, values in found.items()}


def findings_on(text: str, options: AuditOptions | None = None) -> list[Finding]:
    """All findings on a PTX text, as a command shows them."""
    module = Module(
        name="made", ptx=(Text(name="made.ptx", content=text.encode()),), options=options or AuditOptions()
    )
    return [f for k in audit_module(module).kernels for f in kernel_findings(k, "audit:made")]
