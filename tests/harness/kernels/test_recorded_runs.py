"""The runs that the kernels' pages quote are records that the commands still read, and say what is quoted."""

import ast
import hashlib
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

from harness.facts.python_source.must_import import conftests, must_import
from harness.facts.python_source.tree import SourceTree
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
BENCHES = [path for path in RUNS if path.name in CURRENT]


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


def test_the_page_of_the_experts_counts_tests_and_variants_as_their_records_do():
    page = " ".join((EVIDENCE.parent / "moe.md").read_text(encoding="utf-8").split())
    quoted = re.findall(
        r"(\d+) of [a-zA-Z ,]+ with (\d+)(?: variants)? \(\[record\]\(evidence/([^)]+)\)\)", page
    )
    runs = [
        KernelTestRun(**json.loads((EVIDENCE / name).read_text(encoding="utf-8"))) for _, _, name in quoted
    ]
    launched = [{name for test in run.tests for name in test.launched} for run in runs]
    counts = [
        (
            sum(test.outcome == "passed" for test in run.tests),
            sum(fnmatchcase(name, run.match) for name in names),
        )
        for run, names in zip(runs, launched, strict=True)
    ]
    assert len(quoted) == 2
    assert [(int(tests), int(variants)) for tests, variants, _ in quoted] == counts


def changed_since(sources: dict[str, str], needed: Iterable[str] = ()) -> set[str]:
    """Files of the record, or that its run cannot have done without, which it does not have as they are here."""
    listed = CURRENT.split("**Changed since**")[1].split("\n\n**")[0]
    changed = {name for name in {*sources, *needed} if digest_of(ROOT / name) != sources.get(name)}
    return {name for name in changed if f"`{name}`" not in listed}


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_a_source_that_a_record_of_tests_does_not_have_as_it_is_here_is_listed_as_changed(path: Path):
    run = KernelTestRun(**json.loads(path.read_text(encoding="utf-8")))
    files = {test.test.partition("::")[0] for test in run.tests}
    names = {name for test in run.tests for name in test.launched}
    unlisted = changed_since(run.sources, imported(frozenset(files)) | built_from(frozenset(names)))
    assert not unlisted


@pytest.mark.parametrize("path", BENCHES, ids=lambda path: path.stem)
def test_a_source_that_a_bench_does_not_have_as_it_is_here_is_listed_as_changed(path: Path):
    run = BenchRun(**json.loads(path.read_text(encoding="utf-8")))
    families = {cell.family for cell in run.cells}
    names = {variant.name for variant in inventory.variants() if variant.family in families}
    assert not changed_since(run.sources, built_from(frozenset(names)))


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_a_kernel_file_that_is_left_out_of_a_record_is_seen(path: Path):
    run = KernelTestRun(**json.loads(path.read_text(encoding="utf-8")))
    needed = built_from(frozenset(name for test in run.tests for name in test.launched))
    kernels = {name for name in needed if "@cute.kernel" in (ROOT / name).read_text(encoding="utf-8")}
    assert kernels and all(
        name in changed_since({n: digest for n, digest in run.sources.items() if n != name}, needed)
        for name in kernels
        if f"`{name}`" not in CURRENT
    )


@cache
def tree() -> SourceTree:
    files = [path for top in ("specialized_path", "tests") for path in (ROOT / top).rglob("*.py")]
    return SourceTree({path.relative_to(ROOT).as_posix(): path.read_bytes() for path in files})


@cache
def imported(tests: frozenset[str]) -> frozenset[str]:
    """What a process imported that ran tests of these files."""
    return must_import(tree(), {*tests, *(path for test in tests for path in conftests(tree(), test))})


@cache
def built_from(names: frozenset[str]) -> frozenset[str]:
    """What a process imported that built these kernels: what the function imports that builds each, and so on."""
    builders = {
        getattr(variant.build, "func", variant.build)
        for variant in inventory.variants()
        if variant.name in names
    }
    modules = {module for builder in builders for module in (builder.__module__, *modules_within(builder))}
    return must_import(tree(), filter(None, map(tree().path_of, modules)))


def modules_within(function: object) -> set[str]:
    body = ast.parse(inspect.getsource(function)).body[0].body
    return {statement.module for statement in body if isinstance(statement, ast.ImportFrom)}


@cache
def collected() -> frozenset[str]:
    """The GPU tests that there are here."""
    options = ["--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-c", "/dev/null"]
    where = ["--rootdir=.", "--import-mode=importlib", "-m", "gpu", "tests/specialized_path/kernels"]
    command = [sys.executable, "-m", "pytest", *options, *where]
    found = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=300)
    return frozenset(line for line in found.stdout.splitlines() if "::" in line)


def never_run() -> list[str]:
    """Patterns of the tests that the list says have never run on a GPU."""
    text = CURRENT.partition("**Never run on a GPU**")[2].split("\n\n**")[0]
    return [f"*/{pattern}*" for pattern in re.findall(r"`([^`]*::[^`]*)`", text)]


def gaps(recorded: Iterable[str], here: frozenset[str], new: list[str]) -> set[str]:
    """Tests that are recorded and not here or not once, those that are here and neither recorded nor new, and new ones
    that are recorded."""
    names = [*recorded]
    is_new = {name for name in here if any(fnmatchcase(name, pattern) for pattern in new)}
    twice = {name for name in names if names.count(name) > 1} if len(names) != len({*names}) else set()
    return twice | ({*names} ^ (here - is_new))


def test_records_have_the_tests_that_there_are_here_but_those_listed_as_never_run():
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in TESTS if "-tests-" in path.name]
    recorded = [test["test"] for run in runs for test in run["tests"]]
    assert not gaps(recorded, collected(), never_run())


def test_what_is_listed_as_never_run_is_here():
    assert [p for p in never_run() if not any(fnmatchcase(name, p) for name in collected())] == []


@pytest.mark.parametrize("path", [path for path in TESTS if "-memcheck-" in path.name], ids=lambda p: p.stem)
def test_a_record_of_memcheck_has_tests_that_are_here_each_once(path: Path):
    names = [test["test"] for test in json.loads(path.read_text(encoding="utf-8"))["tests"]]
    assert len({*names}) == len(names) and {*names} <= collected()


@pytest.mark.parametrize(
    ("recorded", "gap"),
    [
        (["t/a", "t/b"], set()),
        (["t/a", "t/renamed"], {"t/b", "t/renamed"}),
        (["t/a", "t/a"], {"t/a", "t/b"}),
        (["t/a", "t/b", "t/b"], {"t/b"}),
        (["t/a", "t/b", "t/new"], {"t/new"}),
    ],
)
def test_a_test_that_is_renamed_or_put_in_the_place_of_another_leaves_a_gap(
    recorded: list[str], gap: set[str]
):
    assert gaps(recorded, frozenset({"t/a", "t/b", "t/new"}), ["*/new*"]) == gap


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
