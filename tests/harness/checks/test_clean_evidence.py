"""What holds for every check that judges a running engine."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from harness.checks.correctness.cor001_token_level import TokenLevel
from harness.checks.correctness.cor002_greedy_agreement import GreedyAgreement
from harness.checks.correctness.cor003_specialized_share import SpecializedShare
from harness.checks.correctness.cor004_unexecuted_lines import UnexecutedLines
from harness.checks.correctness.cor005_ledger_alive import LedgerAlive
from harness.checks.isolation.iso002_default_off import DefaultOff
from harness.checks.performance.perf001_decode_itl import DecodeItl
from harness.checks.performance.perf002_decode_speedup import DecodeSpeedup
from harness.checks.scope.sco001_temperature_sampling import TemperatureSampling
from harness.checks.scope.sco002_structured_output import StructuredOutput
from harness.checks.scope.sco003_full_context import FullContext
from harness.checks.scope.sco005_served_features import ServedFeatures
from harness.model.check import BaseCheck, CheckContext
from harness.model.evidence import ArmEvidence, GapEvidence, LedgerEvidence, SuiteEvidence
from harness.model.finding import Finding
from harness.model.judgement import worst
from harness.model.words import Arm, Outcome, Tier
from tests.harness.checks.evidence_builder import (
    World,
    build_evidence,
    clean_evidence,
    context_of,
    small_evidence,
    without,
)

CPU_CHECKS: tuple[type[BaseCheck], ...] = (
    LedgerAlive,
    DefaultOff,
    TemperatureSampling,
    StructuredOutput,
    FullContext,
    TokenLevel,
    GreedyAgreement,
    SpecializedShare,
    UnexecutedLines,
    DecodeItl,
)
ALL_CHECKS = (*CPU_CHECKS, ServedFeatures, DecodeSpeedup)
DOCS = Path(__file__).parents[3] / "docs" / "checks"


def findings_of(check: type[BaseCheck], context: CheckContext) -> list[Finding]:
    found: list[Finding] = list(check().run(context))  # type: ignore[attr-defined]
    return found


def outcome_of(check: type[BaseCheck], context: CheckContext) -> Outcome:
    return worst([f.outcome for f in findings_of(check, context)])


@pytest.mark.parametrize("seed", range(20))
def test_a_clean_change_passes_every_cpu_check_whatever_the_noise(seed: int) -> None:
    world = World(
        seed=seed,
        noise=(1e-6, 1e-5, 5e-5, 2e-4)[seed % 4],
        noise_again=(0.0, 1e-5)[seed % 2],
        timing_noise=(0.005, 0.02)[seed % 2],
        speed=(0.7, 1.0, 1.3)[seed % 3],
    )
    context = context_of(build_evidence(world))
    assert {check.id: outcome_of(check, context) for check in CPU_CHECKS} == {
        c.id: Outcome.PASS for c in CPU_CHECKS
    }


@pytest.mark.parametrize("check", ALL_CHECKS)
def test_no_evidence_is_never_a_pass(check: type[BaseCheck]) -> None:
    assert outcome_of(check, context_of([])) is Outcome.NOT_RUN


@pytest.mark.parametrize("check", ALL_CHECKS)
def test_evidence_that_broke_while_it_was_collected_is_an_error(check: type[BaseCheck]) -> None:
    tier = check.tier
    gap = GapEvidence(
        tier=tier,
        recorded_at="2026-01-01T00:00:00Z",
        what=f"tier {tier}",
        broke=True,
        reason="the machine died",
    )
    findings = findings_of(check, context_of([gap]))
    assert worst([f.outcome for f in findings]) is Outcome.ERROR
    assert "the machine died" in findings[0].message


@pytest.mark.parametrize("check", CPU_CHECKS)
def test_no_finding_passes_once_a_record_that_it_rested_on_is_gone(check: type[BaseCheck]) -> None:
    records = list(clean_evidence())
    passed = [f for f in findings_of(check, context_of(records)) if f.outcome is Outcome.PASS]
    for gone in {name for finding in passed for name in finding.evidence}:
        left = findings_of(check, context_of(r for r in records if r.id != gone))
        still = {f.subject for f in left if f.outcome is Outcome.PASS}
        assert not still & {f.subject for f in passed if gone in f.evidence}


@pytest.mark.parametrize("check", ALL_CHECKS)
def test_deciding_twice_gives_the_same_findings(check: type[BaseCheck]) -> None:
    first, second = (findings_of(check, context_of(small_evidence())) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("check", ALL_CHECKS)
def test_a_check_names_itself_says_how_it_decides_and_has_its_page(check: type[BaseCheck]) -> None:
    assert check.how and "\n" not in check.how and check.title and not check.title.endswith(".")
    page = (DOCS / f"{check.id}.md").read_text(encoding="utf-8")
    headings = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    assert headings == ["Claim", "Why", "How it decides", "What it cannot see", "How to fix", "Example"]


@pytest.mark.parametrize("check", ALL_CHECKS)
def test_every_other_check_of_the_cpu_tiers_arms_stands_on_their_ledgers(check: type[BaseCheck]) -> None:
    stands = check is not LedgerAlive and check.tier is LedgerAlive.tier
    assert check.requires == (("COR005",) if stands else ())


@pytest.mark.parametrize("check", CPU_CHECKS)
def test_findings_of_one_check_have_subjects_of_their_own(check: type[BaseCheck]) -> None:
    findings = findings_of(check, context_of(small_evidence()))
    assert max(Counter(f.subject for f in findings).values()) == 1


def test_evidence_of_another_tier_does_not_count() -> None:
    moved = [r.model_copy(update={"tier": Tier.GPU}) for r in small_evidence()]
    outcomes = {check.id: outcome_of(check, context_of(moved)) for check in CPU_CHECKS}
    assert Outcome.PASS not in outcomes.values()


def test_no_candidate_is_said_by_every_check_that_needs_one() -> None:
    evidence = small_evidence()
    for kind in (ArmEvidence, LedgerEvidence, SuiteEvidence):
        evidence = without(evidence, kind, arm=Arm.CANDIDATE)
    outcomes = {check.id: outcome_of(check, context_of(evidence)) for check in CPU_CHECKS}
    assert Outcome.PASS not in {o for check, o in outcomes.items() if check != "COR004"}
