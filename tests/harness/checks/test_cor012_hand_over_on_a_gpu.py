"""COR012: COR006 of the engine that has a twin on a GPU."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from harness.checks.correctness.cor012_hand_over_on_a_gpu import HandOverOnAGpu
from harness.model.finding import Finding
from harness.model.probe import DUMMY_LOADER, Distance, DrawnWeights, ProbedEngine
from harness.model.words import Outcome, Tier
from tests.harness.checks.probe_builder import CLEAN, Made, handover, probe, probed_context

SERVED = tuple(Made(m.scenario, m.parts, m.fast, "handover") for m in CLEAN)
ALONE = (*SERVED, *(Made("every_graph", m.parts, m.fast, "graphs") for m in CLEAN))
"""With an engine that no twin runs."""


DRAWN = DrawnWeights(by="weights.py:fill", source="a" * 64, digest="b" * 64)


def findings_of(
    largest: float = 0.0,
    beside: tuple[Made, ...] = SERVED,
    ours: DrawnWeights | None = None,
    theirs: DrawnWeights | None = None,
) -> Mapping[str, Finding]:
    far = Distance(num_words=100, num_differing=1, largest=largest)
    record = handover(beside, lambda step: step.model_copy(update={"states": far}))
    process = record.twin.model_copy(update={"tier": Tier.GPU})
    engines = [
        (ProbedEngine(name="handover", ready_s=1.0, caches_prefixes=False, weights=w),)
        for w in (ours, theirs)
    ]
    candidate = probe(ALONE, tier=Tier.GPU).model_copy(update={"engines": engines[0]})
    record = record.model_copy(update={"tier": Tier.GPU, "twin": process, "twin_engines": engines[1]})
    context = probed_context(candidate, record)
    return {finding.subject: finding for finding in HandOverOnAGpu().run(context)}


def test_an_engine_that_no_twin_runs_is_not_asked_of_it() -> None:
    assert {f.outcome for f in findings_of().values()} == {Outcome.PASS}


def test_another_state_fails_on_a_gpu_too() -> None:
    assert findings_of(0.5)["handover, batch"].outcome is Outcome.FAIL


def test_a_script_of_the_twins_engine_that_it_did_not_run_is_open() -> None:
    rest = tuple(m for m in SERVED if m.scenario != "preempted")
    assert findings_of(beside=rest)["handover, preempted"].outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("largest", [0.0, 1e19])
def test_dummy_weights_decide_nothing_either_way(largest: float) -> None:
    dummy = DrawnWeights(by=DUMMY_LOADER)
    found = findings_of(largest, ours=dummy, theirs=dummy)
    assert [(s, f.outcome) for s, f in found.items()] == [("weights", Outcome.INCONCLUSIVE)]


@pytest.mark.parametrize("field", ["by", "source", "digest"])
@pytest.mark.parametrize("is_told", [True, False])
def test_weights_that_are_not_the_twins_decide_nothing(field: str, is_told: bool) -> None:
    other = DRAWN.model_copy(update={field: "c"}) if is_told else None
    for ours, theirs in ((DRAWN, other), (other, DRAWN)):
        found = findings_of(ours=ours, theirs=theirs)
        assert [(s, f.outcome) for s, f in found.items()] == [("weights", Outcome.INCONCLUSIVE)]


@pytest.mark.parametrize(("largest", "outcome"), [(0.0, Outcome.PASS), (0.5, Outcome.FAIL)])
def test_the_same_drawn_weights_are_compared(largest: float, outcome: Outcome) -> None:
    assert findings_of(largest, ours=DRAWN, theirs=DRAWN)["handover, batch"].outcome is outcome
