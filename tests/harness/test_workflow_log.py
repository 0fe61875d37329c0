"""What a bundle says gives GitHub's runner no command, whatever is printed of it in a job."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import click
import pytest

from harness import cli
from harness.model.errors import FasttrackError
from harness.model.words import ExitCode
from harness.options import CommandResult
from harness.workflow_log import break_commands

HOSTILE = "Reason: ##[notice]Approved ##[stop-commands]x\n  ::add-mask::a\r::error::b"


def commands(text: str) -> list[str]:
    """What the runner would carry out: `ActionCommand.TryParseV2` and `TryParse` of actions/runner."""
    lines = text.replace("\r", "\n").split("\n")
    return [line for line in lines if line.lstrip().startswith("::") or "##[" in line]


def test_no_line_of_a_text_is_a_command() -> None:
    assert commands(break_commands(HOSTILE)) == []


def test_the_commands_of_annotations_stay_and_none_is_hidden_in_their_texts() -> None:
    text = "::error title=x::##[add-mask]y"
    assert break_commands(text, "annotations") == "::error title=x::## [add-mask]y"


@pytest.mark.parametrize("form", ["json", "sarif"])
def test_a_json_document_says_the_same_without_the_command(form: str) -> None:
    text = json.dumps({"reason": HOSTILE}, indent=2)
    broken = break_commands(text, form)
    assert commands(broken) == [] and json.loads(broken) == json.loads(text)


def test_an_xml_document_says_the_same_without_the_command() -> None:
    text = '<testcase name="##[add-mask]x">##[notice]y</testcase>'
    broken = ElementTree.fromstring(break_commands(text, "junit"))
    assert (broken.get("name"), broken.text) == ("##[add-mask]x", "##[notice]y")


@pytest.mark.parametrize(("job", "expected"), [("true", []), ("", HOSTILE.replace("\r", "\n").split("\n"))])
def test_the_command_line_breaks_them_in_a_job_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], job: str, expected: list[str]
) -> None:
    @click.command("say")
    def say() -> CommandResult:
        return CommandResult(text=HOSTILE, exit_code=ExitCode.ADMIT)

    monkeypatch.setenv("GITHUB_ACTIONS", job)
    monkeypatch.setitem(cli.cli.commands, "say", say)
    assert cli.main(["say"]) == ExitCode.ADMIT
    assert commands(capsys.readouterr().out) == expected


def test_an_error_that_quotes_a_bundle_gives_no_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command("break")
    def broken() -> CommandResult:
        raise FasttrackError("x", HOSTILE, HOSTILE)

    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setitem(cli.cli.commands, "break", broken)
    cli.main(["break"])
    assert commands(capsys.readouterr().err) == []
