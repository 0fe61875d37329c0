"""Laws of what scripted runs leave in the evidence: a cache that is not understood leaves a gap with its reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.app.probe_plans import plan_probes
from harness.app.probes import FinishedRun, ProbeRun, new_process, record_runs
from harness.app.recorder import Progress, Recorder
from harness.config import load_manifest
from harness.model.change import Change
from harness.model.evidence import GapEvidence, HandoverEvidence, ProbeEvidence
from tests.harness.app.kept_records import Kept
from tests.harness.engine.probe.made_recording import MadeStep, write_recording

MANIFEST = load_manifest((Path(__file__).resolve().parents[3] / "fasttrack.toml").read_bytes())
CHANGE = Change(base="b" * 40, merge_base="b" * 40, head="c" * 40, head_subject="x")


def recorded(folder: Path, dtype: str) -> Kept:
    """What a candidate and its twin leave whose caches are of a format."""
    kept = Kept()
    run = ProbeRun(
        manifest=MANIFEST.model_copy(update={"coverage": MANIFEST.coverage.model_copy(update={"cpu": ()})}),
        recorder=Recorder(sink=kept, progress=Progress(quiet=True)),
        head_path=folder,
        base_path=folder,
        change=CHANGE,
        model_dir=folder,
        workdir=folder / "runs",
    )
    plans = plan_probes(MANIFEST, model_dir=folder, bystander_dir=folder, base_has_model=True)
    done = {}
    for name in ("candidate", "twin"):
        recording = write_recording(folder / name, [MadeStep(computed=1), MadeStep(computed=2)])
        layouts = {
            engine: {**layout, "views": [{**view, "dtype": dtype} for view in layout["views"]]}
            for engine, layout in recording.layouts.items()
        }
        process = new_process(run, name, plans[name])
        done[name] = FinishedRun(process=process, recording=replace(recording, layouts=layouts))
    record_runs(run, done)
    return kept


def test_a_cache_that_is_understood_leaves_both_records(tmp_path: Path) -> None:
    kinds = [type(r) for r in recorded(tmp_path, "float32").records]
    assert (ProbeEvidence in kinds, HandoverEvidence in kinds, GapEvidence in kinds) == (True, True, False)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "uint8"])
def test_a_cache_of_single_bytes_leaves_its_writes_and_a_gap_for_its_numbers(
    tmp_path: Path, dtype: str
) -> None:
    records = recorded(tmp_path, dtype).records
    gaps = [r for r in records if isinstance(r, GapEvidence)]
    assert any(isinstance(r, ProbeEvidence) for r in records)
    assert [(g.what, g.broke, dtype in g.reason) for g in gaps] == [("probe of twin", False, True)]


def test_a_cache_of_an_unknown_format_leaves_a_gap_for_each_record(tmp_path: Path) -> None:
    gaps = [r for r in recorded(tmp_path, "complex64").records if isinstance(r, GapEvidence)]
    assert [(g.what, "complex64" in g.reason) for g in gaps] == [
        ("probe of candidate", True),
        ("probe of twin", True),
    ]
