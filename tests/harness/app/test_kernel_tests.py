"""Laws of the records of the kernels' tests: they enter a bundle beside what the head commit holds."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.app import misfits
from harness.app.kernel_tests import record_kernel_tests
from harness.app.recorder import Progress, Recorder
from harness.facts.git import Repository
from harness.model.errors import ConfigurationError
from harness.model.evidence import KernelTestsEvidence
from harness.model.kernel_tests import KernelTest, KernelTestRun
from harness.model.words import Tier
from tests.harness.app.kept_records import Kept

KERNEL = b"def kernel(): ...\n"


@pytest.fixture
def question(tmp_path: Path) -> Any:
    """A repository of one commit with one kernel."""
    folder = tmp_path / "repository"
    (folder / "subject").mkdir(parents=True)
    (folder / "subject/kernel.py").write_bytes(KERNEL)
    (folder / "subject/lazy.py").write_bytes(b"")
    (folder / "tests").mkdir()
    (folder / "tests/conftest.py").write_bytes(b"import pytest\n")
    (folder / "tests/test_kernel.py").write_bytes(
        b"from subject import kernel\n\n\ndef test_it():\n    import subject.lazy\n"
    )
    git = ("git", "-C", str(folder), "-c", "user.name=made", "-c", "user.email=made@made")
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "made")):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run(
        [*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    return SimpleNamespace(repository=Repository(folder), change=SimpleNamespace(head=head))


def recorded(question: Any, tmp_path: Path, text: str) -> KernelTestsEvidence:
    path = tmp_path / "tests.json"
    path.write_text(text)
    recorder = Recorder(sink=Kept(), progress=Progress(quiet=True))
    record_kernel_tests(question, [path], recorder)
    (record,) = recorder.evidence.of(KernelTestsEvidence, tier=Tier.GPU)
    return record


def run_of(sources: dict[str, str], *tests: KernelTest) -> str:
    made = KernelTestRun(
        recorded_at="2026-11-30T12:00:00Z",
        command=(),
        exit_status=0,
        sources=sources,
        tests=tests,
        never_launched=(),
    )
    return made.model_dump_json()


def test_a_run_of_the_heads_sources_has_none_of_others(question: Any, tmp_path: Path) -> None:
    digest = hashlib.sha256(KERNEL).hexdigest()
    record = recorded(question, tmp_path, run_of({"subject/kernel.py": digest}))
    assert (record.commit, record.other_sources) == (question.change.head, ())


@pytest.mark.parametrize("path", ["subject/kernel.py", "subject/gone.py"])
def test_an_edited_or_missing_source_is_another(question: Any, tmp_path: Path, path: str) -> None:
    assert recorded(question, tmp_path, run_of({path: "0" * 64})).other_sources == (path,)


@pytest.mark.parametrize("text", ["", "[]", '{"schema_version": 1}', "{\xff"])
def test_a_file_that_is_no_such_record_is_refused(question: Any, tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"tests\.json is no record of the kernels' tests"):
        recorded(question, tmp_path, text)


PASSED = KernelTest(test="tests/test_kernel.py::test_it", outcome="passed", seconds=1.0, launched={})
IMPORTED = ("subject/kernel.py", "tests/conftest.py", "tests/test_kernel.py")


def test_a_record_is_held_to_what_its_passed_tests_import_at_the_head(question: Any, tmp_path: Path) -> None:
    record = recorded(question, tmp_path, run_of({}, PASSED))
    assert record.imported == record.unnamed_sources == IMPORTED


def test_a_test_that_did_not_pass_asks_for_no_source_and_one_of_no_file_for_its_own(
    question: Any, tmp_path: Path
) -> None:
    skipped = PASSED.model_copy(update={"outcome": "not_run"})
    gone = PASSED.model_copy(update={"test": "tests/gone.py::test_it"})
    assert recorded(question, tmp_path, run_of({}, skipped)).imported == ()
    assert recorded(question, tmp_path, run_of({}, gone)).imported == ("tests/conftest.py", "tests/gone.py")


def test_a_record_that_leaves_an_edited_kernel_out_and_says_nothing_imports_it_is_found_by_the_gate(
    question: Any, tmp_path: Path
) -> None:
    honest = recorded(question, tmp_path, run_of({}, PASSED))
    forged = honest.model_copy(update={"imported": tuple(p for p in IMPORTED if "kernel.py" not in p)})
    terms = SimpleNamespace(**vars(question), published=SimpleNamespace(text=str))
    found = [
        misfits._find_other_sources(SimpleNamespace(records=[record]), terms)  # type: ignore[arg-type]
        for record in (honest, forged)
    ]
    assert [[difference.slug for difference in each] for each in found] == [[], ["bundle-other-subject"]]


def test_what_a_record_says_of_the_head_the_gate_reads_again(question: Any, tmp_path: Path) -> None:
    other = "0" * 64
    honest = recorded(question, tmp_path, run_of({"subject/kernel.py": other}))
    forged = honest.model_copy(update={"files": {"subject/kernel.py": other}})
    terms = SimpleNamespace(**vars(question), published=SimpleNamespace(text=str))
    found = [
        misfits._find_other_sources(SimpleNamespace(records=[record]), terms)  # type: ignore[arg-type]
        for record in (honest, forged)
    ]
    assert [[difference.slug for difference in each] for each in found] == [[], ["bundle-other-subject"]]
