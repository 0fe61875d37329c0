"""COR012: COR006 of the engine that has a twin on a GPU."""

from __future__ import annotations

from collections.abc import Mapping

from harness.checks.correctness.cor012_hand_over_on_a_gpu import HandOverOnAGpu
from harness.model.finding import Finding
from harness.model.probe import Distance
from harness.model.words import Outcome, Tier
from tests.harness.checks.probe_builder import CLEAN, Made, handover, probe, probed_context

SERVED = tuple(Made(m.scenario, m.parts, m.fast, "handover") for m in CLEAN)
ALONE = (*SERVED, *(Made("every_graph", m.parts, m.fast, "graphs") for m in CLEAN))
"""With an engine that no twin runs."""


def findings_of(largest: float = 0.0, beside: tuple[Made, ...] = SERVED) -> Mapping[str, Finding]:
    far = Distance(num_words=100, num_differing=1, largest=largest)
    record = handover(beside, lambda step: step.model_copy(update={"states": far}))
    process = record.twin.model_copy(update={"tier": Tier.GPU})
    candidate = probe(ALONE, tier=Tier.GPU)
    context = probed_context(candidate, record.model_copy(update={"tier": Tier.GPU, "twin": process}))
    return {finding.subject: finding for finding in HandOverOnAGpu().run(context)}


def test_an_engine_that_no_twin_runs_is_not_asked_of_it() -> None:
    assert {f.outcome for f in findings_of().values()} == {Outcome.PASS}


def test_another_state_fails_on_a_gpu_too() -> None:
    assert findings_of(0.5)["handover, batch"].outcome is Outcome.FAIL


def test_a_script_of_the_twins_engine_that_it_did_not_run_is_open() -> None:
    rest = tuple(m for m in SERVED if m.scenario != "preempted")
    assert findings_of(beside=rest)["handover, preempted"].outcome is Outcome.INCONCLUSIVE
