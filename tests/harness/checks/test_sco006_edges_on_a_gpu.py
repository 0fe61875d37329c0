"""Outcomes of SCO006, as far as they are not those of SCO004."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.checks.scope.sco006_edges_on_a_gpu import ScopeEdgesOnAGpu
from harness.model.finding import Finding
from harness.model.judgement import worst
from harness.model.manifest import SliceModel
from harness.model.words import Outcome, Tier
from tests.harness.checks.probe_builder import CLEAN, PROBED, probe, probed_context


def findings_of(tier: Tier = Tier.GPU, **update: object) -> dict[str, Finding]:
    return {f.subject: f for f in ScopeEdgesOnAGpu().run(probed_context(probe(tier=tier, **update)))}


def test_a_path_that_keeps_to_its_scope_on_a_gpu_passes() -> None:
    assert {f.outcome for f in findings_of().values()} == {Outcome.PASS}


def test_a_step_that_replays_a_graph_of_the_other_path_fails() -> None:
    swapped = (*CLEAN, replace(CLEAN[0], fast=True))
    steps = probe(swapped).steps
    assert worst([f.outcome for f in findings_of(steps=steps).values()]) is Outcome.FAIL


def test_what_a_cpu_showed_of_the_edges_is_no_evidence_for_a_gpu() -> None:
    (finding,) = findings_of(Tier.CPU).values()
    assert finding.outcome is Outcome.NOT_RUN


@pytest.mark.parametrize(("tier", "batch"), [(Tier.CPU, 2), (Tier.GPU, 9)])
def test_the_slices_own_scope_is_what_a_gpu_is_held_to(tier: Tier, batch: int) -> None:
    scope = PROBED.scope.model_copy(update={"max_batch": 9})
    found = SliceModel(config="config.json", max_model_len=32, scope=scope, dispatch=PROBED.dispatch)
    models = PROBED.models.model_copy(update={"slice": found})
    context = probed_context(manifest=PROBED.model_copy(update={"models": models}))
    assert context.at(tier).manifest.scope.max_batch == batch
