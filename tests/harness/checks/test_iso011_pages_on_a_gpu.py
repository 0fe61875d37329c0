"""Outcomes of ISO011."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.checks.isolation.iso011_pages_on_a_gpu import PagesOnAGpu
from harness.model.evidence import ProbeEvidence
from harness.model.finding import Finding
from harness.model.manifest import StateSection
from harness.model.probe import Place, ProbeStep, Write
from harness.model.words import Outcome, Tier
from tests.harness.checks.probe_builder import CLEAN, PROBED, probe, probed_context

FAST = next(i for i, made in enumerate(CLEAN) if made.fast)


def findings_of(
    record: ProbeEvidence, state: StateSection | None = PROBED.state, tier: Tier = Tier.GPU
) -> dict[str, Finding]:
    manifest = PROBED.model_copy(update={"state": state})
    context = probed_context(record.model_copy(update={"tier": tier}), manifest=manifest)
    return {f.subject: f for f in PagesOnAGpu().run(context)}


def with_writes(at: int, *writes: Write) -> ProbeEvidence:
    """The clean run with other writes of one step."""
    steps: list[ProbeStep] = list(probe().steps)
    steps[at] = steps[at].model_copy(update={"writes": writes})
    return probe(steps=tuple(steps))


def test_pages_of_the_steps_own_requests_in_declared_layers_pass() -> None:
    assert {f.outcome for f in findings_of(probe()).values()} == {Outcome.PASS}


@pytest.mark.parametrize("place", [Place.FREE_SLOT, Place.OTHER_REQUEST])
def test_one_page_of_anybody_else_fails(place: Place) -> None:
    own = probe().steps[FAST].writes
    write = Write(buffer="kda.0", place=place, num_bytes=4)
    assert findings_of(with_writes(FAST, *own, write))["pages"].outcome is Outcome.FAIL


def test_a_layer_that_is_not_declared_fails() -> None:
    write = Write(buffer="mlp.2", place=Place.OWN_SLOT, owner="a", num_bytes=4)
    assert findings_of(with_writes(FAST, write))["declared layers"].outcome is Outcome.FAIL


def test_a_step_that_was_not_seen_to_write_decides_nothing() -> None:
    assert findings_of(with_writes(FAST))["steps without a write"].outcome is Outcome.INCONCLUSIVE


def test_a_run_whose_pages_were_not_watched_decides_nothing() -> None:
    steps = tuple(step.model_copy(update={"writes": ()}) for step in probe().steps)
    assert {f.outcome for f in findings_of(probe(steps=steps)).values()} == {Outcome.INCONCLUSIVE}


def test_a_run_without_a_specialised_step_decides_nothing() -> None:
    slow = probe([replace(made, fast=False) for made in CLEAN])
    assert {f.outcome for f in findings_of(slow).values()} == {Outcome.INCONCLUSIVE}


def test_without_a_declared_state_there_is_nothing_to_hold_it_to() -> None:
    assert [f.outcome for f in findings_of(probe(), state=None).values()] == [Outcome.NOT_RUN]


def test_what_a_cpu_showed_is_no_evidence_for_a_gpu() -> None:
    assert [f.outcome for f in findings_of(probe(), tier=Tier.CPU).values()] == [Outcome.NOT_RUN]
