"""The commands: what a workflow's step calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import cli
from harness.model.words import ExitCode
from tests.harness.github.events import pull_request_event, workflow_run_event, written
from tests.harness.github.server import REPOSITORY, TOKEN, FakeGitHub
from tests.harness.github.subject import Subject, make_subject


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Subject, str, Path]:
    folder = tmp_path_factory.mktemp("command")
    subject = make_subject(folder / "repo")
    head = subject.change()
    return subject, head, subject.bundle(head, folder / "b")


def workflow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, made: tuple[Subject, str, Path], server: FakeGitHub
) -> None:
    """The environment of a step, as the runner makes it."""
    variables = {
        "GITHUB_TOKEN": TOKEN,
        "GITHUB_REPOSITORY": REPOSITORY,
        "GITHUB_EVENT_PATH": str(written(tmp_path, workflow_run_event(made[1]))),
        "GITHUB_EVENT_NAME": "workflow_run",
        "GITHUB_API_URL": server.url,
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_RUN_ID": "77",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(made[0].repo)
    server.add_pull(12, made[1], made[0].base)


def test_publish_needs_nothing_but_the_runners_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, made: tuple[Subject, str, Path], server: FakeGitHub
) -> None:
    workflow(monkeypatch, tmp_path, made, server)
    assert cli.main(["github", "publish", "--bundle", str(made[2])]) == ExitCode.ADMIT
    assert server.checks[1]["conclusion"] == "success" and (tmp_path / "summary.md").exists()
    assert server.checks[1]["details_url"] == f"https://github.com/{REPOSITORY}/actions/runs/77"


def test_publish_without_a_token_writes_nothing_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    made: tuple[Subject, str, Path],
    server: FakeGitHub,
    capsys: pytest.CaptureFixture[str],
) -> None:
    workflow(monkeypatch, tmp_path, made, server)
    monkeypatch.delenv("GITHUB_TOKEN")
    assert cli.main(["github", "publish"]) == ExitCode.USAGE
    assert "no-token" in capsys.readouterr().err and not server.requests


@pytest.mark.parametrize("debug", [(), ("--debug",)])
def test_a_crash_tells_nobody_the_token(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    made: tuple[Subject, str, Path],
    server: FakeGitHub,
    capsys: pytest.CaptureFixture[str],
    debug: tuple[str, ...],
) -> None:
    workflow(monkeypatch, tmp_path, made, server)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("FASTTRACK_DEBUG", "1" if debug else "")
    monkeypatch.setattr("harness.app.publishing.rule", lambda _: 1 // 0)
    assert cli.main(["github", "publish", "--bundle", str(made[2])]) == ExitCode.HARNESS
    out = capsys.readouterr()
    crashes = "".join(file.read_text() for file in tmp_path.glob("fasttrack-crash-*"))
    assert "ZeroDivisionError" in out.err and TOKEN not in out.out + out.err + crashes


def test_the_gate_takes_a_pull_requests_event(tmp_path: Path, made: tuple[Subject, str, Path]) -> None:
    event = written(tmp_path, pull_request_event(made[1], base=made[0].base))
    arguments = ["gate", str(made[2]), "--repo", str(made[0].repo), "--pr", str(event)]
    assert cli.main(arguments) == ExitCode.ADMIT


def test_the_gate_finds_a_bundle_of_another_head_than_the_events_stale(
    tmp_path: Path, made: tuple[Subject, str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    moved = made[0].change(**{"fast/path.py": '"""Moved."""\n'})
    event = written(tmp_path, pull_request_event(moved, base=made[0].base))
    arguments = ["gate", str(made[2]), "--repo", str(made[0].repo), "--pr", str(event)]
    assert cli.main(arguments) == ExitCode.HARNESS and "stale" in capsys.readouterr().out
