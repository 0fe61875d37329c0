"""Laws of the command line: it starts fast, says one clear thing, and always ends with a documented code."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.cli_options import wants_color
from harness.model.errors import ConfigurationError, EvidenceError
from harness.model.words import ExitCode, Tier
from harness.options import CommandResult

USE_CASES = {
    "validate": "validate",
    "plan": "machine",
    "report": "bundles",
    "verify": "bundles",
    "gate": "gate",
    "doctor": "machine",
}
"""The module of each, below `harness.app`."""
ALLOWED = ("click", "harness", "org")
"""`org.python.core` is what the standard library's pickle asks for to see whether it runs on Jython."""
Use = Callable[[Any], CommandResult]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        *(n for n in os.environ if n.startswith("FASTTRACK_")),
        "NO_COLOR",
        "FORCE_COLOR",
        "CLICOLOR",
    ]:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Use], list[Any]]:
    """Puts one function in the place of every use case; returns the list of options that it is called with."""

    def put(function: Use) -> list[Any]:
        seen: list[Any] = []

        def called(options: Any) -> CommandResult:
            seen.append(options)
            return function(options)

        for name, module in USE_CASES.items():
            monkeypatch.setattr(import_module(f"harness.app.{module}"), name, called)
        return seen

    return put


def done(code: ExitCode = ExitCode.ADMIT, text: str = "result") -> Use:
    return lambda _options: CommandResult(text=text, exit_code=code)


def broken(error: BaseException) -> Use:
    def raise_it(_options: Any) -> CommandResult:
        raise error

    return raise_it


def imported(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True
    )
    return {
        line.rpartition("|")[2].strip()
        for line in done.stderr.splitlines()
        if line.startswith("import time:")
    }


def test_help_imports_click_the_standard_library_and_little_of_ours() -> None:
    help_needs = imported("from harness.cli import main; main(['validate', '--help'])") - imported("pass")
    foreign = {name for name in help_needs if name.partition(".")[0] not in sys.stdlib_module_names}
    assert {name for name in foreign if name.partition(".")[0] not in ALLOWED} == set()
    assert {name for name in foreign if name.startswith("harness.")} == {
        *("harness.cli", "harness.cli_options", "harness.options"),
        *(
            "harness.audit",
            "harness.cli_bundle",
            "harness.cli_sweep",
            "harness.audit.command",
            "harness.kernels",
            "harness.kernels.command",
            "harness.github",
            "harness.github.command",
        ),
        *("harness.model", "harness.model.errors", "harness.model.words", "harness.workflow_log"),
    }


def test_every_variable_that_a_help_names_can_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["validate"], ["gate"], ["bundle", "verify"], ["sweep", "run"]):
        assert main([*command, "--help"]) == 0
    named = re.findall(r"\[env:\s+([^\]\s]+)\s*\]", capsys.readouterr().out)
    assert len(named) > 10 and not [name for name in named if not re.fullmatch("[A-Z0-9_]+", name)]


def test_every_command_and_option_is_in_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(command in text for command in ("validate", "plan", "report", "bundle", "gate", "doctor"))
    assert main(["validate", "--help"]) == 0
    text = capsys.readouterr().out
    options = (
        "repo",
        "base",
        "head",
        "manifest",
        "policy",
        "out",
        "paths",
        "tier",
        "format",
        "color",
        "debug",
    )
    assert [name for name in options if f"--{name}" not in text] == []
    assert "Exit codes" in text


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert "fasttrack" in capsys.readouterr().out


@pytest.mark.parametrize("code", [c for c in ExitCode if c is not ExitCode.INTERRUPTED])
def test_the_exit_code_is_the_use_cases(use: Callable[[Use], list[Any]], code: ExitCode) -> None:
    use(done(code))
    assert main(["validate"]) == code


def test_the_result_is_on_stdout_and_nothing_else(
    use: Callable[[Use], list[Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    use(done(text="verdict: admit"))
    main(["validate"])
    assert capsys.readouterr() == ("verdict: admit\n", "")


@pytest.mark.parametrize(
    "arguments",
    [["validate"], ["plan"], ["report", "b"], ["bundle", "verify", "b"], ["gate", "b", "c"], ["doctor"]],
)
def test_every_command_reaches_its_use_case(use: Callable[[Use], list[Any]], arguments: list[str]) -> None:
    seen = use(done())
    assert main([*arguments, "--format", "md", "--quiet", "--color", "always"]) == 0
    (options,) = seen
    assert (options.output.format, options.output.quiet, options.output.color) == ("md", True, True)


def test_options_arrive_as_given(use: Callable[[Use], list[Any]]) -> None:
    seen = use(done())
    arguments = "--repo r --base empty --head h --manifest m --policy p --paths a/** --paths b/** --tier static --out o"
    main(["validate", *arguments.split()])
    change = seen[0].change
    assert (change.repo, change.base, change.head) == (Path("r"), "empty", "h")
    assert (change.manifest, change.policy, change.paths) == (Path("m"), Path("p"), ("a/**", "b/**"))
    assert (change.tier, seen[0].out) == (Tier.STATIC, Path("o"))


def test_an_option_wins_over_the_environment_and_that_over_the_default(
    use: Callable[[Use], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = use(done())
    main(["validate"])
    monkeypatch.setenv("FASTTRACK_TIER", "static")
    main(["validate"])
    main(["validate", "--tier", "gpu"])
    assert [options.change.tier for options in seen] == [Tier.CPU, Tier.STATIC, Tier.GPU]


def test_a_known_error_is_one_message_with_its_advice(
    use: Callable[[Use], list[Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    use(broken(ConfigurationError("no-manifest", "There is no manifest.", "Write one.")))
    assert main(["validate"]) == ExitCode.USAGE
    assert capsys.readouterr() == ("", "error[no-manifest]: There is no manifest.\nhelp: Write one.\n")


@pytest.mark.parametrize("way", [["--format", "json"], ["--format=json"], "environment"])
def test_with_json_an_error_is_one_document_as_well(
    use: Callable[[Use], list[Any]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    way: list[str] | str,
) -> None:
    use(broken(EvidenceError("bad-bundle", "The bundle is cut off.", "Get it again.")))
    arguments = ["bundle", "verify", "b", *(way if isinstance(way, list) else [])]
    if way == "environment":
        monkeypatch.setenv("FASTTRACK_FORMAT", "json")
    assert main(arguments) == ExitCode.HARNESS
    assert json.loads(capsys.readouterr().out) == {
        "schema_version": 1,
        "verdict": None,
        "error": {"slug": "bad-bundle", "message": "The bundle is cut off.", "advice": "Get it again."},
    }


@pytest.mark.parametrize(
    "arguments",
    [["validat"], ["validate", "--tier", "x"], ["validate", "--nope"], ["gate"], ["report"], ["bundle", "x"]],
)
def test_wrong_usage_ends_with_2_also_as_json(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--format", "json"]) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["slug"] == "usage"
    assert err.startswith("error[usage]: ")
    assert "--help" in err


def test_a_bug_of_ours_ends_with_4_and_keeps_its_traceback_in_a_file(
    use: Callable[[Use], list[Any]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    use(broken(ZeroDivisionError("oh")))
    assert main(["doctor"]) == ExitCode.HARNESS
    err = capsys.readouterr().err
    assert "error[bug]: This is a bug in fasttrack: ZeroDivisionError: oh" in err
    assert "Traceback" not in err
    (kept,) = tmp_path.iterdir()
    assert kept.name in err
    assert "Traceback" in kept.read_text(encoding="utf-8")


def test_debug_shows_the_traceback_instead(
    use: Callable[[Use], list[Any]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    use(broken(ZeroDivisionError("oh")))
    assert main(["doctor", "--debug"]) == ExitCode.HARNESS
    assert "Traceback" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_the_machines_failure_and_no_bug(
    use: Callable[[Use], list[Any]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    use(broken(OSError(28, "No space left on device", "out/raw")))
    assert main(["validate"]) == ExitCode.HARNESS
    err = capsys.readouterr().err
    assert err.startswith("error[system]: ")
    assert "No space left on device" in err


def test_an_interrupt_ends_with_130(
    use: Callable[[Use], list[Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    use(broken(KeyboardInterrupt()))
    assert main(["validate"]) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err.strip() == "interrupted"


def test_a_termination_is_an_interrupt_so_that_engines_are_stopped(use: Callable[[Use], list[Any]]) -> None:
    stopped = []

    def terminated(_options: Any) -> CommandResult:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            stopped.append(True)
        raise AssertionError("the signal did not arrive")

    before = signal.getsignal(signal.SIGTERM)
    use(terminated)
    assert main(["validate"]) == ExitCode.INTERRUPTED
    assert (stopped, signal.getsignal(signal.SIGTERM)) == ([True], before)


def test_a_second_termination_does_not_end_what_the_first_began(use: Callable[[Use], list[Any]]) -> None:
    stopped = []

    def terminated(_options: Any) -> CommandResult:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            stopped.append(True)
        raise AssertionError("the signal did not arrive")

    use(terminated)
    assert (main(["validate"]), stopped) == (ExitCode.INTERRUPTED, [True])


def test_text_from_a_change_cannot_steer_the_terminal(
    use: Callable[[Use], list[Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    use(broken(ConfigurationError("x", "a\x1b[2Jb\u202ec\nd", "e\rf")))
    main(["validate"])
    assert capsys.readouterr().err == "error[x]: a\\x1b[2Jb\\u202ec\nd\nhelp: e\\rf\n"


def test_a_reader_that_went_away_does_not_change_the_exit_code() -> None:
    code = (
        "import sys\n"
        "from harness.app import machine\n"
        "from harness.options import CommandResult\n"
        "from harness.model.words import ExitCode\n"
        "def doctor(_options):\n"
        "    sys.stdin.read()\n"
        "    return CommandResult(text='x' * 100_000, exit_code=ExitCode.REJECT)\n"
        "machine.doctor = doctor\n"
        "from harness.cli import main\n"
        "sys.exit(main(['doctor']))\n"
    )
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (ExitCode.REJECT, b"")


@pytest.mark.parametrize(
    ("choice", "environment", "is_terminal", "expected"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"FORCE_COLOR": "0"}, False, False),
        ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ("auto", {"CLICOLOR": "0"}, True, False),
        ("auto", {"CLICOLOR_FORCE": "1"}, False, True),
        ("auto", {"TERM": "dumb"}, True, False),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_colour_follows_the_option_then_the_environment_then_the_terminal(
    choice: str, environment: dict[str, str], is_terminal: bool, expected: bool
) -> None:
    assert wants_color(choice, environment, is_terminal) is expected
