"""What a user gets wrong is said at once, as a mistake of the command or its files; what a machine lacks, as open."""

from pathlib import Path

import pytest

from harness.cli import main
from harness.model.words import ExitCode

COMMANDS = ("list", "compile", "test", "bench", "tune")


def run(toy: Path, command: str, *options: str) -> int:
    return main(["kernels", command, "--manifest", str(toy), "--quiet", *options])


def break_subject(toy: Path, text: str) -> None:
    (toy.parent / "toy_kernels.py").write_text(text)


@pytest.mark.parametrize("command", ["bench", "tune"])
def test_timing_without_a_gpu_is_open_and_says_what_is_needed(without_gpu, command, capsys):
    assert run(without_gpu, command) == ExitCode.UNDECIDED
    said = capsys.readouterr()
    assert (said.out, "needs a CUDA GPU" in said.err) == ("", True)


def test_timing_without_pytorch_is_open_as_well(toy, capsys):
    (toy.parent / "torch.py").write_text("raise ImportError('no torch here')\n")
    assert run(toy, "bench") == ExitCode.UNDECIDED
    assert "no torch here" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["bench", "tune"])
def test_a_glob_that_names_nothing_is_refused_before_the_gpu_is_touched(toy, command, capsys):
    (toy.parent / "torch.py").write_text("raise RuntimeError('touched')\n")
    assert run(toy, command, "--match", "typo*") == ExitCode.USAGE
    assert "'typo*'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["compile", "test"])
def test_a_glob_that_names_no_variant_is_refused(toy, command, capsys):
    assert run(toy, command, "--match", "typo*") == ExitCode.USAGE
    assert "none of 2 variants" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_record_that_cannot_be_written_is_refused_before_anything_runs(toy, command, capsys):
    break_subject(toy, "raise RuntimeError('it ran')\n")
    assert run(toy, command, "--out", str(toy.parent)) == ExitCode.USAGE
    assert "--out" in capsys.readouterr().err


def test_a_run_that_fails_leaves_an_earlier_record_as_it_was(toy):
    break_subject(toy, "raise RuntimeError\n")
    out = toy.parent / "run.json"
    out.write_text("earlier")
    run(toy, "list", "--out", str(out))
    assert out.read_text() == "earlier"


def test_a_run_that_fails_leaves_no_empty_record(toy):
    break_subject(toy, "raise RuntimeError\n")
    run(toy, "list", "--out", str(toy.parent / "run.json"))
    assert not (toy.parent / "run.json").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a Linux device")
def test_a_disk_that_fills_up_during_the_run_loses_the_record_and_not_the_result(toy, capsys):
    assert run(toy, "list", "--out", "/dev/full") == ExitCode.HARNESS
    said = capsys.readouterr()
    assert "small" in said.out and "was not written" in said.err


@pytest.mark.parametrize(
    "name", ["nowhere:variants", "toy_kernels.deep:variants", "toy_kernels:nothing", "toy_kernels:COUNTS"]
)
def test_an_inventory_that_names_no_function_is_a_mistake_in_the_manifest(toy, name, capsys):
    toy.write_text(toy.read_text().replace("toy_kernels:variants", name))
    assert run(toy, "list") == ExitCode.USAGE
    assert name in capsys.readouterr().err


def test_a_counter_of_launches_that_is_not_there_is_a_mistake_in_the_manifest(toy, capsys):
    toy.write_text(toy.read_text().replace("toy_kernels:launch_counts", "toy_kernels:counts"))
    assert run(toy, "test") == ExitCode.USAGE
    assert "toy_kernels:counts" in capsys.readouterr().err


@pytest.mark.parametrize("python", ["/nope", "/", "/bin/false", "/bin/true"])
def test_an_interpreter_that_is_none_is_refused(toy, python, capsys):
    assert run(toy, "list", "--python", python) == ExitCode.USAGE
    assert f"--python: {python} is no Python" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["list", "compile"])
@pytest.mark.parametrize("text", ["import no_dsl\n", "def variants():\n    import no_dsl\n"])
def test_an_interpreter_without_what_the_kernels_import_is_refused_in_a_line(toy, command, text, capsys):
    break_subject(toy, text)
    assert run(toy, command) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "has no module 'no_dsl'" in said and "Traceback" not in said


@pytest.mark.parametrize("words", [("nofile.py",), ("-p", "no_such_plugin"), ("--no-such-option",)])
def test_arguments_that_pytest_does_not_take_are_a_mistake_of_the_command(toy, words):
    assert run(toy, "test", *words) == ExitCode.USAGE


def test_an_interpreter_without_pytest_is_no_failure_of_the_tests(toy):
    (toy.parent / "pytest.py").write_text("raise SystemExit('no pytest here')\n")
    assert run(toy, "test") == ExitCode.USAGE
