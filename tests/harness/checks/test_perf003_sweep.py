"""PERF003: a sweep's cells are judged from their blocks, and which cells and blocks there are is not to be chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from harness.checks.performance.perf003_sweep import SweptScope, decide_breadth
from harness.model.check import CheckContext
from harness.model.evidence import EnvironmentEvidence, GapEvidence, SweepEvidence, evidence_set
from harness.model.finding import Finding
from harness.model.swept_cell import SweptBlock, SweptCell
from harness.model.words import Arm, Outcome, Tier
from tests.harness.checks.evidence_builder import CHANGE, MANIFEST, POLICY

SCOPE = MANIFEST.scope
JUDGE = "d" * 64
NUM_BLOCKS = 6
ENVIRONMENT = EnvironmentEvidence(
    tier=Tier.STATIC,
    recorded_at="2026-01-01T00:00:00Z",
    cpu="made",
    num_cores=16,
    memory_gib=1,
    gpus=("NVIDIA H200, 9.0",),
    os="made",
    python="made",
    packages={},
    harness_sha256=JUDGE,
)
NOISE = (1.001, 0.999, 1.0005, 0.9995, 1.0, 1.0002)


def cell(batch: int, context: int, ratio: float = 0.9, **changed: Any) -> SweptCell:
    """A decode cell whose candidate takes `ratio` of the baseline's time, a little noise aside."""
    blocks = tuple(
        SweptBlock(
            index=index,
            times_ms={
                Arm.BASELINE: 10.0,
                Arm.CANDIDATE: 10.0 * ratio * NOISE[index],
                Arm.BASELINE_AGAIN: 10.0 * NOISE[-1 - index],
            },
        )
        for index in range(NUM_BLOCKS)
    )
    plain = {
        "name": f"decode/tp1/b{batch}/c{context}",
        "workload": "decode",
        "batch": batch,
        "context": context,
        "is_required": True,
        "blocks": blocks,
    }
    return SweptCell.model_validate(plain | changed)


def whole_scope(ratio: float = 0.9) -> tuple[SweptCell, ...]:
    return tuple(
        cell(batch, context, ratio)
        for batch in SCOPE.edge_batches
        for context in (SCOPE.max_context // 2 - 1, SCOPE.max_context // 2)
    )


def sweep(cells: Sequence[SweptCell], **changed: Any) -> SweepEvidence:
    plain = {
        "tier": Tier.GPU,
        "recorded_at": "2026-01-01T00:00:00Z",
        "hardware": "16 cores, NVIDIA H200",
        "subject": CHANGE.head,
        "plan": "p" * 64,
        "num_blocks": NUM_BLOCKS,
        "harness_sha256": JUDGE,
        "cells": tuple(cells),
    }
    return SweepEvidence.model_validate(plain | changed)


def findings(*records: Any) -> dict[str, Finding]:
    evidence = evidence_set([ENVIRONMENT, *records])
    context = CheckContext(change=CHANGE, manifest=MANIFEST, policy=POLICY, evidence=evidence)
    return {finding.subject: finding for finding in SweptScope().run(context)}


def outcomes(*records: Any) -> set[Outcome]:
    return {finding.outcome for finding in findings(*records).values()}


def one(**changed: Any) -> Finding:
    """The first cell of a whole sweep, with something about it."""
    first, *rest = whole_scope()
    return findings(sweep([first.model_copy(update=changed), *rest]))[first.name]


def test_a_sweep_of_the_whole_scope_in_which_no_cell_is_slower_passes() -> None:
    found = findings(sweep(whole_scope()))
    assert {f.outcome for f in found.values()} == {Outcome.PASS}
    assert len(found) == 1 + 2 * len(SCOPE.edge_batches)


def test_a_slower_cell_fails_whatever_the_others_gain() -> None:
    first, *rest = whole_scope(ratio=0.5)
    found = findings(sweep([cell(first.batch, first.context, ratio=1.05), *rest]))
    assert found[first.name].outcome is Outcome.FAIL
    assert found[first.name].measurements[0].estimate == pytest.approx(1.05, abs=0.002)


@pytest.mark.parametrize("left_out", range(2 * len(SCOPE.edge_batches)))
def test_no_cell_of_the_scope_may_be_left_out_or_called_optional(left_out: int) -> None:
    cells = list(whole_scope())
    without = findings(sweep(cells[:left_out] + cells[left_out + 1 :]))
    cells[left_out] = cells[left_out].model_copy(update={"is_required": False})
    for found in (without, findings(sweep(cells))):
        assert found["scope"].outcome is Outcome.NOT_RUN
        assert f"batch {cells[left_out].batch}," in found["scope"].message


def test_every_number_of_ranks_of_the_scope_is_asked_for() -> None:
    scope = SCOPE.model_copy(update={"tensor_parallel": (1, 2)})
    alone = whole_scope()
    pairs = [c.model_copy(update={"tensor_parallel": 2}) for c in alone]
    assert decide_breadth([sweep(alone), sweep(pairs)], scope).outcome is Outcome.PASS
    for found, lacking in ((alone, "2 ranks, batch"), (pairs, "1 ranks, batch")):
        ruling = decide_breadth([sweep(found)], scope)
        assert ruling.outcome is Outcome.NOT_RUN and lacking in ruling.message
    assert decide_breadth([sweep(pairs)], SCOPE).outcome is Outcome.NOT_RUN


def test_a_cell_of_another_workload_does_not_stand_for_decode() -> None:
    first, *rest = whole_scope()
    found = findings(sweep([first.model_copy(update={"workload": "mixed"}), *rest]))
    assert found["scope"].outcome is Outcome.NOT_RUN


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"subject": "e" * 40}, "not the head"),
        ({"subject": "simulated, ratio 0.5"}, "not the head"),
        ({"subject": f"the tracer's overhead, {CHANGE.head}"}, "not the head"),
        ({"harness_sha256": "f" * 64}, "another fasttrack"),
    ],
)
def test_a_sweep_of_something_else_or_by_another_judge_does_not_count(
    changed: dict[str, Any], said: str
) -> None:
    other = sweep(whole_scope(), **changed)
    (finding,) = findings(other).values()
    assert finding.outcome is Outcome.NOT_RUN and said in finding.details[0]
    assert findings(other, sweep(whole_scope()))["records"].outcome is Outcome.NOT_RUN


def test_a_sweep_of_a_cpu_says_nothing_of_a_gpu() -> None:
    assert outcomes(sweep(whole_scope(), tier=Tier.CPU)) == {Outcome.NOT_RUN}


def test_without_a_sweep_it_is_not_run_and_an_error_where_the_harness_broke() -> None:
    gap = GapEvidence(
        tier=Tier.GPU, recorded_at="2026-01-01T00:00:00Z", what="sweep", reason="it broke", broke=True
    )
    assert (outcomes(), outcomes(gap)) == ({Outcome.NOT_RUN}, {Outcome.ERROR})


def test_a_cell_that_was_swept_twice_is_as_bad_as_its_worse_time() -> None:
    slow = tuple(cell(c.batch, c.context, ratio=1.05) for c in whole_scope())
    found = findings(sweep(slow), sweep(whole_scope(), plan="q" * 64))
    assert all(found[c.name].outcome is Outcome.FAIL for c in slow)


@pytest.mark.parametrize(
    ("fault_outcome", "expected"), [(Outcome.FAIL, Outcome.FAIL), (None, Outcome.INCONCLUSIVE)]
)
def test_a_fault_of_the_cell_counts_whatever_its_times(
    fault_outcome: Outcome | None, expected: Outcome
) -> None:
    found = one(fault="The candidate lost 2 requests.", fault_outcome=fault_outcome)
    assert found.outcome is expected and "lost 2" in found.message


def test_blocks_that_are_not_in_the_record_leave_the_cell_open() -> None:
    blocks = whole_scope()[0].blocks
    for kept in (blocks[:-1], (*blocks, blocks[0]), ()):
        assert one(blocks=kept).outcome is Outcome.INCONCLUSIVE


def test_a_rule_may_drop_a_quarter_of_the_blocks_and_no_more() -> None:
    def dropped(count: int) -> Outcome:
        blocks = whole_scope()[0].blocks
        hot = [b.model_copy(update={"dropped": "throttled"}) for b in blocks[:count]]
        return one(blocks=(*hot, *blocks[count:])).outcome

    assert [dropped(count) for count in (1, 2, 6)] == [
        Outcome.PASS,
        Outcome.INCONCLUSIVE,
        Outcome.INCONCLUSIVE,
    ]


def test_without_a_quiet_second_baseline_nothing_is_decided() -> None:
    def again(times: Sequence[float]) -> Outcome:
        blocks = [
            b.model_copy(update={"times_ms": b.times_ms | {Arm.BASELINE_AGAIN: time}})
            for b, time in zip(whole_scope()[0].blocks, times, strict=True)
        ]
        return one(blocks=tuple(blocks)).outcome

    assert again([10.5, 10.6] * 3) is again([8.0, 12.0] * 3) is Outcome.INCONCLUSIVE
    without = [
        b.model_copy(update={"times_ms": {Arm.BASELINE: 10.0, Arm.CANDIDATE: 9.0}})
        for b in whole_scope()[0].blocks
    ]
    assert one(blocks=tuple(without)).outcome is Outcome.INCONCLUSIVE
