"""Laws of a sweep's folder as evidence: the times of its blocks, what rules said of them, and none that was changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.app.recorder import Progress, Recorder
from harness.app.sweep_evidence import record_sweeps
from harness.cli import main
from harness.model.errors import ConfigurationError
from harness.model.evidence import SweepEvidence
from harness.model.words import Arm, ExitCode, Outcome, Tier
from perf_sweeps.block import Failure, MachineState, SweepPlan
from perf_sweeps.journal import RECORDS, Journal
from tests.harness.app.kept_records import Kept
from tests.perf_sweeps.sweeps import CODE, decode_cells, in_arm, simulate, with_visits

PLAN = SweepPlan(subject="b" * 40, tier=Tier.GPU, cells=decode_cells(1, 2), num_blocks=3)
BLOCKS = simulate(PLAN)


def folder_of(out: Path, *records: object, plan: SweepPlan = PLAN) -> Path:
    journal = Journal(out, plan, resume=False)
    for record in records:
        journal.add(record)  # type: ignore[arg-type]
    journal.close()
    return out


def taken(out: Path) -> SweepEvidence:
    recorder = Recorder(sink=Kept(), progress=Progress(quiet=True))
    record_sweeps([out], recorder, CODE)
    (record,) = recorder.evidence.of(SweepEvidence)
    return record


def test_each_block_has_a_time_an_arm_and_the_record_says_what_it_is_of(tmp_path: Path) -> None:
    record = taken(folder_of(tmp_path / "s", *BLOCKS))
    assert (record.tier, record.subject, record.plan) == (Tier.GPU, "b" * 40, PLAN.digest)
    assert (record.num_blocks, record.hardware, record.harness_sha256) == (3, "simulated", CODE)
    first, second = record.cells
    assert (first.batch, first.context, first.is_required, first.fault) == (1, 24, True, "")
    assert [block.index for block in second.blocks] == [0, 1, 2]
    assert set(first.blocks[0].times_ms) == set(Arm) and not first.blocks[0].dropped


def test_how_the_gpus_of_several_ranks_are_joined_is_part_of_the_evidence(tmp_path: Path) -> None:
    joined = [block.model_copy(update={"gpu_topology": "GPU0 X NV18"}) for block in BLOCKS]
    assert taken(folder_of(tmp_path / "s", *joined)).gpu_topologies == ("GPU0 X NV18",)
    assert taken(folder_of(tmp_path / "t", *BLOCKS)).gpu_topologies == ()


def test_what_the_rules_said_of_a_block_and_of_a_cell_is_kept(tmp_path: Path) -> None:
    loud = with_visits(BLOCKS[0], lambda _: {"machine": MachineState(foreign_cpu_share=0.5)})
    lost = with_visits(BLOCKS[3], in_arm(Arm.CANDIDATE, num_answered=0, num_failed=2, output_lens=()))
    first, second = taken(folder_of(tmp_path / "s", loud, *BLOCKS[1:3], lost, *BLOCKS[4:])).cells
    assert "others took 50%" in first.blocks[0].dropped and not first.blocks[1].dropped
    assert second.fault_outcome is Outcome.FAIL and "The candidate lost" in second.fault


def test_blocks_of_another_judge_are_not_there_and_a_cell_without_any_was_not_run(tmp_path: Path) -> None:
    other = [block.model_copy(update={"code_digest": "e" * 64}) for block in BLOCKS[3:]]
    _, second = taken(folder_of(tmp_path / "s", *BLOCKS[:3], *other)).cells
    assert second.fault_outcome is Outcome.NOT_RUN and not second.blocks


def test_a_server_that_died_is_kept_though_the_blocks_are_there(tmp_path: Path) -> None:
    died = Failure(
        sweep=PLAN.digest,
        cell=PLAN.cells[0].name,
        index=0,
        cause="engine",
        arm=Arm.CANDIDATE,
        message="it died",
        recorded_at="now",
    )
    first, _ = taken(folder_of(tmp_path / "s", died, *BLOCKS)).cells
    assert first.fault_outcome is Outcome.FAIL and "it died" in first.fault


def test_a_folder_that_was_changed_or_holds_no_sweep_of_a_gpu_is_refused(tmp_path: Path) -> None:
    out = folder_of(tmp_path / "s", *BLOCKS)
    text = (out / RECORDS).read_text()
    (out / RECORDS).write_text(text.replace('"attempt":1', '"attempt":2', 1))
    cpu = folder_of(tmp_path / "cpu", plan=PLAN.model_copy(update={"tier": Tier.CPU}))
    for folder, said in ((out, "changed"), (cpu, "cpu tier"), (tmp_path, "plan.json")):
        with pytest.raises(ConfigurationError, match=said):
            taken(folder)


def test_a_sweep_is_evidence_of_the_gpu_tier_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repo = Path(__file__).parents[3]
    asked = [
        "validate",
        "--repo",
        str(repo),
        "--base",
        "empty",
        "--tier",
        "static",
        "--out",
        str(tmp_path / "o"),
    ]
    assert main([*asked, "--sweep", str(tmp_path)]) == ExitCode.USAGE
    assert "evidence of the gpu tier" in capsys.readouterr().err
