"""Outcomes of COR006."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from harness.checks.correctness.cor006_hand_over import HandOver
from harness.model.evidence import HandoverEvidence
from harness.model.finding import Finding
from harness.model.manifest import Manifest
from harness.model.probe import Distance, HandoverStep
from harness.model.step_kind import StepKind
from harness.model.words import Outcome
from tests.harness.checks.probe_builder import (
    CLEAN,
    NEAR,
    NOTHING,
    PROBED,
    SCOPE,
    STATE,
    Made,
    handover,
    probe,
    probed_context,
)

FAR = Distance(num_words=100, num_differing=90, largest=0.5, worst="a, kda.0.kv_cache[0]")
CAUSES = "fast, standard, fast"


def findings_of(
    beside: HandoverEvidence, manifest: Manifest = PROBED, made: tuple[Made, ...] = CLEAN
) -> dict[str, Finding]:
    return {f.subject: f for f in HandOver().run(probed_context(probe(made), beside, manifest=manifest))}


def at(position: int, **update: object) -> Callable[[HandoverStep], HandoverStep]:
    return lambda s: s.model_copy(update=update if s.position == position else {})


def test_a_path_that_hands_over_what_its_twin_would_passes() -> None:
    assert {f.outcome for f in findings_of(handover()).values()} == {Outcome.PASS}


@pytest.mark.parametrize("key", ["states", "caches"])
@pytest.mark.parametrize("position", [1, 2, 4])
def test_a_step_that_starts_from_something_else_fails_its_scenario_only(key: str, position: int) -> None:
    found = findings_of(handover(change=at(position, **{key: FAR})))
    assert {s for s, f in found.items() if f.outcome is Outcome.FAIL} == {"plain, batch"}
    assert f"step {position} " in found["plain, batch"].details[0]


def test_the_details_say_which_path_was_left() -> None:
    finding = findings_of(handover(change=at(2, states=FAR)))["plain, batch"]
    assert finding.details[0].startswith("step 2 (baseline, after specialized)")
    assert "kv_cache[0]" in finding.details[0]


def test_a_difference_within_the_declared_one_passes_and_one_above_fails() -> None:
    class_of = NEAR.model_copy(update={"largest": 1e-4})
    assert findings_of(handover(change=at(1, states=class_of)))["plain, batch"].outcome is Outcome.PASS
    above = NEAR.model_copy(update={"largest": 1.1e-4})
    assert findings_of(handover(change=at(1, states=above)))["plain, batch"].outcome is Outcome.FAIL


def test_a_manifest_without_a_declared_difference_is_held_to_every_bit() -> None:
    manifest = PROBED.model_copy(update={"state": None})
    assert findings_of(handover(), manifest)["plain, batch"].outcome is Outcome.FAIL


def test_a_manifest_may_not_declare_more_than_the_policy_allows() -> None:
    manifest = PROBED.model_copy(update={"state": STATE.model_copy(update={"max_relative_difference": 0.1})})
    (finding,) = findings_of(handover(), manifest).values()
    assert finding.outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("gap", "outcome"),
    [(None, Outcome.FAIL), (0.2, Outcome.FAIL), (0.011, Outcome.FAIL), (0.009, Outcome.PASS)],
)
def test_another_token_fails_unless_it_was_a_tie(gap: float | None, outcome: Outcome) -> None:
    found = findings_of(handover(change=at(4, other_token="a", top_gap=gap)))
    assert found["plain, batch"].outcome is outcome


def test_a_run_in_which_the_path_took_no_step_shows_no_hand_over() -> None:
    made = tuple(replace(m, fast=False) for m in CLEAN)
    refuses = SCOPE.model_copy(update={"outside": "refuse", "steps": tuple(StepKind)})
    manifest = PROBED.model_copy(update={"scope": refuses})
    found = findings_of(handover(made), manifest, made)
    assert {f.outcome for f in found.values()} == {Outcome.NOT_APPLICABLE, Outcome.INCONCLUSIVE}


def test_an_empty_comparison_passes_nothing() -> None:
    refuses = SCOPE.model_copy(update={"outside": "refuse", "steps": tuple(StepKind)})
    manifest = PROBED.model_copy(update={"scope": refuses})
    assert {f.outcome for f in findings_of(handover(()), manifest).values()} == {Outcome.INCONCLUSIVE}


def test_a_script_that_the_twin_did_not_run_is_named_and_open() -> None:
    whole = handover()
    rest = tuple(step for step in whole.steps if step.scenario != "preempted")
    found = findings_of(whole.model_copy(update={"steps": rest}))
    assert {s for s, f in found.items() if f.outcome is Outcome.INCONCLUSIVE} == {"plain, preempted"}


def test_a_step_that_the_ledger_does_not_hold_leaves_its_scenario_open() -> None:
    finding = findings_of(handover(), made=CLEAN[:-1])["verify, drafts"]
    assert finding.outcome is Outcome.INCONCLUSIVE


def test_steps_that_are_no_longer_comparable_leave_their_scenario_open() -> None:
    found = findings_of(handover(change=at(12, same_work=False)))
    assert {s for s, f in found.items() if f.outcome is Outcome.INCONCLUSIVE} == {"plain, aborted"}


def test_a_scenario_in_which_nothing_was_handed_over_decides_nothing() -> None:
    empty = handover(change=lambda s: s.model_copy(update={"states": NOTHING, "caches": NOTHING}))
    assert findings_of(empty)["plain, batch"].outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(("position", "cause"), [(2, "mixed"), (3, "batch"), (14, "ragged_verify")])
def test_an_edge_over_which_nothing_was_handed_decides_nothing(position: int, cause: str) -> None:
    made = tuple(m for i, m in enumerate(CLEAN) if i != position)
    finding = findings_of(handover(made), made=made)[CAUSES]
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert f"It never was because of: {cause}." in finding.message


def test_a_hand_over_that_could_not_be_compared_does_not_count_as_one() -> None:
    found = findings_of(handover(change=at(4, same_work=False)))
    assert found[CAUSES].outcome is Outcome.INCONCLUSIVE


def test_a_scope_that_refuses_beyond_its_batch_needs_no_hand_over_there() -> None:
    manifest = PROBED.model_copy(update={"scope": SCOPE.model_copy(update={"outside": "refuse"})})
    made = tuple(m for i, m in enumerate(CLEAN) if i != 3)
    assert findings_of(handover(made), manifest, made)[CAUSES].outcome is Outcome.PASS


def test_without_a_twin_there_is_nothing_to_decide_by() -> None:
    (finding,) = HandOver().run(probed_context(probe()))
    assert finding.outcome is Outcome.NOT_RUN


def test_a_twin_that_was_switched_on_is_no_twin() -> None:
    beside = handover()
    on = {PROBED.switch.key: PROBED.switch.on}
    switched = beside.twin.model_copy(update={"additional_config": on})
    (finding,) = findings_of(beside.model_copy(update={"twin": switched})).values()
    assert finding.outcome is Outcome.ERROR
