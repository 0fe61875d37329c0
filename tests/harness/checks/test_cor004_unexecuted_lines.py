"""Outcomes of COR004."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from harness.checks.correctness.cor004_unexecuted_lines import UnexecutedLines, render_ranges
from harness.model.evidence import CoverageEvidence, CoverageFile, SubjectEvidence
from harness.model.finding import Finding
from harness.model.manifest import CoverageSection, Manifest
from harness.model.words import Arm, Outcome
from tests.harness.checks.evidence_builder import (
    MANIFEST,
    change_records,
    clean_evidence,
    context_of,
    without,
)


def findings_of(evidence: object, manifest: Manifest = MANIFEST) -> list[Finding]:
    return list(UnexecutedLines().run(context_of(evidence, manifest)))  # type: ignore[arg-type]


def with_files(change: Callable[[Sequence[CoverageFile]], Sequence[CoverageFile]]) -> list[Finding]:
    def changed(record: CoverageEvidence) -> CoverageEvidence:
        return record.model_copy(update={"files": tuple(change(record.files))})

    return findings_of(change_records(clean_evidence(), CoverageEvidence, changed))


def globs(*names: str) -> Manifest:
    return MANIFEST.model_copy(update={"coverage": CoverageSection(cpu=names)})


def test_missed_lines_are_listed_by_file_as_ranges() -> None:
    (finding,) = findings_of(clean_evidence())
    assert finding.outcome is Outcome.PASS and "subject/plan.py: lines 9-10" in finding.details


def test_too_small_a_share_fails() -> None:
    def shorter(files: Sequence[CoverageFile]) -> Sequence[CoverageFile]:
        return [files[0].model_copy(update={"executed_lines": {"greedy": (1, 2)}}), files[1]]

    (finding,) = with_files(shorter)
    assert finding.outcome is Outcome.FAIL and finding.measurements[0].estimate == 0.5


def test_lines_that_ran_in_either_of_the_candidates_processes_count() -> None:
    records = list(clean_evidence())
    (record,) = [r for r in records if isinstance(r, CoverageEvidence)]
    missed = record.files[0].model_copy(update={"executed_lines": {"verify": (9, 10)}})
    other = record.model_copy(update={"files": (missed,)})
    (finding,) = findings_of([*records, other])
    assert finding.outcome is Outcome.PASS
    assert not any("plan.py" in line for line in finding.details)
    assert {record.id, other.id} <= set(finding.evidence)


def test_a_file_that_was_never_imported_fails_by_name_though_the_others_are_covered() -> None:
    findings = with_files(lambda files: files[:1])
    assert "subject/executor.py" in [f.subject for f in findings if f.outcome is Outcome.FAIL]


def test_a_file_without_an_executed_line_fails_by_name() -> None:
    findings = with_files(lambda files: [files[0], files[1].model_copy(update={"executed_lines": {}})])
    assert "subject/executor.py" in [f.subject for f in findings if f.outcome is Outcome.FAIL]


def test_lines_that_ran_only_before_the_first_suite_are_no_evaluation() -> None:
    def only_imported(files: Sequence[CoverageFile]) -> Sequence[CoverageFile]:
        return [f.model_copy(update={"executed_lines": {"start": f.executable_lines}}) for f in files]

    (finding,) = with_files(only_imported)
    assert finding.outcome is Outcome.FAIL and "no evaluation executed any" in finding.message


def test_lines_that_are_not_executable_do_not_raise_the_share() -> None:
    def padded(files: Sequence[CoverageFile]) -> Sequence[CoverageFile]:
        return [f.model_copy(update={"executed_lines": {"greedy": tuple(range(100, 200))}}) for f in files]

    assert with_files(padded)[0].outcome is Outcome.FAIL


def test_a_suite_that_ran_few_of_the_lines_that_others_ran_leaves_it_open() -> None:
    def left_on_the_way(files: Sequence[CoverageFile]) -> Sequence[CoverageFile]:
        return [
            files[0].model_copy(update={"executed_lines": {**files[0].executed_lines, "sampling": ()}}),
            files[1],
        ]

    (finding,) = with_files(left_on_the_way)
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert finding.details[0] == "sampling: 50.0% of 6 lines"


def test_without_coverage_evidence_it_is_not_run() -> None:
    assert findings_of(without(clean_evidence(), CoverageEvidence))[0].outcome is Outcome.NOT_RUN


def test_without_the_committed_files_nobody_knows_what_is_missing_and_it_is_not_run() -> None:
    assert findings_of(without(clean_evidence(), SubjectEvidence))[0].outcome is Outcome.NOT_RUN


def test_coverage_of_another_arm_does_not_count() -> None:
    def moved(record: CoverageEvidence) -> CoverageEvidence:
        return record.model_copy(update={"arm": Arm.BASELINE})

    evidence = change_records(clean_evidence(), CoverageEvidence, moved)
    assert findings_of(evidence)[0].outcome is Outcome.NOT_RUN


@pytest.mark.parametrize("manifest", [globs(), globs("subject/nothing/*.py")])
def test_a_manifest_that_names_no_file_shows_nothing(manifest: Manifest) -> None:
    assert [f.outcome for f in findings_of(clean_evidence(), manifest)] == [Outcome.NOT_RUN]


def test_a_glob_that_matches_nothing_is_said_beside_those_that_do() -> None:
    outcomes = {
        f.subject: f.outcome for f in findings_of(clean_evidence(), globs("subject/plan.py", "subjcet/*.py"))
    }
    assert outcomes["subjcet/*.py"] is Outcome.NOT_RUN


def test_files_without_an_executable_line_are_inconclusive() -> None:
    findings = with_files(lambda files: [f.model_copy(update={"executable_lines": ()}) for f in files])
    assert [f.outcome for f in findings] == [Outcome.INCONCLUSIVE]


@pytest.mark.parametrize(("lines", "text"), [([], ""), ([4], "4"), ([1, 2, 3, 5, 7, 8], "1-3, 5, 7-8")])
def test_ranges_are_written_short(lines: list[int], text: str) -> None:
    assert render_ranges(lines) == text
