"""The runs that the kernels' pages quote are records that the commands still read."""

import json
from pathlib import Path

import pytest

from harness.kernels.records import BenchRun, TuneRun

EVIDENCE = Path(__file__).parents[3] / "docs/kernels/evidence"
TUNES = sorted(EVIDENCE.glob("*-tune.json"))
RUNS = sorted(set(EVIDENCE.glob("*.json")) - set(TUNES))


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_a_recorded_run_timed_every_cell_of_its_kernels(path: Path):
    run = BenchRun(**json.loads(path.read_text(encoding="utf-8")))
    assert run.cells and all(cell.candidate is not None for cell in run.cells)


@pytest.mark.parametrize("path", TUNES, ids=lambda path: path.stem)
def test_a_recorded_tuning_chose_the_quickest(path: Path):
    for choice in TuneRun(**json.loads(path.read_text(encoding="utf-8"))).choices:
        assert choice.chosen == min(choice.timings, key=lambda name: choice.timings[name].median_us)
