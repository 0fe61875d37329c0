"""A selftest goes on when a case breaks, and ends soon when it is told to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import MISSING, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.app.cpu_tier import CpuRun
from harness.app.judging import known_checks
from harness.app.recorder import Progress
from harness.app.selftest import case_runs, kept
from harness.app.selftest import report as selftest_report
from harness.app.selftest import run as selftest_run
from harness.app.selftest.case_runs import CaseRuns, Made
from harness.app.selftest.catalogue import CATALOGUE, Case, load_catalogue
from harness.app.selftest.clean_cases import make_clean_cases
from harness.app.selftest.judging import answer, parts_to_ask
from harness.app.selftest.kept import EVALUATIONS, SIZES, needs_evaluations, sizes_of
from harness.app.selftest.report import report_of
from harness.app.selftest.run import Selftest
from harness.app.selftest.schedule import Shared, Task
from harness.app.selftest.tampering import Tampering
from harness.app.selftest.workplace import Workplace
from harness.app.suite_plan import SIZES as PROFILES
from harness.app.suite_plan import CpuSizes
from harness.model.errors import ConfigurationError
from harness.model.selftest import STOPPED, CaseResult, CaseVerdict
from harness.model.words import Arm, ExitCode, Outcome, Tier, Verdict
from harness.options import Asked, OutputOptions, SelftestOptions
from tests.bundles.examples import changed_files, environment, plain_report, write_bundle
from tests.harness.app.selftest.test_judging import judgement

ROOT = Path(__file__).resolve().parents[4]
TWO = ["binary-vendored", "key-undocumented"]
OPTIONS = SelftestOptions(
    repo=ROOT,
    only=(),
    clean=0,
    seed=0,
    baselines=None,
    profile="quick",
    tier=Tier.STATIC,
    jobs=2,
    python=Path(sys.executable),
    out=None,
    verbose=False,
    output=OutputOptions(quiet=True),
)
PROFILES_ASKED: tuple[Asked, ...] = ("quick", "full")
NEEDED = [field.name for field in fields(CpuRun) if field.default is MISSING is field.default_factory]
INTERRUPTED = """
import subprocess, sys, time
from harness import cli
from harness.app.selftest.judging import answer, parts_to_ask
from harness.app.selftest.kept import SIZES, sizes_of
from harness.app.selftest.case_runs import CaseRuns
from harness.app.selftest.workplace import Workplace
from harness.model.selftest import CaseVerdict

def judge(self, cases, made, started):
    if not cases[0].is_twin:
        return [answer(case, CaseVerdict.DETECTED) for case in cases]
    time.sleep(1)  # What the fault gave is with the parent before this is told to end.
    child = subprocess.Popen(["sleep", "600"])
    print(f"child {child.pid}", file=sys.stderr, flush=True)
    time.sleep(600)

Workplace.copy_tree = lambda self: None
CaseRuns._judge_group = judge
sys.exit(cli.main(["selftest", "--tier", "static", "--only", "binary-vendored", "--jobs", "1"]))
"""


@pytest.mark.parametrize("error", [ValueError("not ours"), KeyError("a key"), OSError("a disk")])
def test_a_case_that_breaks_with_any_error_is_a_row_and_the_others_go_on(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judge(_run: CaseRuns, cases: list[Case], _made: Made, _started: float) -> list[CaseResult]:
        if cases[0].name == TWO[0]:
            raise error
        return [answer(case, CaseVerdict.CLEAN) for case in cases]

    monkeypatch.setattr(CaseRuns, "_judge_group", judge)
    monkeypatch.setattr(Workplace, "copy_tree", lambda _: None)
    run = Selftest(Workplace(root=ROOT, folder=tmp_path), OPTIONS, Progress(quiet=True))
    run.run_all(load_catalogue(ROOT / CATALOGUE, TWO))
    broken = {r.id: r.reason for r in run.results if r.verdict is CaseVerdict.ERROR}
    assert len(run.results) == 4 and broken == {TWO[0]: f"{type(error).__name__}: {error}"}


def sizes(name: str, *, twin: bool, profile: Asked = "quick") -> CpuSizes:
    cases = [case for case in load_catalogue(ROOT / CATALOGUE, [name]) if case.is_twin is twin]
    return sizes_of(cases, profile)


@pytest.mark.parametrize("name", ["expert-swapped", "seed-ignored", "grammar-one-step-late"])
def test_a_fault_is_asked_what_its_expected_checks_rest_on_and_little_else(name: str) -> None:
    asked, fault = sizes(name, twin=False), load_catalogue(ROOT / CATALOGUE, [name])[0].fault
    found = [asked.num_sampling_prompts, asked.num_structured_prompts, asked.num_feature_prompts]
    assert [count > 0 for count in found] == [
        "SCO001" in fault.expected,
        "SCO002" in fault.expected,
        fault.features,
    ]


@pytest.mark.parametrize("name", ["top-k-ignored", "grammar-one-step-late"])
def test_a_feature_is_asked_of_a_fault_as_often_as_of_its_twin(name: str) -> None:
    fault, twin = sizes(name, twin=False), sizes(name, twin=True)
    asked = [(s.num_features_alone, s.num_feature_prompts, s.num_greedy_prompts) for s in (fault, twin)]
    assert asked[0] == asked[1] and 0 < fault.num_features_alone < fault.num_feature_prompts


@pytest.mark.parametrize(
    ("name", "features"),
    [
        ("top-k-ignored", ("top_k",)),
        ("grammar-one-step-late", ()),
        ("expert-swapped", ()),
    ],
)
def test_a_fault_that_names_a_feature_is_asked_that_one_and_its_twin_every_one(
    name: str, features: tuple[str, ...]
) -> None:
    assert sizes(name, twin=False).features == features
    assert sizes(name, twin=True).features == ()


@pytest.mark.parametrize(
    "expected", [("COR001",), ("SCO001", "COR001"), ("SCO003",), ("COR007",), ("COR003",)]
)
def test_a_fault_that_forced_or_full_context_answers_may_show_is_asked_them(
    expected: tuple[str, ...],
) -> None:
    case = load_catalogue(ROOT / CATALOGUE, ["top-k-ignored"])[0]
    other = replace(case, fault=case.fault.model_copy(update={"expected": expected, "subject": "top_k"}))
    asked = sizes_of([other], "quick")
    assert (asked.num_forced_prompts, asked.num_full_context_prompts) == (
        SIZES.num_forced_prompts,
        SIZES.num_full_context_prompts,
    )
    assert asked.features == (), "it is no feature's check that is to fail on the subject"


def test_a_twin_is_asked_all_that_it_might_be_rejected_for() -> None:
    assert sizes("expert-swapped", twin=True) == replace(SIZES, num_feature_prompts=0)


def evaluations_of(sizes: CpuSizes) -> tuple[int, ...]:
    return (sizes.num_mrcr_rows, sizes.num_aime_rows, sizes.num_aime_samples, sizes.num_control_requests)


@pytest.mark.parametrize("twin", [False, True])
def test_under_the_full_profile_a_case_is_asked_as_many_evaluations_as_that_profile_asks(twin: bool) -> None:
    asked = {profile: sizes("expert-swapped", twin=twin, profile=profile) for profile in PROFILES_ASKED}
    assert evaluations_of(asked["full"]) == evaluations_of(PROFILES["full"])
    assert evaluations_of(asked["quick"])[:2] == (0, 0)


@pytest.fixture
def made_change(tmp_path: Path) -> Case:
    return make_clean_cases(ROOT, tmp_path, 1, 1)[0]


@pytest.mark.parametrize("profile", PROFILES_ASKED)
def test_a_made_change_is_asked_the_profile_but_for_timed_cells(profile: Asked, made_change: Case) -> None:
    assert sizes_of([made_change], profile) == replace(PROFILES[profile], timing_pairs=0)


@pytest.mark.parametrize(("profile", "is_run"), [("quick", False), ("full", True)])
def test_a_fault_that_evaluations_are_to_show_is_not_run_and_says_so_where_they_are_not_asked(
    profile: Asked, is_run: bool, tmp_path: Path
) -> None:
    cases = load_catalogue(ROOT / CATALOGUE, ["state-not-written", "expert-swapped"])
    options = replace(OPTIONS, tier=Tier.CPU, profile=profile)
    run = Selftest(Workplace(root=ROOT, folder=tmp_path), options, Progress(quiet=True))
    asks = {case.id: "--profile full" not in run._why_not(case) for case in cases}
    assert asks == {"state-not-written": is_run, "expert-swapped": True}


def test_what_rests_on_evaluations_are_checks_that_there_are() -> None:
    assert set(known_checks()) >= EVALUATIONS
    assert any(needs_evaluations(case) for case in load_catalogue(ROOT / CATALOGUE))


@pytest.mark.parametrize(
    ("profile", "is_kept", "done"),
    [
        ("quick", False, ["baselines quick"]),
        ("quick", True, []),
        ("full", False, ["scripted", "baselines full"]),
        ("full", True, ["scripted"]),
    ],
)
def test_kept_baselines_are_not_asked_again_and_scripted_runs_are_made_where_the_profile_has_them(
    profile: Asked,
    is_kept: bool,
    done: list[str],
    made_change: Case,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[str] = []
    where: list[Path] = []

    def judge(_: CaseRuns, _repo: Path, _base: str, out: Path, *rest: Any, **__: Any) -> None:
        where.append(out)
        rest[1](SimpleNamespace())

    def baselines(_: object, sizes: CpuSizes) -> None:
        found.append(f"baselines {next(p for p in PROFILES_ASKED if sizes == sizes_of([made_change], p))}")

    monkeypatch.setattr(CaseRuns, "_judge", judge)
    monkeypatch.setattr(CaseRuns, "_is_of_this_tree", lambda *_: is_kept)
    monkeypatch.setattr(kept.KeptRuns, "collect_clean", lambda *_: found.append("scripted") or {})
    monkeypatch.setattr(case_runs, "collect_baselines", baselines)
    options = replace(OPTIONS, tier=Tier.CPU, profile=profile, baselines=tmp_path / "kept")
    run = CaseRuns(Workplace(root=ROOT, folder=tmp_path), options, Progress(quiet=True))
    assert run._make(Task(cases=(made_change,), makes=Shared.CLEAN)).is_clean_kept
    assert found == done
    assert is_kept is (tmp_path / "kept" / profile not in where)


def test_a_made_change_has_its_scripted_runs_beside_those_that_are_kept(
    made_change: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[CpuSizes, object]] = []

    def judge(*arguments: Any, **_: Any) -> None:
        arguments[5](CpuRun(**dict.fromkeys(NEEDED)))

    def collect(run: Any) -> None:
        run.collect_probes(None)
        asked.append((run.sizes, run.arms))

    def answers(case: Case, *_: object, **__: object) -> CaseResult:
        return answer(case, CaseVerdict.CLEAN)

    scripted: list[object] = []
    judged = SimpleNamespace(verdict=Verdict.REJECT)
    monkeypatch.setattr(CaseRuns, "_judge", judge)
    monkeypatch.setattr(case_runs, "_bundle_of", lambda _: SimpleNamespace(records=(), judgement=None))
    monkeypatch.setattr(case_runs, "not_run_at", lambda *_: frozenset())
    monkeypatch.setattr(case_runs, "read_bundle", lambda _: SimpleNamespace(judgement=judged))
    monkeypatch.setattr(case_runs, "result_of", answers)
    monkeypatch.setattr(case_runs, "changed_paths", lambda _: frozenset({"a.py"}))
    monkeypatch.setattr(kept, "collect_cpu_tier", collect)
    monkeypatch.setattr(kept.KeptRuns, "collect_case", lambda _, *given: scripted.append(given[1:]))
    monkeypatch.setattr(Workplace, "commit_on_top", lambda *_: tmp_path)
    options = replace(OPTIONS, tier=Tier.CPU, profile="full")
    run = CaseRuns(Workplace(root=ROOT, folder=tmp_path), options, Progress(quiet=True))
    runs: dict[str, Any] = {"twin": "kept"}
    results = run._judge_group([made_change], Made(runs=runs), 0.0)
    assert [(result.id, result.change) for result in results] == [(made_change.id, Verdict.REJECT)]
    assert scripted == [(frozenset({"a.py"}), runs)]
    assert asked == [(sizes_of([made_change], "full"), (Arm.CANDIDATE,))]


@pytest.fixture
def timed_twin() -> Case:
    return next(c for c in load_catalogue(ROOT / CATALOGUE, ["slow-at-one-batch"]) if c.is_twin)


@pytest.mark.parametrize(
    ("is_brought", "outcomes", "is_run_alone", "verdict"),
    [
        (True, {"PERF001": Outcome.PASS}, False, CaseVerdict.CLEAN),
        (True, {"PERF001": Outcome.INCONCLUSIVE}, False, CaseVerdict.UNDECIDED),
        (True, {"PERF001": Outcome.ERROR}, True, CaseVerdict.CLEAN),
        (True, {"PERF001": Outcome.PASS, "ISO001": Outcome.FAIL}, True, CaseVerdict.CLEAN),
        (False, {"PERF001": Outcome.FAIL}, True, CaseVerdict.CLEAN),
    ],
)
def test_a_timed_twin_is_judged_with_the_honest_change_and_alone_where_something_is_said_against_both(
    is_brought: bool,
    outcomes: dict[str, Outcome],
    is_run_alone: bool,
    verdict: CaseVerdict,
    timed_twin: Case,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone: list[str] = []
    monkeypatch.setattr(Tampering, "judgement", lambda _: judgement(**outcomes))
    monkeypatch.setattr(Workplace, "commit_on_top", lambda _, name, *__: alone.append(name) or tmp_path)
    monkeypatch.setattr(case_runs, "changed_paths", lambda _: frozenset())
    monkeypatch.setattr(CaseRuns, "_judge", lambda *_, **__: None)
    monkeypatch.setattr(
        case_runs, "read_bundle", lambda _: SimpleNamespace(judgement=judgement(PERF001=Outcome.PASS))
    )
    run = CaseRuns(Workplace(root=ROOT, folder=tmp_path), OPTIONS, Progress(quiet=True))
    made = Made(measured=frozenset({timed_twin.name} if is_brought else ()))
    found = run._judge_group([timed_twin], made, 0.0)
    assert [result.verdict for result in found] == [verdict]
    assert alone == [timed_twin.name] * is_run_alone


def test_the_honest_change_holds_the_timed_twins_whose_patches_fit(
    timed_twin: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_the_way = tmp_path / "twin.patch"
    in_the_way.write_text("diff --git a/none b/none\n--- a/none\n+++ b/none\n@@ -1 +1 @@\n-a\n+b\n")
    bad = replace(timed_twin, id="bad", edit=in_the_way)
    prepared: list[list[str]] = []

    def prepare(tampering: Tampering, beside: list[Path]) -> frozenset[str]:
        prepared.append([str(path) for path in beside])
        tampering._workplace.commit_on_top("honest", [tampering.patch, *beside])
        return frozenset({"PERF001"})

    monkeypatch.setattr(Tampering, "prepare", prepare)
    run = CaseRuns(Workplace(root=ROOT, folder=tmp_path), OPTIONS, Progress(quiet=True))
    run._workplace.copy_tree()
    made = run._make(Task(cases=(bad, timed_twin), makes=Shared.MEASURED))
    assert isinstance(made, Made) and prepared == [[str(timed_twin.edit)]]
    assert (made.measured, made.open_before) == ({timed_twin.name}, {Shared.MEASURED: {"PERF001"}})


def names_asked_again(*verdicts: CaseVerdict) -> list[list[str]]:
    cases = [case for case in load_catalogue(ROOT / CATALOGUE) if case.is_twin][: len(verdicts)]
    results = [answer(case, verdict) for case, verdict in zip(cases, verdicts, strict=True)]
    return [[str(cases.index(case)) for case in part] for part in parts_to_ask(cases, results)]


def test_of_twins_that_nothing_was_said_against_only_the_undecided_are_asked_again_alone() -> None:
    clean, undecided = CaseVerdict.CLEAN, CaseVerdict.UNDECIDED
    assert names_asked_again(clean, undecided, clean, undecided) == [["1"], ["3"]]


@pytest.mark.parametrize("verdict", [CaseVerdict.FALSE_ALARM, CaseVerdict.ERROR])
def test_where_something_was_said_against_twins_together_each_half_is_asked_again(
    verdict: CaseVerdict,
) -> None:
    assert names_asked_again(verdict, verdict, verdict) == [["0"], ["1", "2"]]


@pytest.mark.parametrize("verdict", [CaseVerdict.FALSE_ALARM, CaseVerdict.ERROR, CaseVerdict.UNDECIDED])
def test_a_case_alone_is_not_asked_again(verdict: CaseVerdict) -> None:
    assert names_asked_again(verdict) == []


def test_a_case_that_ends_its_process_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CaseRuns, "_judge_group", lambda *_: os._exit(9))
    monkeypatch.setattr(Workplace, "copy_tree", lambda _: None)
    run = Selftest(Workplace(root=ROOT, folder=tmp_path), OPTIONS, Progress(quiet=True))
    run.run_all(load_catalogue(ROOT / CATALOGUE, TWO))
    assert [r.verdict for r in run.results] == [CaseVerdict.ERROR] * 4


def is_taken(options: SelftestOptions, folder: Path) -> bool:
    run = CaseRuns(Workplace(root=ROOT, folder=folder), options, Progress(quiet=True))
    return run._is_of_this_tree(run._clean_bundle)


@pytest.mark.parametrize(
    ("head", "memory_gib", "taken"), [(None, 16.0, True), ("d" * 40, 16.0, False), (None, 8.0, False)]
)
def test_baselines_of_an_earlier_call_are_taken_up_by_the_same_profile_on_the_same_files_and_environment_alone(
    head: str | None, memory_gib: float, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = write_bundle(tmp_path / "kept" / "quick", (environment(), changed_files()), plain_report)
    here = environment().model_copy(update={"memory_gib": environment().memory_gib * memory_gib / 16})
    monkeypatch.setattr(case_runs, "collect_environment", lambda _: here)
    monkeypatch.setattr(case_runs, "head_of", lambda _: head or bundle.change.head)
    found = [
        is_taken(replace(OPTIONS, baselines=tmp_path / "kept", profile=p), tmp_path) for p in PROFILES_ASKED
    ]
    assert found == [taken, False]


@pytest.mark.parametrize(
    "options", [replace(OPTIONS, clean=1, only=("a",)), replace(OPTIONS, baselines=Path("a"))]
)
def test_made_changes_and_the_catalogue_are_not_mixed(options: SelftestOptions) -> None:
    with pytest.raises(ConfigurationError, match="two runs"):
        selftest_run.selftest(options)


@pytest.fixture(scope="module")
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture(scope="module")
def stopped(temporary: Path) -> tuple[int, str, int]:
    """Exit code and output of a selftest that was told to end during a case, and the process that the case started."""
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        child = next(int(line.split()[1]) for line in process.stderr if line.startswith("child "))
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, output, child


def test_told_to_end_it_does_not_wait_for_the_case_that_runs(stopped: tuple[int, str, int]) -> None:
    assert stopped[0] == ExitCode.INTERRUPTED


def test_told_to_end_it_shows_the_cases_that_are_done(stopped: tuple[int, str, int]) -> None:
    assert "Detected: 1 of 1" in stopped[1]


@pytest.mark.usefixtures("stopped")
def test_told_to_end_it_leaves_no_folder(temporary: Path) -> None:
    assert not list(temporary.iterdir())


def test_told_to_end_it_leaves_no_process(stopped: tuple[int, str, int]) -> None:
    with pytest.raises(ProcessLookupError):
        os.kill(stopped[2], 0)


def test_a_stopped_run_has_a_row_for_every_case_without_a_verdict(tmp_path: Path) -> None:
    cases = load_catalogue(ROOT / CATALOGUE, TWO)
    run = Selftest(Workplace(root=ROOT, folder=tmp_path), OPTIONS, Progress(quiet=True))
    run.results.append(answer(cases[0], CaseVerdict.DETECTED))
    rows = run.stopped(cases)
    assert [(r.id, r.is_twin) for r in rows] == [(c.id, c.is_twin) for c in cases[1:]]
    assert {(r.verdict, r.reason) for r in rows} == {(CaseVerdict.NOT_RUN, STOPPED)}


@pytest.mark.parametrize(
    ("began", "ends", "told"), [("a", "a", "a"), ("a", "b", "a+"), ("a", "a+", "a+"), ("a+", "a+", "a+")]
)
def test_a_report_names_the_commit_that_its_cases_were_made_on(
    began: str, ends: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selftest_report, "head_of", lambda _: ends)
    found = report_of(ROOT, [], replace(OPTIONS, tier=Tier.CPU), commit=began)
    assert (found.commit, found.tier, found.profile) == (told, Tier.CPU, "quick")


def test_told_to_end_while_it_tidies_up_it_shows_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted:
        """A folder whose removal is interrupted."""

        def __enter__(self) -> str:
            return str(tmp_path)

        def __exit__(self, *_: object) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(selftest_run.tempfile, "TemporaryDirectory", lambda **_: Interrupted())
    monkeypatch.setattr(Selftest, "run_all", lambda *_: None)
    result = selftest_run.selftest(replace(OPTIONS, out=tmp_path / "report.json"))
    assert "Detected: none was run" in result.text and (tmp_path / "report.json").is_file()
    monkeypatch.setattr(selftest_run, "report_of", interrupts)
    with pytest.raises(KeyboardInterrupt):
        selftest_run.selftest(OPTIONS)


def interrupts(*_: object, **__: object) -> None:
    raise KeyboardInterrupt
