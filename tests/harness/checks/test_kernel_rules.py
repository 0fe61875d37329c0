"""The audit's rules as checks: what recorded results let through, and what their absence never does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.audit.modules import Module, Text, audit_module
from harness.audit.roles import parse_options
from harness.checks.correctness.kernel_rules import kernel_rule_checks
from harness.checks.correctness.pdl005_wait_clobbers_memory import WaitClobbersMemory
from harness.model.check import CheckContext
from harness.model.evidence import (
    AnyEvidence,
    GapEvidence,
    KernelAuditEvidence,
    KernelCompilationEvidence,
    KernelSourcesEvidence,
    WaitSourceEvidence,
    evidence_set,
)
from harness.model.finding import Finding
from harness.model.kernel_audit import Decision, KernelSource, UnreadText, WaitStatement
from harness.model.kernels import KernelsSection
from harness.model.manifest import SliceModel
from harness.model.words import Outcome, Tier
from tests.harness.checks.evidence_builder import CHANGE, MANIFEST, POLICY

FIXTURES = Path(__file__).parents[1] / "audit" / "fixtures"
CHECKS = {check.id: check for check in kernel_rule_checks()}
ENTRY = {"entry": "m:f", "arches": ["sm_90a"]}
COMPILED: dict[str, Any] = {
    "tier": Tier.STATIC,
    "recorded_at": "2026-11-29T12:00:00Z",
    "entry": "m:f",
    "arch": "sm_90a",
}


def context(*records: AnyEvidence, entries: tuple[dict[str, Any], ...] = (ENTRY,)) -> CheckContext:
    section = KernelsSection.model_validate({"entries": entries})
    return CheckContext(
        change=CHANGE,
        manifest=MANIFEST.model_copy(update={"kernels": section}),
        policy=POLICY,
        evidence=evidence_set(records),
    )


def compilation(**fields: Any) -> KernelCompilationEvidence:
    made = {"variants": ("batch=1",), "versions": {}, "subject_files": {"subject/kernel.py": "0" * 64}}
    return KernelCompilationEvidence(**COMPILED | made | fields)


def audit(name: str, *levels: str, unread: tuple[UnreadText, ...] = ()) -> KernelAuditEvidence:
    """The audit of a fixture at the given levels, with the roles under which its clean twin is in order."""
    ptx = Text(name="m:f/batch=1", content=FIXTURES / "ptx" / f"{name}.ptx")
    sass = Text(name="m:f/batch=1", content=FIXTURES / "sass" / "sm_90a" / f"{name}.sass")
    found = audit_module(
        Module(
            name=name,
            ptx=(ptx,) if "ptx" in levels else (),
            sass=(sass,) if "sass" in levels else (),
            options=parse_options({"roles": {"w": "static", "out": "output"}}),
        )
    )
    kernels = tuple(k.model_copy(update={"arch": "sm_90a"}) for k in found.kernels)
    return KernelAuditEvidence(**COMPILED, kernels=kernels, unread=unread)


def decide(check: str, *records: AnyEvidence, **options: Any) -> list[Finding]:
    return list(CHECKS[check].run(context(*records, **options)))


def outcomes(findings: list[Finding]) -> set[Outcome]:
    return {finding.outcome for finding in findings}


BOTH = ("ptx", "sass")
CLEAN = audit("hoisted_load_clean", *BOTH)


def test_kernels_in_order_at_both_levels_pass_on_their_audit() -> None:
    (finding,) = decide("PDL001", compilation(), CLEAN)
    assert finding.outcome is Outcome.PASS and finding.evidence == (CLEAN.id,)


def test_a_read_above_the_wait_fails_with_its_path() -> None:
    findings = decide("PDL001", compilation(), audit("hoisted_load_fault", *BOTH))
    assert outcomes(findings) == {Outcome.FAIL} and any("reads x" in d for f in findings for d in f.details)


def test_a_fault_of_the_machine_code_alone_fails() -> None:
    findings = decide("PDL001", compilation(), audit("texture_clean", *BOTH))
    assert Outcome.FAIL in outcomes(findings)


@pytest.mark.parametrize("check", sorted(CHECKS))
def test_a_manifest_without_kernels_is_not_concerned(check: str) -> None:
    assert outcomes(decide(check, entries=())) == {Outcome.NOT_APPLICABLE}


@pytest.mark.parametrize("check", sorted(CHECKS))
def test_declared_kernels_without_evidence_let_nothing_through(check: str) -> None:
    assert outcomes(decide(check)) == {Outcome.NOT_RUN}


def test_the_recorded_gap_says_why_nothing_was_collected() -> None:
    gap = GapEvidence(
        tier=Tier.STATIC,
        recorded_at="2026-11-29T12:00:00Z",
        what="kernels",
        broke=False,
        reason="the run was interrupted",
    )
    (finding,) = decide("PDL001", gap)
    assert finding.outcome is Outcome.NOT_RUN and "interrupted" in finding.message


@pytest.mark.parametrize("level", BOTH)
@pytest.mark.parametrize("check", sorted(CHECKS))
def test_one_level_alone_lets_nothing_through(check: str, level: str) -> None:
    findings = decide(check, compilation(), audit("hoisted_load_clean", level))
    assert Outcome.NOT_RUN in outcomes(findings)


def test_an_entry_point_that_broke_off_lets_nothing_through_though_what_compiled_is_in_order() -> None:
    failed = compilation(failure="the entry point raised an exception: ValueError: no such tile")
    findings = decide("PDL001", failed, CLEAN)
    assert outcomes(findings) == {Outcome.PASS, Outcome.NOT_RUN}
    assert any("no such tile" in f.message for f in findings)


def test_each_architecture_of_an_entry_needs_its_own_evidence() -> None:
    both = ({"entry": "m:f", "arches": ["sm_90a", "sm_103a"]},)
    findings = decide("PDL001", compilation(), CLEAN, entries=both)
    assert [f.subject for f in findings if f.outcome is Outcome.NOT_RUN] == ["m:f (sm_103a)"]


def test_kernels_for_another_architecture_than_asked_are_not_evidence() -> None:
    foreign = CLEAN.model_copy(
        update={"kernels": tuple(k.model_copy(update={"arch": "sm_80"}) for k in CLEAN.kernels)}
    )
    assert Outcome.INCONCLUSIVE in outcomes(decide("PDL001", compilation(), foreign))


def test_roles_for_a_variant_that_no_longer_exists_keep_the_check_open() -> None:
    renamed = (ENTRY, ENTRY | {"variants": "b=1", "roles": {"0": "static"}})
    assert Outcome.INCONCLUSIVE in outcomes(decide("PDL001", compilation(), CLEAN, entries=renamed))


def test_an_entry_point_that_imports_nothing_of_the_change_is_not_evidence() -> None:
    assert Outcome.INCONCLUSIVE in outcomes(decide("PDL001", compilation(subject_files={}), CLEAN))


def test_an_entry_point_without_any_kernel_lets_nothing_through() -> None:
    nothing = CLEAN.model_copy(update={"kernels": ()})
    assert outcomes(decide("PDL001", compilation(), nothing)) == {Outcome.NOT_RUN}


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [({}, Outcome.INCONCLUSIVE), ({"broke": True}, Outcome.ERROR), ({"missing": True}, Outcome.NOT_RUN)],
)
def test_a_text_that_was_not_read_keeps_the_check_open(kind: dict[str, bool], outcome: Outcome) -> None:
    unread = UnreadText(text="m:f/batch=2", line=1, reason="cut short", **kind)
    findings = decide("PDL001", compilation(), audit("hoisted_load_clean", *BOTH, unread=(unread,)))
    assert outcomes(findings) == {Outcome.PASS, outcome}


def test_faults_of_one_cause_are_one_finding_that_names_the_others() -> None:
    fault = audit("hoisted_load_fault", "ptx").kernels[0]
    many = tuple(fault.model_copy(update={"text": f"m:f/batch={n}"}) for n in range(1, 4))
    findings = decide("PDL001", compilation(), CLEAN.model_copy(update={"kernels": many}))
    (failed,) = [f for f in findings if f.outcome is Outcome.FAIL]
    assert "and 2 more" in failed.subject and any("batch=3" in d for d in failed.details)


def statement(decision: Decision) -> WaitStatement:
    return WaitStatement(path="subject/k.py", line=3, text="asm", decision=decision, reason="It says so.")


def sources(*statements: WaitStatement, num_files: int = 2) -> WaitSourceEvidence:
    return WaitSourceEvidence(
        tier=Tier.STATIC, recorded_at="2026-11-29T12:00:00Z", num_files=num_files, statements=statements
    )


@pytest.mark.parametrize(
    ("records", "outcome"),
    [
        ((sources(statement(Decision.PROVEN)),), Outcome.PASS),
        ((sources(statement(Decision.SHOWN)),), Outcome.FAIL),
        ((sources(statement(Decision.UNDECIDED)),), Outcome.INCONCLUSIVE),
        ((sources(),), Outcome.NOT_APPLICABLE),
        ((sources(num_files=0),), Outcome.NOT_RUN),
        ((), Outcome.NOT_RUN),
    ],
)
def test_waits_in_the_sources_are_judged_and_unread_sources_never_pass(
    records: tuple[AnyEvidence, ...], outcome: Outcome
) -> None:
    assert outcomes(list(WaitClobbersMemory().run(context(*records)))) == {outcome}


def brought(
    *paths: str, commit: str = CHANGE.head, unreadable: tuple[str, ...] = ()
) -> KernelSourcesEvidence:
    return KernelSourcesEvidence(
        tier=Tier.STATIC,
        recorded_at="2026-11-29T12:00:00Z",
        commit=commit,
        num_files=4,
        files=tuple(KernelSource(path=p, form="Triton", lines=(3,)) for p in paths),
        unreadable=unreadable,
    )


def on(platform: str, *records: AnyEvidence, entries: tuple[dict[str, Any], ...] = ()) -> list[Finding]:
    """PDL001 for a change that declares one platform."""
    given = context(*records, entries=entries)
    scope = given.manifest.scope.model_copy(update={"platforms": (platform,)})
    manifest = given.manifest.model_copy(update={"scope": scope})
    return list(CHECKS["PDL001"].run(replace(given, manifest=manifest)))


@pytest.mark.parametrize(
    ("platform", "records", "outcome"),
    [
        ("sm_103a", (brought("subject/k.py"),), Outcome.NOT_RUN),
        ("sm_103a", (brought(),), Outcome.NOT_APPLICABLE),
        ("sm_103a", (), Outcome.NOT_RUN),
        ("sm_103a", (brought(commit="0" * 40),), Outcome.NOT_RUN),
        ("sm_103a", (brought(unreadable=("k.py: not Python",)),), Outcome.INCONCLUSIVE),
        ("cpu", (brought("subject/k.py"),), Outcome.NOT_APPLICABLE),
        ("gfx950", (brought("subject/k.py"),), Outcome.NOT_APPLICABLE),
    ],
)
def test_kernels_without_a_section_are_let_through_only_where_nothing_declared_reaches_them(
    platform: str, records: tuple[AnyEvidence, ...], outcome: Outcome
) -> None:
    assert outcomes(on(platform, *records)) == {outcome}


@pytest.mark.parametrize(
    ("record", "line"),
    [(brought("subject/k.py"), 3), (brought(unreadable=("k.py: it is not Python 3.11: line 7: bad",)), 7)],
)
def test_a_file_that_leaves_the_check_open_is_named_with_its_line_and_what_to_do(
    record: KernelSourcesEvidence, line: int
) -> None:
    (finding,) = on("sm_103a", record)
    assert (finding.location and finding.location.line, bool(finding.advice)) == (line, True)


def test_a_slice_on_a_gpu_reaches_kernels_that_the_miniature_on_a_cpu_does_not() -> None:
    given = context(brought("subject/k.py"), entries=())
    on_a_cpu, on_a_gpu = (
        given.manifest.scope.model_copy(update={"platforms": (p,)}) for p in ("cpu", "sm_90a")
    )
    found = SliceModel(config="c.json", max_model_len=32, scope=on_a_gpu, dispatch=given.manifest.dispatch)
    models = given.manifest.models.model_copy(update={"slice": found})
    manifest = given.manifest.model_copy(update={"scope": on_a_cpu, "models": models})
    assert outcomes(list(CHECKS["PDL001"].run(replace(given, manifest=manifest)))) == {Outcome.NOT_RUN}


def test_kernels_that_no_entry_point_imported_keep_the_check_open() -> None:
    findings = on("sm_90a", brought("subject/other.py"), compilation(), CLEAN, entries=(ENTRY,))
    assert any("subject/other.py" in f.message for f in findings if f.outcome is Outcome.INCONCLUSIVE)


def test_kernels_that_entry_points_imported_leave_nothing_open() -> None:
    findings = on("sm_90a", brought("subject/kernel.py"), compilation(), CLEAN, entries=(ENTRY,))
    assert outcomes(findings) == {Outcome.PASS}
