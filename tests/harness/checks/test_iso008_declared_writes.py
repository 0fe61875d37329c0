"""Outcomes of ISO008."""

from __future__ import annotations

import pytest

from harness.checks.isolation.iso008_declared_writes import DeclaredWrites
from harness.model.evidence import HandoverEvidence, ProbeEvidence
from harness.model.finding import Finding
from harness.model.manifest import Manifest, StateSection
from harness.model.probe import HandoverStep, Place, Write
from harness.model.words import Outcome
from tests.harness.checks.probe_builder import (
    CLEAN,
    OWN,
    PROBED,
    STATE,
    handover,
    probe,
    probed_context,
)


def findings_of(
    record: ProbeEvidence, beside: HandoverEvidence | None = None, manifest: Manifest = PROBED
) -> dict[str, Finding]:
    context = probed_context(record, beside or handover(), manifest=manifest)
    return {f.subject: f for f in DeclaredWrites().run(context)}


def with_write(place: Place, buffer: str = "kda.0", owner: str = "") -> ProbeEvidence:
    """One more write in the first specialised step."""
    write = Write(buffer=buffer, place=place, owner=owner, num_bytes=4)
    at = next(i for i, m in enumerate(CLEAN) if m.fast)
    steps = list(probe().steps)
    steps[at] = steps[at].model_copy(update={"writes": (*OWN, write)})
    return probe(steps=tuple(steps))


def failed(found: dict[str, Finding]) -> set[str]:
    return {subject for subject, f in found.items() if f.outcome is Outcome.FAIL}


def test_steps_that_write_their_own_declared_slots_pass() -> None:
    found = findings_of(probe())
    assert {f.outcome for f in found.values()} == {Outcome.PASS}
    assert len(found) == 5


@pytest.mark.parametrize("place", [Place.OTHER_SLOT, Place.OTHER_REQUEST, Place.FREE_SLOT])
def test_one_write_in_a_slot_that_the_step_was_not_given_fails(place: Place) -> None:
    assert failed(findings_of(with_write(place))) == {"slots"}


def test_the_owner_of_a_foreign_slot_is_named() -> None:
    finding = findings_of(with_write(Place.OTHER_REQUEST, owner="victim"))["slots"]
    assert "of request victim" in finding.message


def test_a_layer_that_is_not_declared_fails() -> None:
    assert failed(findings_of(with_write(Place.OWN_SLOT, "draft.0"))) == {"declared layers"}


def test_a_part_of_a_slot_that_no_layer_uses_fails() -> None:
    assert failed(findings_of(with_write(Place.BEYOND_TOKENS))) == {"declared layers"}


@pytest.mark.parametrize("place", [Place.BUFFER, Place.NEW_BUFFER])
@pytest.mark.parametrize("buffer", ["model.scratch", ""])
def test_another_tensor_that_is_written_or_left_behind_fails(place: Place, buffer: str) -> None:
    assert failed(findings_of(with_write(place, buffer))) == {"memory outside the cache"}


@pytest.mark.parametrize("key", ["workspaces", "mailboxes"])
def test_a_declared_tensor_may_be_written(key: str) -> None:
    state = STATE.model_copy(update={key: ("model.scr*",)})
    manifest = PROBED.model_copy(update={"state": state})
    assert failed(findings_of(with_write(Place.BUFFER, "model.scratch"), manifest=manifest)) == set()


def test_a_glob_declares_no_tensor_without_a_name() -> None:
    manifest = PROBED.model_copy(update={"state": STATE.model_copy(update={"workspaces": ("*",)})})
    found = findings_of(with_write(Place.BUFFER, ""), manifest=manifest)
    assert failed(found) == {"memory outside the cache"}


def test_bytes_of_a_block_that_the_baseline_does_not_write_fail() -> None:
    def beyond(step: HandoverStep) -> HandoverStep:
        return step.model_copy(update={"num_bytes_beyond": {"attn.3": 8}} if step.position == 1 else {})

    assert failed(findings_of(probe(), handover(change=beyond))) == {"rows of its own tokens"}


def test_specialised_steps_that_the_twin_did_not_compute_leave_the_rows_open() -> None:
    fast = {number for number, made in enumerate(CLEAN) if made.fast}
    apart = handover(change=lambda s: s.model_copy(update={"same_work": s.position not in fast}))
    assert findings_of(probe(), apart)["rows of its own tokens"].outcome is Outcome.INCONCLUSIVE


def test_an_engine_that_the_twin_did_not_run_leaves_the_comparisons_open() -> None:
    whole = handover()
    half = whole.model_copy(update={"steps": tuple(s for s in whole.steps if s.engine == "plain")})
    found = findings_of(probe(), half)
    assert {s for s, f in found.items() if f.outcome is Outcome.INCONCLUSIVE} == {
        "rows of its own tokens",
        "between forward calls",
    }


def test_a_write_after_the_forward_call_fails() -> None:
    def late(step: HandoverStep) -> HandoverStep:
        return step.model_copy(update={"num_bytes_between": {"block 7": 4}} if step.position == 1 else {})

    assert failed(findings_of(probe(), handover(change=late))) == {"between forward calls"}


def test_a_specialised_step_that_was_not_seen_to_write_leaves_it_open() -> None:
    steps = list(probe().steps)
    at = next(i for i, m in enumerate(CLEAN) if m.fast)
    steps[at] = steps[at].model_copy(update={"writes": ()})
    found = findings_of(probe(steps=tuple(steps)))
    assert {s for s, f in found.items() if f.outcome is Outcome.INCONCLUSIVE} == {"steps without a write"}


def test_steps_of_an_engine_that_is_not_watched_are_not_counted() -> None:
    unwatched = probe().steps[1].model_copy(update={"engine": "lora", "writes": ()})
    found = findings_of(probe(steps=(*probe().steps, unwatched)))
    num_fast = sum(m.fast for m in CLEAN)
    assert found["slots"].message.startswith(f"All cache writes of {num_fast} specialised steps")


def test_without_a_twin_only_the_comparisons_stay_open() -> None:
    found = {f.subject: f.outcome for f in DeclaredWrites().run(probed_context(probe()))}
    for name in ("rows of its own tokens", "between forward calls"):
        assert found.pop(name) is Outcome.NOT_RUN
    assert set(found.values()) == {Outcome.PASS}


def test_a_twin_that_computed_other_steps_decides_nothing_about_rows() -> None:
    apart = handover(change=lambda s: s.model_copy(update={"same_work": False}))
    found = findings_of(probe(), apart)
    assert found["rows of its own tokens"].outcome is Outcome.INCONCLUSIVE
    assert found["between forward calls"].outcome is Outcome.INCONCLUSIVE


def test_an_observation_that_sees_no_write_at_all_decides_nothing() -> None:
    blind = tuple(s.model_copy(update={"writes": ()}) for s in probe().steps)
    assert {f.outcome for f in findings_of(probe(steps=blind)).values()} == {Outcome.INCONCLUSIVE}


def test_a_run_without_a_specialised_step_decides_nothing() -> None:
    slow = [m for m in CLEAN if not m.fast]
    assert {f.outcome for f in findings_of(probe(slow)).values()} == {Outcome.INCONCLUSIVE}


def test_a_manifest_that_declares_nothing_is_not_judged() -> None:
    manifest = PROBED.model_copy(update={"state": None})
    assert {f.outcome for f in findings_of(probe(), manifest=manifest).values()} == {Outcome.NOT_RUN}


LAYERS = ("model.layers.0.self_attn", "model.layers.3.self_attn.attn")


@pytest.mark.parametrize(
    ("glob", "is_wide"),
    [
        ("*", True),
        ("model*", True),
        ("model.*", True),
        ("model.layers.*", True),
        ("model.layers.*.*", True),
        ("*.layers.*", True),
        ("model.layers.[0-9]*", True),
        ("model.layers.*.self_attn", False),
        ("model.layers.*.self_attn*", False),
        ("*.attn", False),
        ("model.layers.3.*", False),
        ("model.layers.3.self_attn*", False),
    ],
)
def test_a_glob_as_wide_as_the_model_declares_nothing(glob: str, is_wide: bool) -> None:
    steps = [
        step.model_copy(
            update={
                "writes": tuple(w.model_copy(update={"buffer": n}) for w, n in zip(OWN, LAYERS, strict=True))
            }
        )
        if step.writes
        else step
        for step in probe().steps
    ]
    state = StateSection(caches=(glob,), states=LAYERS)
    manifest = PROBED.model_copy(update={"state": state})
    outcome = findings_of(probe(steps=tuple(steps)), manifest=manifest)["declared layers"].outcome
    assert outcome is (Outcome.INCONCLUSIVE if is_wide else Outcome.PASS)


@pytest.mark.parametrize(("glob", "expected"), [("kda.*", Outcome.INCONCLUSIVE), ("own.*", Outcome.PASS)])
def test_a_workspace_that_takes_in_the_models_layers_declares_nothing(glob: str, expected: Outcome) -> None:
    manifest = PROBED.model_copy(update={"state": STATE.model_copy(update={"workspaces": (glob,)})})
    assert findings_of(probe(), manifest=manifest)["memory outside the cache"].outcome is expected
