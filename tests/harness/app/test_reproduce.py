"""A cell made again is the same, differs or could not be made: what decides is what two equal arms show."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bundles.archive import pack
from bundles.cells import name_cells
from bundles.error import BundleError
from bundles.reader import read_bundle
from bundles.writer import EvidenceStore, seal
from harness.app.cpu_tier import CpuRun
from harness.app.judging import decide, render_report
from harness.app.recorder import Recorder
from harness.app.reproduce import reproduce
from harness.app.same_again import Sameness, compare_findings
from harness.app.validate import Question, read_question
from harness.facts.environment import collect_environment
from harness.model.evaluation import TokenLogprobs
from harness.model.evidence import AnyEvidence, OwnersEvidence, SuiteEvidence
from harness.model.finding import Finding, Measurement
from harness.model.words import Arm, ExitCode, Outcome, Principle, Tier
from harness.options import CommandResult, OutputOptions, ReproduceOptions, ValidateOptions
from tests.bundles.examples import suite
from tests.harness.app.conftest import copy_subject, validate_options

CELL = "suite/greedy/candidate"


def answers(arm: Arm, num_other: int = 0, drift: float = 0.0) -> SuiteEvidence:
    """Answers of which the first have other tokens, and whose log probabilities are `drift` nats off."""
    made = suite(arm)
    items = tuple(
        item.model_copy(
            update={
                "token_ids": (1, 2, 3) if i < num_other else item.token_ids,
                "top_logprobs": (TokenLogprobs(token_ids=(5,), logprobs=(-1.0 - drift,)),),
            }
        )
        for i, item in enumerate(made.items)
    )
    # On no named machine: the bundle describes the one that the test runs on.
    return made.model_copy(update={"items": items, "hardware": ""})


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_subject(tmp_path_factory.mktemp("again") / "repo")


def sealed(question: Question, place: Path, *records: AnyEvidence) -> Path:
    """A bundle of the question with these records."""
    store = EvidenceStore(place)
    for record in (collect_environment(Tier.STATIC), *records):
        store.add(record)
    seal(
        store.folder,
        manifest_text=question.manifest_text,
        policy_text=question.policy_text,
        judgement=decide(question.manifest_text, question.policy_text, question.change, store.records),
        render_report=render_report,
    )
    return store.folder


@pytest.fixture(scope="module")
def question(repo: Path) -> Question:
    return read_question(validate_options(repo, repo).change)


OWNERS = OwnersEvidence(
    tier=Tier.STATIC, recorded_at="2026-11-02T10:00:00Z", path="CODEOWNERS", text="* @a/b"
)


@pytest.fixture(scope="module")
def bundle(question: Question, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with the answers of three arms; of 40, two differ between the two baselines."""
    answered = (answers(Arm.BASELINE), answers(Arm.BASELINE_AGAIN, 2, drift=0.01), answers(Arm.CANDIDATE))
    place = tmp_path_factory.mktemp("again-bundle") / "b"
    return sealed(question, place, question.changed_files, OWNERS, *answered)


def run_again(
    bundle: Path,
    repo: Path,
    cell: str,
    collect: Callable[[CpuRun], None] | None = None,
    *,
    form: str = "text",
    run: bool = True,
) -> CommandResult:
    def refuses(_: CpuRun) -> None:
        raise AssertionError("nothing of the cpu tier was asked for")

    options = ReproduceOptions(
        bundle=bundle,
        cell=cell or None,
        run=run,
        repo=repo,
        output=OutputOptions(format=form, quiet=True),  # type: ignore[arg-type]
    )
    return reproduce(options, collect_cpu=collect or refuses)


def answering(record: SuiteEvidence) -> Callable[[CpuRun], None]:
    return lambda run: run.recorder.record(record) and None


def test_without_a_cell_every_record_is_listed_by_name(bundle: Path, repo: Path) -> None:
    result = run_again(bundle, repo, "", run=False)
    assert len(result.text.splitlines()) == len(read_bundle(bundle).records)
    assert CELL in result.text


def test_the_commands_name_the_commit_the_arm_and_the_bundles_own_terms(bundle: Path, repo: Path) -> None:
    (cell,) = json.loads(run_again(bundle, repo, CELL, run=False, form="json").text)["cells"]
    assert f"bundle reproduce {bundle} {CELL} --run --repo {repo}" in cell["this_cell"]
    head = read_bundle(bundle).change.head
    assert f"--base empty --head {head} --paths 'specialized_path/**'" in cell["whole_tier"]
    assert f"--manifest {bundle}/fasttrack.toml --policy {bundle}/policy.toml" in cell["whole_tier"]


def test_an_archive_is_unpacked_before_the_whole_tier(bundle: Path, repo: Path, tmp_path: Path) -> None:
    pack(bundle, tmp_path / "b.tar.gz")
    (cell,) = json.loads(run_again(tmp_path / "b.tar.gz", repo, CELL, run=False, form="json").text)["cells"]
    assert cell["whole_tier"].startswith(
        f"mkdir {tmp_path}/b && tar -xzf {tmp_path}/b.tar.gz -C {tmp_path}/b && "
    )


def test_a_check_stands_for_the_cells_that_its_findings_rest_on(bundle: Path, repo: Path) -> None:
    assert "changed_files" in run_again(bundle, repo, "ISO001", run=False).text


def test_a_cell_that_is_not_there_is_refused_with_the_nearest(bundle: Path, repo: Path) -> None:
    with pytest.raises(BundleError) as caught:
        run_again(bundle, repo, "suite/greedy", run=False)
    assert CELL in caught.value.advice


@pytest.mark.parametrize(
    ("again", "code"),
    [
        pytest.param(answers(Arm.CANDIDATE), ExitCode.ADMIT, id="equal"),
        pytest.param(answers(Arm.CANDIDATE, 3), ExitCode.ADMIT, id="as many others as between equal arms"),
        pytest.param(answers(Arm.CANDIDATE, 12), ExitCode.REJECT, id="many more others"),
        pytest.param(answers(Arm.CANDIDATE, 0, 0.015), ExitCode.ADMIT, id="numbers within the A/A"),
        pytest.param(answers(Arm.CANDIDATE, 0, 0.03), ExitCode.REJECT, id="numbers beyond it"),
    ],
)
def test_a_suite_is_the_same_when_no_more_differs_than_between_equal_arms(
    bundle: Path, repo: Path, again: SuiteEvidence, code: ExitCode
) -> None:
    assert run_again(bundle, repo, CELL, answering(again)).exit_code is code


def test_other_requests_are_another_cell_whatever_their_answers(bundle: Path, repo: Path) -> None:
    asked = answers(Arm.CANDIDATE)
    items = tuple(i.model_copy(update={"temperature": 0.5}) for i in asked.items)
    result = run_again(bundle, repo, CELL, answering(asked.model_copy(update={"items": items})))
    assert result.exit_code is ExitCode.REJECT and "other requests" in result.text


def test_only_the_arm_of_the_cell_is_started_and_all_else_is_in_evidence(bundle: Path, repo: Path) -> None:
    seen: list[CpuRun] = []

    def collect(run: CpuRun) -> None:
        seen.append(run)
        names = name_cells(run.recorder.records)
        assert CELL not in names and "suite/greedy/baseline" in names
        run.recorder.record(answers(Arm.CANDIDATE))

    assert run_again(bundle, repo, CELL, collect).exit_code is ExitCode.ADMIT
    assert [run.arms for run in seen] == [(Arm.CANDIDATE,)]


def test_what_was_not_collected_again_could_not_run_and_says_why(bundle: Path, repo: Path) -> None:
    def collect(run: CpuRun) -> None:
        run.recorder.gap(Tier.CPU, "arm candidate", "the engine died", broke=True)

    result = run_again(bundle, repo, CELL, collect)
    assert result.exit_code is ExitCode.UNDECIDED and "the engine died" in result.text


def test_without_a_clone_of_the_commit_a_cell_could_not_run(bundle: Path, tmp_path: Path) -> None:
    assert run_again(bundle, tmp_path, CELL).exit_code is ExitCode.UNDECIDED


def test_what_is_made_with_others_is_not_made_alone(bundle: Path, repo: Path) -> None:
    assert run_again(bundle, repo, "environment").exit_code is ExitCode.UNDECIDED


def test_the_list_of_changed_files_is_read_again_and_every_field_counts(
    bundle: Path, repo: Path, question: Question, tmp_path: Path
) -> None:
    assert run_again(bundle, repo, "changed_files").exit_code is ExitCode.ADMIT
    forged = question.changed_files.model_copy(update={"num_not_judged": 99})
    result = run_again(sealed(question, tmp_path / "b", forged), repo, "changed_files")
    assert result.text.startswith("changed_files: differs: other num_not_judged")


@pytest.mark.parametrize(("text", "code"), [("* @a/b", ExitCode.ADMIT), ("* @a/c", ExitCode.REJECT)])
def test_what_was_read_of_the_commit_is_read_again_whenever_that_was(
    bundle: Path, repo: Path, text: str, code: ExitCode
) -> None:
    def collect(_question: Question, _options: ValidateOptions, recorder: Recorder) -> None:
        recorder.record(OWNERS.model_copy(update={"recorded_at": "2026-12-24T10:00:00Z", "text": text}))

    options = ReproduceOptions(
        bundle=bundle, cell="owners", run=True, repo=repo, output=OutputOptions(quiet=True)
    )
    assert reproduce(options, collect_static=collect).exit_code is code


def finding(outcome: Outcome, low: float, high: float) -> Finding:
    return Finding(
        check="PERF001",
        principle=Principle.PERFORMANCE,
        tier=Tier.CPU,
        subject="batch 8",
        outcome=outcome,
        message="measured",
        evidence=("timing-0",),
        measurements=(
            Measurement(name="ratio", unit="ratio", estimate=(low + high) / 2, ci_low=low, ci_high=high, n=8),
        ),
    )


@pytest.mark.parametrize(
    ("again", "sameness"),
    [
        ([finding(Outcome.PASS, 0.95, 1.05)], Sameness.SAME),
        ([finding(Outcome.PASS, 1.2, 1.3)], Sameness.DIFFERS),
        ([finding(Outcome.FAIL, 0.95, 1.05)], Sameness.DIFFERS),
        ([], Sameness.DIFFERS),
    ],
)
def test_a_timing_is_the_same_when_outcome_and_interval_agree(
    again: list[Finding], sameness: Sameness
) -> None:
    assert compare_findings("timing", [finding(Outcome.PASS, 0.9, 1.0)], again).sameness is sameness


def test_a_cell_on_which_no_finding_rests_says_nothing_about_sameness() -> None:
    assert compare_findings("timing", [], []).sameness is Sameness.COULD_NOT_RUN
