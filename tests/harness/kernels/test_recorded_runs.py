"""The runs that the kernels' pages quote are records that the commands still read, and say what is quoted."""

import hashlib
import json
import re
from fnmatch import fnmatchcase
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
from specialized_path.kernels import inventory

ROOT = Path(__file__).parents[3]
EVIDENCE = ROOT / "docs/kernels/evidence"
README = (EVIDENCE / "README.md").read_text(encoding="utf-8")
CURRENT, EARLIER = README.split("\n## Earlier\n")
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
    assert ("**incomplete**" in row(path)) == (commands.tests_code(run) != ExitCode.ADMIT)


def row(path: Path) -> str:
    """The record's line in the list of runs that are not from before."""
    return next(line for line in CURRENT.splitlines() if line.startswith(f"| `{path.name}`"))


def numbers(text: str, pattern: str) -> list[int]:
    found = re.search(pattern, text)
    assert found is not None, text
    return [int(group.replace(",", "")) for group in found.groups()]


BENCHES = [path for path in RUNS if path.name in CURRENT]


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_the_list_says_how_many_tests_a_record_has_and_how_many_of_them_passed(path: Path):
    run = KernelTestRun(**json.loads(path.read_text(encoding="utf-8")))
    passed = sum(test.outcome == "passed" for test in run.tests)
    assert numbers(row(path), r"([\d,]+) of ([\d,]+)") == [passed, len(run.tests)]


@pytest.mark.parametrize(
    "path", [path for path in TESTS if "-tests-" in path.name], ids=lambda path: path.stem
)
def test_a_record_of_tests_launches_the_variants_that_the_inventory_has_and_it_matches(path: Path):
    run = KernelTestRun(**json.loads(path.read_text(encoding="utf-8")))
    launched = {name for test in run.tests for name in test.launched if fnmatchcase(name, run.match)}
    variants = {variant.name for variant in inventory.variants()}
    assert launched == {name for name in variants if fnmatchcase(name, run.match)}


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_a_source_that_is_no_longer_what_a_record_was_made_of_is_listed_as_changed(path: Path):
    run = KernelTestRun(**json.loads(path.read_text(encoding="utf-8")))
    listed = CURRENT.split("**Changed since**")[1].split("\n\n**")[0]
    changed = {name for name, digest in run.sources.items() if digest_of(ROOT / name) != digest}
    assert not {name for name in changed if f"`{name}`" not in listed}


def digest_of(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


@pytest.mark.parametrize("path", BENCHES, ids=lambda path: path.stem)
def test_a_bench_has_the_cells_and_the_bytes_of_the_families_that_it_timed(path: Path):
    run = BenchRun(**json.loads(path.read_text(encoding="utf-8")))
    families = {cell.family for cell in run.cells}
    expected = {(cell.name, cell.bytes_moved) for cell in inventory.benchmarks() if cell.family in families}
    assert {(cell.name, cell.bytes_moved) for cell in run.cells} == expected


@pytest.mark.parametrize("path", BENCHES, ids=lambda path: path.stem)
def test_the_list_says_how_many_cells_a_bench_has_and_lost_and_whether_it_ended(path: Path):
    run = BenchRun(**json.loads(path.read_text(encoding="utf-8")))
    timed = sum(cell.candidate is not None for cell in run.cells)
    lost = [cell.lost_to for cell in run.cells if cell.lost_to]
    to_vllm = sum(any(name.startswith("vllm") for name in names) for names in lost)
    said = numbers(row(path), r"(\d+) of (\d+) cells timed, (\d+) lost to vLLM, (\d+) more")
    assert said == [timed, len(run.cells), to_vllm, len(lost) - to_vllm]
    assert ("**incomplete**" in row(path)) == (commands.bench_code(run) != ExitCode.ADMIT)


@pytest.mark.parametrize("path", BENCHES, ids=lambda path: path.stem)
def test_no_kernel_of_a_bench_moves_its_bytes_quicker_than_the_memory_can(path: Path):
    """4.8 TB/s by NVIDIA's data sheet of the H200: what is quicker read its inputs from a cache."""
    run = BenchRun(**json.loads(path.read_text(encoding="utf-8")))
    assert max(cell.bytes_per_second or 0 for cell in run.cells) <= 4.8e12


@pytest.mark.parametrize("path", BENCHES, ids=lambda path: path.stem)
def test_every_timing_of_a_bench_lies_between_its_quartiles(path: Path):
    run = BenchRun(**json.loads(path.read_text(encoding="utf-8")))
    timings = [t for cell in run.cells for t in (cell.candidate, *cell.baselines.values()) if t is not None]
    assert all(0 < t.low_us <= t.median_us <= t.high_us for t in timings)


def test_every_time_in_the_table_of_bars_is_a_median_of_the_bench():
    runs = [BenchRun(**json.loads(path.read_text(encoding="utf-8"))) for path in BENCHES]
    medians = {f"{cell.candidate.median_us:.2f}" for run in runs for cell in run.cells if cell.candidate}
    bars = CURRENT.split("**The bars**")[1].split("Each bar is met")[0]
    quoted = [
        time for line in bars.splitlines() if line.startswith("|") for time in re.findall(r"\d+\.\d\d", line)
    ]
    assert quoted and set(quoted) <= medians
