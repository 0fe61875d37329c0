"""What a run of the kernels' tests leaves behind: on what, of which sources, and what memcheck saw."""

import hashlib
import json
import os
import stat

import pytest
from pydantic import ValidationError

from harness.audit.pool import available_cores
from harness.cli import main
from harness.kernels.memcheck import parse_memcheck
from harness.model.kernel_tests import (
    KernelTestRun,
    MemoryCheck,
)
from harness.model.words import ExitCode

TESTS = """
import pytest
from toy_kernels import COUNTS


@pytest.mark.parametrize("n", range({tests}))
def test_each(n):
    COUNTS.update(["small", "large"])
"""
INTERRUPTED = """
import os, signal, time


def test_a_run_that_takes_too_long():
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(30)
"""
SANITIZER = """#!/bin/sh
if [ "$1" = --version ]; then echo "Version 2025.3.1.0 (build 1)"; exit; fi
while [ "$1" != --log-file ]; do shift; done
log=$2; shift 2
case "$*" in
  *planted_fault*) errors=$PLANTED_ERRORS;;
  *) "$@"; status=$?; errors=$TEST_ERRORS;;
esac
[ -z "$errors" ] || echo "========= Invalid __global__ write of size 4 bytes
=========     at planted+0x90
========= ERROR SUMMARY: $errors errors" > "$log"
exit $status
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"


def run(toy, *options, tests=1):
    (toy.parent / "toy_tests" / "test_toy.py").write_text(TESTS.format(tests=tests))
    out = toy.parent / "run.json"
    code = main(["kernels", "test", "--manifest", str(toy), "--out", str(out), "--quiet", *options])
    return code, KernelTestRun(**json.loads(out.read_text())) if out.exists() else None


@pytest.fixture
def memcheck(toy, monkeypatch):
    """A stand-in for compute-sanitizer that finds so many errors in the planted fault, and so many in the tests."""

    def install(planted: str, found: str) -> None:
        tool = toy.parent / "bin" / "compute-sanitizer"
        tool.parent.mkdir()
        tool.write_text(SANITIZER)
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("PLANTED_ERRORS", planted)
        monkeypatch.setenv("TEST_ERRORS", found)

    return install


def test_a_record_has_the_digest_of_every_source_that_the_tests_imported(toy):
    _, record = run(toy)
    files = ("toy_kernels.py", "toy_tests/test_toy.py")
    assert record.sources == {
        name: hashlib.sha256((toy.parent / name).read_bytes()).hexdigest() for name in files
    }


def test_data_of_an_imported_package_is_part_of_its_source(toy):
    package = toy.parent / "toy_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "table.json").write_text("{}")
    (toy.parent / "toy_tests" / "conftest.py").write_text("import toy_package\n")
    _, record = run(toy)
    assert "toy_package/table.json" in record.sources


def test_a_run_names_the_gpu_that_the_tests_saw(pretended_gpu):
    (pretended_gpu.parent / "toy_tests" / "conftest.py").write_text("import torch\n")
    assert run(pretended_gpu)[1].machine.gpu == "pretended GPU"


def test_several_processes_run_each_test_once(toy):
    code, record = run(toy, "--jobs", "3", tests=50)
    assert (code, len({test.test for test in record.tests}), len(record.tests)) == (ExitCode.ADMIT, 50, 50)


def test_processes_side_by_side_share_the_cores_among_their_threads(toy, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    jobs = 2 * available_cores()
    (toy.parent / "toy_tests" / "test_threads.py").write_text(
        'import os\n\ndef test_threads():\n    assert os.environ["OMP_NUM_THREADS"] == "1"\n'
    )
    assert run(toy, "--jobs", str(jobs), tests=1)[0] == ExitCode.ADMIT


def test_a_process_that_is_killed_is_a_fault_although_the_others_pass(toy):
    (toy.parent / "toy_tests" / "test_last.py").write_text(
        "import os, signal\n\ndef test_dies():\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert run(toy, "--jobs", "2", tests=3)[0] == ExitCode.REJECT


def test_an_interrupted_run_keeps_what_it_had_recorded_and_stays_open(toy, capsys):
    (toy.parent / "toy_tests" / "test_zlast.py").write_text(INTERRUPTED)
    code, record = run(toy, tests=2)
    assert (code, record.stopped_by, len(record.tests)) == (ExitCode.UNDECIDED, "an interrupt", 2)
    assert record.sources and "ended early: an interrupt" in capsys.readouterr().out


def test_a_process_without_a_test_to_run_is_no_fault(toy):
    assert run(toy, "--jobs", "2", tests=1)[0] == ExitCode.ADMIT


@pytest.mark.parametrize(
    ("found", "code"), [("0", ExitCode.ADMIT), ("2", ExitCode.REJECT), ("", ExitCode.UNDECIDED)]
)
def test_tests_that_pass_are_in_order_only_where_memcheck_ends_without_an_error(toy, memcheck, found, code):
    memcheck("1", found)
    assert run(toy, "--memcheck")[0] == code


def test_what_memcheck_reports_is_recorded_and_shown(toy, memcheck, capsys):
    memcheck("1", "2")
    record = run(toy, "--memcheck")[1].memcheck
    assert (record.version, record.num_errors, record.num_planted_errors) == ("2025.3.1.0", 2, 1)
    assert record.findings == ("Invalid __global__ write of size 4 bytes",)
    assert "memcheck: 2 errors in 1 processes" in capsys.readouterr().out


def test_a_memcheck_that_does_not_see_a_planted_fault_is_not_believed(toy, memcheck, capsys):
    memcheck("0", "0")
    assert run(toy, "--memcheck") == (ExitCode.UNDECIDED, None)
    assert "does not see a planted write" in capsys.readouterr().err


def test_without_compute_sanitizer_memory_stays_open(toy, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(toy.parent))
    assert run(toy, "--memcheck") == (ExitCode.UNDECIDED, None)
    assert "compute-sanitizer, which is not on the PATH" in capsys.readouterr().err


def test_a_process_that_memcheck_lost_sight_of_is_not_clean():
    assert not parse_memcheck([CLEAN, ""], 1, "").is_clean
    assert parse_memcheck([CLEAN, CLEAN], 1, "").is_clean


def test_a_record_of_a_memcheck_that_saw_no_planted_fault_does_not_parse():
    with pytest.raises(ValidationError, match="num_planted_errors"):
        MemoryCheck(version="", num_processes=1, num_ended=1, num_errors=0, num_planted_errors=0)
