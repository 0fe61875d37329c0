"""The runs that the kernels' pages quote are records that the commands still read."""

import json
from pathlib import Path

import pytest

from harness.kernels import commands
from harness.kernels.records import (
    BenchRun,
    TuneRun,
)
from harness.model.kernel_tests import (
    KernelTestRun,
)
from harness.model.words import ExitCode

EVIDENCE = Path(__file__).parents[3] / "docs/kernels/evidence"
TUNES = sorted(EVIDENCE.glob("*-tune.json"))
TESTS = sorted([*EVIDENCE.glob("*-tests-*.json"), *EVIDENCE.glob("*-memcheck-*.json")])
RUNS = sorted(set(EVIDENCE.glob("*.json")) - {*TUNES, *TESTS})


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_a_recorded_run_timed_every_cell_of_its_kernels(path: Path):
    run = BenchRun(**json.loads(path.read_text(encoding="utf-8")))
    assert run.cells and all(cell.candidate is not None for cell in run.cells)


@pytest.mark.parametrize("path", TUNES, ids=lambda path: path.stem)
def test_a_recorded_tuning_chose_the_quickest(path: Path):
    for choice in TuneRun(**json.loads(path.read_text(encoding="utf-8"))).choices:
        assert choice.chosen == min(choice.timings, key=lambda name: choice.timings[name].median_us)


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_a_recorded_run_of_tests_says_on_what_gpu_and_of_which_sources_it_was(path: Path):
    run = KernelTestRun(**json.loads(path.read_text(encoding="utf-8")))
    assert run.machine is not None and run.sources


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_a_recorded_run_of_tests_that_is_not_in_order_is_listed_as_incomplete(path: Path):
    run = KernelTestRun(**json.loads(path.read_text(encoding="utf-8")))
    readme = (EVIDENCE / "README.md").read_text(encoding="utf-8")
    listed = f"{path.name}` | **incomplete**" in readme
    assert listed == (commands.tests_code(run) != ExitCode.ADMIT)
