"""Outcomes of ISO009."""

from __future__ import annotations

import pytest

from harness.checks.isolation.iso009_captured_pointers import CapturedPointers
from harness.model.evidence import AnyEvidence, CapturedPointersEvidence
from harness.model.finding import Finding
from harness.model.probe import CapturedGraph, OwnershipLoss
from harness.model.words import Arm, Outcome, Tier
from tests.harness.checks.evidence_builder import context_of

GRAPH = CapturedGraph(
    name="decode 8",
    num_kernels=4,
    num_addresses=20,
    num_replays=5,
    num_replays_after_largest=3,
    num_replays_after_eager=1,
)
LOSS = OwnershipLoss(graph="decode 8", kernel="merge", address=0x7F00, block_bytes=512, replay=2, reused=True)


def record(graph: CapturedGraph = GRAPH, *losses: OwnershipLoss) -> CapturedPointersEvidence:
    return CapturedPointersEvidence(
        tier=Tier.GPU, recorded_at="now", arm=Arm.CANDIDATE, graphs=(graph,), losses=losses
    )


def finding_of(*records: AnyEvidence) -> Finding:
    (finding,) = CapturedPointers().run(context_of(records))
    return finding


def test_addresses_that_keep_their_memory_pass() -> None:
    assert finding_of(record()).outcome is Outcome.PASS


def test_one_lost_address_fails_with_its_kernel() -> None:
    finding = finding_of(record(GRAPH, LOSS))
    assert finding.outcome is Outcome.FAIL
    assert "merge has 0x7f00" in finding.details[0]


@pytest.mark.parametrize("key", ["num_addresses", "num_replays_after_largest", "num_replays_after_eager"])
def test_a_run_that_could_not_have_shown_a_loss_decides_nothing(key: str) -> None:
    assert finding_of(record(GRAPH.model_copy(update={key: 0}))).outcome is Outcome.INCONCLUSIVE


def test_a_run_without_graphs_decides_nothing() -> None:
    assert finding_of(record().model_copy(update={"graphs": ()})).outcome is Outcome.INCONCLUSIVE


def test_without_a_gpu_run_it_is_not_run() -> None:
    assert finding_of().outcome is Outcome.NOT_RUN


def test_the_baselines_graphs_say_nothing_of_the_candidate() -> None:
    assert finding_of(record().model_copy(update={"arm": Arm.BASELINE})).outcome is Outcome.NOT_RUN
