"""Outcomes of ISO012."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from harness.checks.isolation.iso012_rows_on_a_gpu import RowsOnAGpu
from harness.model.finding import Finding
from harness.model.manifest import Manifest
from harness.model.words import Outcome, Tier
from tests.harness.checks.probe_builder import CLEAN, PROBED, STATE, Made, handover, probe, probed_context

SERVED = tuple(Made(m.scenario, m.parts, m.fast, "handover") for m in CLEAN)


def findings_of(
    made: tuple[Made, ...] = SERVED, *, manifest: Manifest = PROBED, **update: object
) -> Mapping[str, Finding]:
    """Of steps like these on both sides; the second of them, which is specialised, may be another."""
    beside = handover(made, lambda s: s.model_copy(update=update if s.position == 1 else {}))
    twin = beside.twin.model_copy(update={"tier": Tier.GPU})
    alone = tuple(replace(m, engine="graphs") for m in CLEAN)
    beside = beside.model_copy(update={"tier": Tier.GPU, "twin": twin})
    context = probed_context(probe((*made, *alone), tier=Tier.GPU), beside, manifest=manifest)
    return {finding.subject: finding for finding in RowsOnAGpu().run(context)}


def test_steps_that_write_where_the_twins_do_pass() -> None:
    found = findings_of()
    assert {s: f.outcome for s, f in found.items()} == dict.fromkeys(("rows", "between steps"), Outcome.PASS)


@pytest.mark.parametrize(
    ("field", "subject"), [("num_bytes_beyond", "rows"), ("num_bytes_between", "between steps")]
)
def test_bytes_that_the_twin_leaves_alone_fail_and_are_named(field: str, subject: str) -> None:
    found = findings_of(**{field: {"attn.3": 8}})
    assert {s for s, f in found.items() if f.outcome is Outcome.FAIL} == {subject}
    assert "8 bytes of attn.3" in found[subject].details[0]


def test_a_run_without_a_specialised_step_decides_nothing() -> None:
    slow = tuple(replace(m, fast=False) for m in SERVED)
    assert [f.outcome for f in findings_of(slow).values()] == [Outcome.INCONCLUSIVE]


def test_without_a_twin_nothing_was_run() -> None:
    (finding,) = RowsOnAGpu().run(probed_context(probe(SERVED, tier=Tier.GPU)))
    assert finding.outcome is Outcome.NOT_RUN


@pytest.mark.parametrize(
    ("largest", "outcome"),
    [(5e-5, Outcome.PASS), (2e-4, Outcome.FAIL), (1.0, Outcome.FAIL)],
    ids=["rounding", "beyond the declared", "zeroed"],
)
def test_a_word_that_comes_to_hold_the_twins_number_is_no_breach(largest: float, outcome: Outcome) -> None:
    found = findings_of(num_bytes_beyond={"attn.3": 4}, largest_beyond={"attn.3": largest})
    assert found["rows"].outcome is outcome


def test_a_manifest_cannot_declare_a_written_row_away() -> None:
    wide = PROBED.model_copy(update={"state": STATE.model_copy(update={"max_relative_difference": 1e9})})
    found = findings_of(manifest=wide, num_bytes_beyond={"attn.3": 4}, largest_beyond={"attn.3": 1.0})
    assert found["rows"].outcome is Outcome.FAIL
