"""Outcomes of ISO009."""

from __future__ import annotations

import pytest

from harness.checks.isolation.iso009_captured_pointers import CapturedPointers
from harness.model.evidence import AnyEvidence, CapturedPointersEvidence
from harness.model.finding import Finding
from harness.model.probe import CapturedGraph, OwnershipLoss
from harness.model.words import Arm, Outcome, Tier
from tests.harness.checks.probe_builder import probed_context, process

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
        tier=Tier.GPU,
        recorded_at="now",
        arm=Arm.CANDIDATE,
        process=process(Arm.CANDIDATE),
        graphs=(graph,),
        losses=losses,
        planted_loss_seen=True,
    )


def finding_of(*records: AnyEvidence) -> Finding:
    (finding,) = CapturedPointers().run(probed_context(*records))
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


def test_a_graph_that_was_not_tried_is_not_made_good_by_another() -> None:
    second = GRAPH.model_copy(update={"name": "decode 4", "num_replays_after_eager": 0})
    finding = finding_of(record().model_copy(update={"graphs": (GRAPH, second)}))
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert finding.details == ("decode 4: not replayed after an eager step",)


def test_a_watch_that_missed_the_planted_loss_decides_nothing() -> None:
    finding = finding_of(record().model_copy(update={"planted_loss_seen": False}))
    assert finding.outcome is Outcome.INCONCLUSIVE


def test_more_replays_of_a_kind_than_replays_do_not_parse() -> None:
    with pytest.raises(ValueError, match="more replays of a kind"):
        CapturedGraph.model_validate(GRAPH.model_dump() | {"num_replays": 2})


def test_graphs_of_a_process_that_ran_other_code_do_not_count() -> None:
    other = process(Arm.CANDIDATE)
    files = tuple(f.model_copy(update={"sha256": "0" * 64}) for f in other.imported)
    changed = record().model_copy(update={"process": other.model_copy(update={"imported": files})})
    assert finding_of(changed).outcome is Outcome.ERROR


def test_a_run_without_graphs_decides_nothing() -> None:
    assert finding_of(record().model_copy(update={"graphs": ()})).outcome is Outcome.INCONCLUSIVE


def test_without_a_gpu_run_it_is_not_run() -> None:
    assert finding_of().outcome is Outcome.NOT_RUN


def test_the_baselines_graphs_say_nothing_of_the_candidate() -> None:
    assert finding_of(record().model_copy(update={"arm": Arm.BASELINE})).outcome is Outcome.NOT_RUN
