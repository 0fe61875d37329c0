"""A change's own tests, run for real over a small subject: what each kind of test is found to notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.app.own_tests import clean_test, collect_own_tests
from harness.app.own_tests_process import (
    BROKEN,
    MISSING,
    NamedLine,
    OwnTestsRun,
    environment_of,
    finished_tests,
    read_lines,
    why_not_collected,
)
from harness.app.recorder import Progress, Recorder
from harness.checks.joins.own_tests import Worth, judge_tests
from harness.model.errors import EvidenceError
from harness.model.evidence import AnyEvidence, GapEvidence, OwnTestsEvidence
from harness.model.own_tests import ControlOutcome, OwnOutcome

SUBJECT = """
def step(x):
    if x < 0:
        raise ValueError("negative")
    return {"o": x * 2.0, "length": 1}

def accepts(x):
    return None

class Plan:
    def __init__(self, size):
        self.size = size * 2

def again(answer):
    assert answer["length"] == 1, "not what step gives"
    return answer["o"]
"""
HELPER = """
from subject import code

def run(x):
    return code.step(x)
"""
CONFTEST = """
import pytest
from subject import code

@pytest.fixture(scope="session")
def answer():
    return code.step(1)
"""
TESTS = """
import os, subprocess, sys, unittest
import pytest
from hypothesis import given, strategies as st
from subject import code
from subject.code import Plan, accepts, again, step
from tests.helper import run

class Fake(dict):
    pass

def test_value(): assert step(1)["o"] == 2
def test_runs(): step(1)
def test_form(): assert set(step(1)) == {"o", "length"}
def test_mocked(monkeypatch):
    monkeypatch.setattr(code, "step", lambda x: x)
    assert code.step(1) == 1
def test_by_fixture(answer): assert answer["o"] == 2
def test_fixture_again(answer): assert answer["o"] == 2
def test_fixture_unread(answer): pass
def test_by_helper(): assert run(1)["o"] == 2
@pytest.mark.parametrize("x", [1, 2])
def test_cases(x): assert step(x)["o"] == 2 * x
@given(st.integers(0, 9))
def test_property(x): assert step(x)["o"] == 2 * x
class TestOld(unittest.TestCase):
    def setUp(self): self.found = step(1)
    def test_old(self): self.assertEqual(self.found["o"], 2)
def test_raises():
    with pytest.raises(ValueError): step(-1)
def test_suppresses():
    try: step(-1)
    except ValueError: pass
def test_made(): assert Plan(1).size == 2
def test_accepts(): accepts(1)
def test_inside(): assert again(step(1)) == 2
def test_elsewhere(): subprocess.run([sys.executable, "-c", "pass"], check=True)
def test_forks():
    if not (child := os.fork()): os._exit(0)
    os.waitpid(child, 0)
@pytest.mark.skip(reason="later")
def test_later(): assert step(1)["o"] == 2
@pytest.mark.skipif(not os.environ.get("NEVER"), reason="needs a GPU")
def test_gpu(): assert step(1)["o"] == 2
def test_cuda(): raise RuntimeError("Found no NVIDIA driver on your system.")
def test_package():
    import a_package_that_is_nowhere
def test_wrong(): assert step(1)["o"] == 3
@pytest.mark.xfail
def test_hopeless(): assert step(1)["o"] == 3
def test_environment(): assert "A_SECRET" not in os.environ
def test_writes():
    assert not os.path.exists("written")
    open("written", "w").close()
    assert step(1)["o"] == 2
"""
WORTH = {
    "value": Worth.VALUES,
    "runs": Worth.BLIND,
    "form": Worth.BLIND,
    "mocked": Worth.STRANGER,
    "by_fixture": Worth.VALUES,
    "fixture_again": Worth.VALUES,
    "fixture_unread": Worth.BLIND,
    "by_helper": Worth.VALUES,
    "cases": Worth.VALUES,
    "property": Worth.VALUES,
    "old": Worth.VALUES,
    "raises": Worth.ERRORS,
    "suppresses": Worth.BLIND,
    "made": Worth.VALUES,
    "accepts": Worth.UNCLEAR,
    "inside": Worth.UNCLEAR,
    "elsewhere": Worth.UNCLEAR,
    "forks": Worth.UNCLEAR,
    "later": Worth.ALWAYS_SKIPPED,
    "gpu": Worth.NOT_RUN,
    "cuda": Worth.NOT_RUN,
    "package": Worth.NOT_RUN,
    "hopeless": Worth.EXPECTED_FAILURE,
    "environment": Worth.STRANGER,
    "writes": Worth.VALUES,
}


class Kept:
    def __init__(self) -> None:
        self.records: list[AnyEvidence] = []

    def add(self, record: AnyEvidence) -> str:
        self.records.append(record)
        return record.id


def collect(folder: Path, tests: dict[str, str], *, controls_s: float = 300.0) -> AnyEvidence:
    """The one record that a change with these test files leaves."""
    tree = {
        "subject/__init__.py": "",
        "subject/code.py": SUBJECT,
        "tests/__init__.py": "",
        "tests/helper.py": HELPER,
        "tests/conftest.py": CONFTEST,
    }

    def export(top: Path) -> None:
        for name, text in (tree | tests).items():
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            (top / name).write_text(text)

    sink = Kept()
    collect_own_tests(
        OwnTestsRun(
            recorder=Recorder(sink=sink, progress=Progress(quiet=True)),
            commit="b" * 40,
            tests=tuple(tests),
            subject=("subject/__init__.py", "subject/code.py"),
            export=export,
            workdir=folder / "own_tests",
            controls_s=controls_s,
        )
    )
    (record,) = sink.records
    return record


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> OwnTestsEvidence:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("A_SECRET", "token")
        record = collect(tmp_path_factory.mktemp("own"), {"tests/test_it.py": TESTS})
    assert isinstance(record, OwnTestsEvidence), record
    return record


@pytest.mark.parametrize(("name", "worth"), WORTH.items())
def test_each_kind_of_test_is_told(name: str, worth: Worth, found: OwnTestsEvidence) -> None:
    (judged,) = [
        t for t in judge_tests(found.tests, found.num_outside) if t.name.rpartition("::")[2] == f"test_{name}"
    ]
    assert judged.worth is worth


def test_a_failing_test_is_recorded_with_its_assertion(found: OwnTestsEvidence) -> None:
    (wrong,) = [t for t in found.tests if t.outcome is OwnOutcome.FAILED]
    assert wrong.test.endswith("test_wrong") and "assert 2.0 == 3" in wrong.reason


def test_an_assertion_inside_the_subject_is_no_notice_of_the_test(found: OwnTestsEvidence) -> None:
    (inside,) = [t for t in found.tests if t.test.endswith("test_inside")]
    assert inside.controls[0].outcome is ControlOutcome.BROKE


def test_a_test_that_ends_the_process_is_named_and_so_are_those_behind_it(tmp_path: Path) -> None:
    text = (
        "import os, signal\ndef test_first(): os.kill(os.getpid(), signal.SIGSEGV)\ndef test_next(): pass\n"
    )
    record = collect(tmp_path, {"tests/test_it.py": text})
    assert isinstance(record, OwnTestsEvidence)
    assert [t.outcome for t in record.tests] == [OwnOutcome.CRASHED, OwnOutcome.NOT_DONE]


def test_a_subject_that_is_imported_from_elsewhere_is_no_evidence(tmp_path: Path) -> None:
    text = "import sys, types\nsys.modules['subject.code'] = types.ModuleType('subject.code')\ndef test_it(): pass\n"
    record = collect(tmp_path, {"tests/conftest.py": text, "tests/test_it.py": "def test_it(): pass\n"})
    assert isinstance(record, GapEvidence) and record.broke and "subject.code" in record.reason


def test_a_test_that_runs_when_the_time_is_up_is_not_done() -> None:
    lines = [NamedLine(event="test", test="t"), NamedLine(event="begin", test="t")]
    hung = clean_test("t", finished_tests(lines, is_over=False, problem=""))
    assert (hung.outcome, hung.reason) == (OwnOutcome.NOT_DONE, "the time was up during it")


@pytest.mark.parametrize("controls_s", [0.0, 0.01])
def test_what_no_time_is_left_to_falsify_is_open_and_the_run_as_it_is_stands(
    controls_s: float, tmp_path: Path
) -> None:
    text = "from subject.code import step\ndef test_it(): assert step(1)['o'] == 2\n"
    record = collect(tmp_path, {"tests/test_it.py": text}, controls_s=controls_s)
    assert isinstance(record, OwnTestsEvidence), record
    (judged,) = judge_tests(record.tests, record.num_outside)
    assert (record.tests[0].outcome, judged.worth) == (OwnOutcome.PASSED, Worth.UNCLEAR)


@pytest.mark.parametrize("status", [None, 4])
def test_an_import_that_hangs_and_a_configuration_that_pytest_refuses_are_no_fault_of_the_harness(
    status: int | None,
) -> None:
    with pytest.raises(EvidenceError) as caught:
        why_not_collected(status, 2.0, ["the log"])
    assert caught.value.slug == MISSING


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> OwnTestsEvidence:
    texts = {
        "tests/test_package.py": "import a_package_that_is_nowhere",
        "tests/test_own.py": "import subject.nothing",
        "tests/test_text.py": "x = (",
        "tests/test_none.py": "x = 1",
        "tests/test_here.py": "import pytest; pytest.skip('no GPU', allow_module_level=True)",
    }
    record = collect(tmp_path_factory.mktemp("empty"), texts)
    assert isinstance(record, OwnTestsEvidence)
    return record


@pytest.mark.parametrize(
    ("name", "problem", "missing"),
    [
        ("package", "a_package_that_is_nowhere", True),
        ("own", "subject.nothing", False),
        ("text", "SyntaxError", False),
        ("none", "no tests were collected", False),
        ("here", "no GPU", True),
    ],
)
def test_a_file_without_tests_says_why(
    name: str, problem: str, missing: bool, empty: OwnTestsEvidence
) -> None:
    (file,) = [f for f in empty.files if f.path == f"tests/test_{name}.py"]
    assert problem in file.problem and file.is_missing_here is missing


def test_the_tests_find_no_variable_but_those_that_they_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "token")
    assert "GITHUB_TOKEN" not in environment_of(tmp_path, tmp_path)


@pytest.mark.parametrize("line", ["{}", "text", '{"event": "end", "test": "a"}', '{"event": "other"}'])
def test_a_line_of_another_form_is_refused(tmp_path: Path, line: str) -> None:
    out = tmp_path / "out"
    out.write_text(line + "\n")
    with pytest.raises(EvidenceError) as caught:
        read_lines(out, {})
    assert caught.value.slug == BROKEN
