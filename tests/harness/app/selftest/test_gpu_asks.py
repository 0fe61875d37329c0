"""What a fault of the gpu tier is asked lets its check decide, and less would not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.app.gpu_tier import GRAPHS, HANDOVER, plan_gpu
from harness.app.selftest.catalogue import CATALOGUE, Case, load_catalogue
from harness.app.selftest.gpu_asks import EVERY, RESTS_ON, Asked, asked_of, shares_of
from harness.checks.registry import all_checks
from harness.model.check import CheckContext
from harness.model.evidence import (
    AnyEvidence,
    CapturedPointersEvidence,
    DefaultOffEvidence,
    HandoverEvidence,
    ProbeEvidence,
    evidence_set,
)
from harness.model.selftest import Stage
from harness.model.words import Tier
from tests.harness.app import test_example_gpu_bundle as recorded
from tests.harness.app.selftest.test_run import ROOT
from tests.harness.app.test_gpu_tier import SLICED, probes_of, run
from tests.harness.checks.probe_builder import CLEAN, Made, handover, probe, probed_context

__all__ = ["run"]
CASES = [case for case in load_catalogue(ROOT / CATALOGUE) if case.fault.stage is Stage.GPU]
FAULTS = [case for case in CASES if not case.is_twin]


def made_context() -> CheckContext:
    """Of steps of two engines, one of which has a twin."""
    served = tuple(Made(m.scenario, m.parts, m.fast, HANDOVER) for m in CLEAN)
    others = tuple(Made(m.scenario, m.parts, m.fast, GRAPHS) for m in CLEAN)
    beside = handover(served)
    twin = beside.twin.model_copy(update={"tier": Tier.GPU})
    beside = beside.model_copy(update={"tier": Tier.GPU, "twin": twin})
    return probed_context(probe((*served, *others), tier=Tier.GPU), beside)


def recorded_context() -> CheckContext:
    """Of an H200, before hand-overs were recorded there."""
    bundle = recorded.read(recorded.GPU)
    return CheckContext(
        change=bundle.change,
        manifest=bundle.manifest,
        policy=bundle.policy,
        evidence=evidence_set(bundle.records),
    ).at(Tier.GPU)


def as_asked(record: AnyEvidence, asked: Asked) -> AnyEvidence | None:
    """A record of the tier as far as these engines leave it."""
    candidate = asked.get("candidate", frozenset())
    if isinstance(record, ProbeEvidence):
        if not candidate:
            return None
        fields = {
            name: tuple(item for item in getattr(record, name) if item.engine in candidate)
            for name in ("steps", "results", "refusals")
        }
        engines = tuple(engine for engine in record.engines if engine.name in candidate)
        return record.model_copy(update={**fields, "engines": engines})
    if isinstance(record, CapturedPointersEvidence):
        return record if GRAPHS in candidate else None
    if isinstance(record, HandoverEvidence):
        return record if HANDOVER in candidate & asked.get("twin", frozenset()) else None
    if isinstance(record, DefaultOffEvidence) and record.tier is Tier.GPU:
        models = {"bystander" if name == "bystander" else "subject" for name in asked.get(record.side, ())}
        shown = tuple(s for s in record.snapshots if s.model in models)
        return record.model_copy(update={"snapshots": shown}) if shown else None
    return record


def lets_through(check: str, context: CheckContext, asked: Asked) -> bool:
    """Whether the check decides all that it says, in the change's favour."""
    (judged,) = [c for c in all_checks() if c.id == check]
    kept: Iterable[Any] = (as_asked(record, asked) for record in context.evidence.records)
    evidence = evidence_set([record for record in kept if record is not None])
    findings = judged.run(
        CheckContext(
            change=context.change, manifest=context.manifest, policy=context.policy, evidence=evidence
        )
    )
    return all(finding.outcome.lets_through for finding in findings)


def less_than(asked: Asked) -> Iterator[Asked]:
    """All that lacks one engine."""
    for process, engines in asked.items():
        for engine in engines:
            yield {**asked, process: engines - {engine}}


CONTEXTS: Mapping[str, Any] = {
    **dict.fromkeys(("COR012", "ISO012"), made_context),
    **dict.fromkeys(("ISO009", "ISO010", "ISO011", "SCO006"), recorded_context),
}


@pytest.mark.parametrize("check", RESTS_ON)
def test_with_what_is_asked_a_clean_change_passes_and_with_less_it_does_not(check: str) -> None:
    context, asked = CONTEXTS[check](), RESTS_ON[check]
    assert lets_through(check, context, EVERY)
    assert lets_through(check, context, asked)
    assert not any(lets_through(check, context, less) for less in less_than(asked))


def test_every_engine_of_the_tier_is_known_and_only_those(run: Any) -> None:
    plans = plan_gpu(probes_of(run, SLICED.at(Tier.GPU)))
    assert {name: {e.name for e in plan.engines} for name, plan in plans.items()} == EVERY


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_twin_is_asked_everything_and_a_fault_what_its_check_rests_on(case: Case) -> None:
    (check,) = case.fault.expected
    assert asked_of([case]) == (EVERY if case.is_twin else RESTS_ON[check])


def test_a_check_of_which_it_is_not_known_is_asked_everything() -> None:
    fault = FAULTS[0].fault.model_copy(update={"expected": ("ISO009", "COR013")})
    assert asked_of([Case(id="a", fault=fault, is_twin=False, edit=Path("a"))]) == EVERY


def test_two_expected_checks_are_asked_what_either_rests_on() -> None:
    fault = FAULTS[0].fault.model_copy(update={"expected": ("ISO009", "COR012")})
    asked = asked_of([Case(id="a", fault=fault, is_twin=False, edit=Path("a"))])
    assert asked == {"candidate": {GRAPHS, HANDOVER}, "twin": {HANDOVER}}


def test_a_process_takes_a_share_for_each_engine_that_holds_the_slice() -> None:
    assert shares_of(EVERY) == {"candidate": 2, "twin": 1, "head": 1, "base": 1}
    assert shares_of(RESTS_ON["SCO006"]) == {"candidate": 1}
