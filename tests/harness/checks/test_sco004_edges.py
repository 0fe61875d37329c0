"""Outcomes of SCO004."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from harness.checks.scope.sco004_edges import ScopeEdges
from harness.model.evidence import GapEvidence, LedgerEvidence, ProbeEvidence
from harness.model.finding import Finding
from harness.model.judgement import worst
from harness.model.manifest import Manifest
from harness.model.probe import Refusal
from harness.model.step_kind import StepKind
from harness.model.words import Arm, Outcome, Tier
from tests.harness.checks.probe_builder import (
    CLEAN,
    PROBED,
    SCOPE,
    Made,
    Part,
    decode,
    prefill,
    probe,
    probed_context,
    row,
)


def findings_of(record: ProbeEvidence, manifest: Manifest = PROBED) -> dict[str, Finding]:
    return {f.subject: f for f in ScopeEdges().run(probed_context(record, manifest=manifest))}


def with_steps(*others: Made) -> dict[str, Finding]:
    return findings_of(probe((*CLEAN, *others)))


def outcomes(found: dict[str, Finding], *subjects: str) -> list[Outcome]:
    return [found[s].outcome for s in subjects]


def test_a_path_that_keeps_to_its_scope_passes_at_every_edge() -> None:
    found = findings_of(probe())
    assert {f.outcome for f in found.values()} == {Outcome.PASS}
    assert len(found) == 17


@pytest.mark.parametrize(
    ("subject", "step"),
    [
        ("2 requests", Made("batch", decode("a", "b"), False)),
        ("3 requests", Made("batch", decode("a", "b", "c"), True)),
        ("context 32", Made("context", decode("a", computed=31), False)),
        ("context 33", Made("context", decode("a", computed=32), True)),
        ("0 drafts", Made("batch", decode("a"), False)),
        ("1 drafts", Made("drafts", decode("a", drafts=1), False)),
        ("2 drafts", Made("drafts", decode("a", drafts=2), True)),
        ("unequal drafts", Made("drafts", (*decode("a"), *decode("b", drafts=1)), True)),
        ("mixed", Made("batch", (*decode("a"), prefill("b")), True)),
        ("prefill", Made("batch", (prefill("b"),), True)),
        ("one-token prompt", Made("batch", (prefill("b", 1),), True)),
    ],
)
def test_one_step_that_goes_elsewhere_fails_its_edge_and_the_whole(subject: str, step: Made) -> None:
    found = with_steps(step)
    assert outcomes(found, subject, "scripted steps") == [Outcome.FAIL, Outcome.FAIL]


@pytest.mark.parametrize(
    ("subject", "scenario"), [("preemption", "preempted"), ("abort", "aborted"), ("prefix hit", "prefix")]
)
def test_an_interruption_after_which_a_step_goes_elsewhere_fails(subject: str, scenario: str) -> None:
    last = max(i for i, m in enumerate(CLEAN) if m.scenario == scenario)
    made = [replace(m, fast=False) if i == last else m for i, m in enumerate(CLEAN)]
    assert findings_of(probe(made))[subject].outcome is Outcome.FAIL


@pytest.mark.parametrize("scenario", ["batch", "context", "prefix", "preempted", "aborted", "drafts"])
def test_an_edge_that_never_occurred_decides_nothing(scenario: str) -> None:
    found = findings_of(probe([m for m in CLEAN if m.scenario != scenario]))
    assert worst([f.outcome for f in found.values()]) is Outcome.INCONCLUSIVE


def test_a_deployment_beyond_the_scope_that_neither_starts_nor_is_refused_decides_nothing() -> None:
    refusals = [r for r in probe().refusals if r.scenario]
    assert findings_of(probe(refusals=tuple(refusals)))["2 drafts"].outcome is Outcome.INCONCLUSIVE


def test_a_deployment_that_the_scope_declares_and_the_path_refuses_fails() -> None:
    refusal = Refusal(engine="verify", within_scope=True, message="num_speculative_tokens: got 1, expected 0")
    found = findings_of(probe(refusals=(*probe().refusals, refusal)))
    assert found["deployments"].outcome is Outcome.FAIL


def test_ranks_that_were_never_started_leave_it_open() -> None:
    scope = PROBED.scope.model_copy(update={"tensor_parallel": (1, 8)})
    found = findings_of(probe(), manifest=PROBED.model_copy(update={"scope": scope}))
    assert found["deployments"].outcome is Outcome.INCONCLUSIVE
    assert "tensor parallel 8" in found["deployments"].message


def test_a_refusal_within_the_scope_is_none_beyond_it() -> None:
    refusals = tuple(r.model_copy(update={"within_scope": not r.scenario}) for r in probe().refusals)
    assert findings_of(probe(refusals=refusals))["2 drafts"].outcome is Outcome.INCONCLUSIVE


def test_a_prefix_hit_is_not_asked_of_engines_that_keep_no_prefixes() -> None:
    engines = tuple(e.model_copy(update={"caches_prefixes": False}) for e in probe().engines)
    made = [m for m in CLEAN if m.scenario != "prefix"]
    assert findings_of(probe(made, engines=engines))["prefix hit"].outcome is Outcome.NOT_APPLICABLE


def test_where_the_scope_says_refuse_a_step_beyond_it_fails_on_either_path() -> None:
    refusing = PROBED.model_copy(update={"scope": SCOPE.model_copy(update={"outside": "refuse"})})
    assert findings_of(probe(), refusing)["3 requests"].outcome is Outcome.FAIL


def test_a_scope_that_takes_mixed_steps_wants_them_specialised() -> None:
    kinds = (StepKind.DECODE, StepKind.VERIFY, StepKind.MIXED)
    wide = PROBED.model_copy(update={"scope": SCOPE.model_copy(update={"steps": kinds})})
    step = Made("batch", (*decode("a"), prefill("b")), False)
    assert findings_of(probe((*CLEAN, step)), wide)["mixed"].outcome is Outcome.FAIL


@pytest.mark.parametrize("fast", [True, False])
def test_the_last_token_of_a_prompt_alone_may_go_either_way(fast: bool) -> None:
    found = with_steps(Made("prefix", (Part("a", 20, 1, 1),), fast))
    assert found["scripted steps"].outcome is Outcome.PASS


def change_decisions(reason: str | None) -> ProbeEvidence:
    """The first step's decision with another reason, or without a decision."""
    first, *rest = probe().steps
    decisions = () if reason is None else (first.row.decisions[0].model_copy(update={"reason": reason}),)
    changed = first.model_copy(update={"row": first.row.model_copy(update={"decisions": decisions})})
    return probe(steps=(changed, *rest))


def test_a_step_without_a_decision_fails() -> None:
    assert findings_of(change_decisions(None))["scripted steps"].outcome is Outcome.FAIL


def test_a_decision_without_a_reason_decides_nothing() -> None:
    assert findings_of(change_decisions(""))["scripted steps"].outcome is Outcome.INCONCLUSIVE


def test_steps_of_the_served_suites_are_judged_like_the_scripted_ones() -> None:
    def ledger(rows: Iterable[Made]) -> LedgerEvidence:
        made = [row(i, m.parts, fast=m.fast) for i, m in enumerate(rows)]
        return LedgerEvidence(tier=Tier.CPU, recorded_at="now", arm=Arm.CANDIDATE, rows=tuple(made))

    def outcome(*rows: Made) -> Outcome:
        context = probed_context(probe(), ledger(rows))
        return {f.subject: f for f in ScopeEdges().run(context)}["served steps"].outcome

    assert outcome(*CLEAN) is Outcome.PASS
    assert outcome(*CLEAN, Made("x", decode("a", "b", "c"), True)) is Outcome.FAIL


def test_a_ledger_that_does_not_say_what_its_steps_start_from_decides_nothing() -> None:
    step = probe().steps[1]
    parts = tuple(r.model_copy(update={"num_computed_tokens": None}) for r in step.row.requests)
    blind = step.model_copy(update={"row": step.row.model_copy(update={"requests": parts})})
    found = findings_of(probe(steps=(blind, *probe().steps)))
    assert found["scripted steps"].outcome is Outcome.INCONCLUSIVE


def test_without_a_scripted_run_there_is_nothing_to_decide_by() -> None:
    (finding,) = ScopeEdges().run(probed_context())
    assert finding.outcome is Outcome.NOT_RUN


def test_a_scripted_run_that_broke_is_an_error_of_the_harness() -> None:
    gap = GapEvidence(
        tier=Tier.CPU, recorded_at="now", what="probe of candidate", broke=True, reason="it died"
    )
    (finding,) = ScopeEdges().run(probed_context(gap))
    assert (finding.outcome, "it died" in finding.message) == (Outcome.ERROR, True)


def test_a_scripted_run_of_other_files_does_not_count() -> None:
    process = probe().process
    others = tuple(f.model_copy(update={"sha256": "0" * 64}) for f in process.imported)
    found = findings_of(probe(process=process.model_copy(update={"imported": others})))
    assert found["edges"].outcome is Outcome.ERROR


def test_adapters_that_are_refused_by_name_pass() -> None:
    assert findings_of(probe())["adapters"].outcome is Outcome.PASS


def test_an_engine_for_adapters_that_fails_for_another_reason_shows_nothing() -> None:
    refusals = tuple(r for r in probe().refusals if r.engine != "lora")
    other = Refusal(engine="lora", message="out of memory")
    assert findings_of(probe(refusals=(*refusals, other)))["adapters"].outcome is Outcome.INCONCLUSIVE


def test_adapters_that_were_not_tried_are_no_pass() -> None:
    refusals = tuple(r for r in probe().refusals if r.engine != "lora")
    assert findings_of(probe(refusals=refusals))["adapters"].outcome is Outcome.INCONCLUSIVE


def test_a_path_that_serves_a_deployment_for_adapters_must_show_that_they_work() -> None:
    refusals = tuple(r for r in probe().refusals if r.engine != "lora")
    served = tuple(s.model_copy(update={"engine": "lora"}) for s in probe().steps)
    found = findings_of(probe(refusals=refusals, steps=(*probe().steps, *served)))
    assert found["adapters"].outcome is Outcome.INCONCLUSIVE


def test_a_deployment_for_adapters_that_is_refused_says_nothing_of_the_drafts() -> None:
    refusals = tuple(r for r in probe().refusals if r.engine != "beyond")
    assert findings_of(probe(refusals=refusals))["2 drafts"].outcome is Outcome.INCONCLUSIVE
