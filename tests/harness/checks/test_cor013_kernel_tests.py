"""Outcomes of COR013."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from harness.checks.correctness.cor013_kernel_tests import KernelTests
from harness.model.evidence import KernelSourcesEvidence, KernelTestsEvidence
from harness.model.finding import Finding
from harness.model.kernel_audit import KernelSource
from harness.model.kernel_tests import KernelTest, KernelTestRun, Machine, MemoryCheck
from harness.model.kernels import KernelsSection
from harness.model.manifest import Manifest
from harness.model.words import Outcome, Tier
from tests.harness.checks.evidence_builder import HEAD, MANIFEST, POLICY, context_of

SOURCES = {"subject/kernel.py": "1" * 64, "tests/test_kernel.py": "2" * 64}
GPU = Machine(gpu="made", driver="1", num_gpus=1, sm_clock_mhz=(), memory_clock_mhz=(), software={})
PASSED = KernelTest(test="t::a", outcome="passed", seconds=1.0, launched={"one": 2, "two": 1})
CLEAN = MemoryCheck(version="1", num_processes=1, num_ended=1, num_errors=0, num_planted_errors=1)
WITH_KERNELS = MANIFEST.model_copy(update={"kernels": KernelsSection(tests=("tests",))})


def run(*tests: KernelTest, **update: object) -> KernelTestRun:
    made = KernelTestRun(
        recorded_at="2026-11-30T12:00:00Z",
        command=("python", "-m", "pytest"),
        exit_status=0,
        machine=GPU,
        sources=SOURCES,
        tests=tests or (PASSED,),
        never_launched=(),
    )
    return made.model_copy(update=update)


def record(
    made: KernelTestRun, files: Mapping[str, str] = SOURCES, imported: Sequence[str] = tuple(SOURCES)
) -> KernelTestsEvidence:
    return KernelTestsEvidence(
        tier=Tier.GPU,
        recorded_at=made.recorded_at,
        commit=HEAD,
        run=made,
        files=dict(files),
        imported=tuple(imported),
    )


def kernels(*paths: str) -> KernelSourcesEvidence:
    files = tuple(KernelSource(path=path, form="CuTe DSL", lines=(1,)) for path in paths)
    return KernelSourcesEvidence(
        tier=Tier.STATIC, recorded_at="now", commit=HEAD, num_files=len(files), files=files
    )


def findings_of(
    *records: KernelTestsEvidence,
    manifest: Manifest = WITH_KERNELS,
    brought: KernelSourcesEvidence | None = None,
) -> Mapping[str, Finding]:
    context = context_of([brought or kernels(*SOURCES), *records], manifest, POLICY)
    return {finding.subject: finding for finding in KernelTests().run(context)}


def outcomes_of(*records: KernelTestsEvidence) -> dict[str, Outcome]:
    return {subject: finding.outcome for subject, finding in findings_of(*records).items()}


def test_passed_tests_that_launch_every_variant_pass() -> None:
    assert outcomes_of(record(run(memcheck=CLEAN))) == dict.fromkeys(
        ("tests", "variants", "memory"), Outcome.PASS
    )


def test_without_a_record_nothing_was_run() -> None:
    assert outcomes_of() == {"kernel tests": Outcome.NOT_RUN}


def test_a_change_without_kernels_has_no_tests_of_them() -> None:
    assert {f.outcome for f in findings_of(manifest=MANIFEST).values()} == {Outcome.NOT_APPLICABLE}


def test_kernels_that_the_manifest_does_not_declare_are_not_thereby_tested() -> None:
    scope = MANIFEST.scope.model_copy(update={"platforms": ("sm_90a",)})
    context = context_of([kernels("subject/kernel.py")], MANIFEST.model_copy(update={"scope": scope}), POLICY)
    assert [finding.outcome for finding in KernelTests().run(context)] == [Outcome.NOT_RUN]


@pytest.mark.parametrize(
    ("made", "files", "said"),
    [
        (run(), SOURCES | {"subject/kernel.py": "3" * 64}, "subject/kernel.py"),
        (run(), {"subject/kernel.py": "1" * 64}, "tests/test_kernel.py"),
        (run(sources={}), {}, "does not say of which sources"),
        (run(machine=None), SOURCES, "used no GPU"),
    ],
    ids=["edited", "not in the head", "no sources", "no GPU"],
)
def test_a_record_of_something_else_was_not_run(
    made: KernelTestRun, files: Mapping[str, str], said: str
) -> None:
    found = findings_of(record(made, files))
    assert {s: f.outcome for s, f in found.items()} == {"records": Outcome.NOT_RUN}
    assert said in found["records"].details[0]


@pytest.mark.parametrize("outcome", ["failed", "error"])
def test_a_test_that_goes_wrong_fails(outcome: str) -> None:
    wrong = PASSED.model_copy(update={"test": "t::b", "outcome": outcome, "reason": "nan"})
    found = findings_of(record(run(PASSED, wrong, exit_status=1)))["tests"]
    assert (found.outcome, found.details[0]) == (Outcome.FAIL, f"t::b: {outcome}: nan")


def test_skipped_tests_alone_were_not_run() -> None:
    skipped = PASSED.model_copy(update={"outcome": "not_run", "launched": {}})
    found = outcomes_of(record(run(skipped)))
    assert (found["tests"], found["variants"]) == (Outcome.NOT_RUN, Outcome.NOT_RUN)


@pytest.mark.parametrize("update", [{"stopped_by": "an interrupt"}, {"exit_status": 2}])
def test_a_run_that_did_not_come_to_its_end_is_open(update: dict[str, object]) -> None:
    assert outcomes_of(record(run(**update)))["tests"] is Outcome.INCONCLUSIVE


def test_a_variant_that_no_passed_test_launched_was_not_run_and_is_named() -> None:
    found = findings_of(record(run(never_launched=("three",))))["variants"]
    assert found.outcome is Outcome.NOT_RUN
    assert found.details == ("three: launched by no test that passed",)


def test_another_record_may_launch_what_the_first_did_not() -> None:
    third = PASSED.model_copy(update={"launched": {"three": 1}})
    rest = record(run(third, match="three", recorded_at="later"))
    assert outcomes_of(record(run(never_launched=("three",))), rest)["variants"] is Outcome.PASS


def test_a_variant_that_only_a_failed_test_launched_was_not_run() -> None:
    third = PASSED.model_copy(update={"outcome": "failed", "launched": {"three": 1}})
    rest = record(run(third, match="three", recorded_at="later"))
    found = findings_of(record(run(never_launched=("three",))), rest)["variants"]
    assert found.outcome is Outcome.NOT_RUN


def test_records_of_a_part_of_the_inventory_alone_leave_the_rest_open() -> None:
    assert outcomes_of(record(run(match="one")))["variants"] is Outcome.NOT_RUN


@pytest.mark.parametrize(
    ("update", "outcome"),
    [({"num_errors": 1}, Outcome.FAIL), ({"num_ended": 0}, Outcome.INCONCLUSIVE)],
)
def test_what_memcheck_did_not_clear_does_not_pass(update: dict[str, int], outcome: Outcome) -> None:
    assert outcomes_of(record(run(memcheck=CLEAN.model_copy(update=update))))["memory"] is outcome


def test_a_record_of_this_repository_names_the_variants_that_it_lacks() -> None:
    path = Path(__file__).resolve().parents[3] / "docs/kernels/evidence/h200-2026-11-30-tests-mla.json"
    made = KernelTestRun.model_validate_json(path.read_bytes())
    assert outcomes_of(record(made, made.sources, ()))["tests"] is Outcome.PASS


@pytest.mark.parametrize("path", SOURCES)
def test_a_record_that_leaves_out_what_its_tests_import_does_not_count(path: str) -> None:
    rest = {name: digest for name, digest in SOURCES.items() if name != path}
    finding = findings_of(record(run(sources=rest), rest))["records"]
    assert finding.outcome is Outcome.NOT_RUN and path in finding.details[0]


def test_a_kernel_source_that_no_records_tests_import_is_not_tested() -> None:
    finding = findings_of(record(run()), brought=kernels("subject/kernel.py", "subject/other.py"))[
        "kernel sources"
    ]
    assert finding.outcome is Outcome.NOT_RUN and "subject/other.py" in finding.message


def test_one_of_several_records_that_imports_a_kernel_source_is_enough() -> None:
    other = {**SOURCES, "subject/other.py": "3" * 64}
    found = findings_of(record(run()), record(run(sources=other), other), brought=kernels(*other))
    assert "kernel sources" not in found


def test_whether_a_source_in_another_language_was_built_is_not_asked_of_imports() -> None:
    assert "kernel sources" not in findings_of(record(run()), brought=kernels("subject/kernel.cu"))
