"""`fasttrack audit`: what it prints and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from harness.audit.command import audit
from harness.model.errors import ConfigurationError
from harness.options import CommandResult
from tests.harness.audit.fixture_cases import FOLDER


def run(*arguments: str | Path) -> CommandResult:
    result = audit.main(args=[str(a) for a in arguments], prog_name="fasttrack audit", standalone_mode=False)
    assert isinstance(result, CommandResult)
    return result


ROLES = ("--role", "w=static", "--role", "out=output")
FAULT, TWIN = FOLDER / "hoisted_load_fault.ptx", FOLDER / "hoisted_load_clean.ptx"


@pytest.mark.parametrize(("path", "code"), [(TWIN, 0), (FAULT, 1)])
def test_the_exit_code_says_whether_all_is_in_order(path: Path, code: int) -> None:
    assert run(path, *ROLES).exit_code == code


def test_an_undecided_text_ends_with_three_and_a_fault_with_one_even_beside_it(tmp_path: Path) -> None:
    broken = tmp_path / "broken.ptx"
    broken.write_text(TWIN.read_text()[:-20])
    assert run(broken, *ROLES).exit_code == 3 and run(broken, FAULT, *ROLES).exit_code == 1


def test_a_file_without_a_kernel_is_undecided_and_named(tmp_path: Path) -> None:
    (tmp_path / "empty.ptx").write_text("")
    result = run(tmp_path)
    assert result.exit_code == 3 and "empty.ptx" in result.text


def test_a_folder_is_searched_and_a_folder_without_kernels_refused(tmp_path: Path) -> None:
    assert run(FOLDER, "--quiet").exit_code == 1
    with pytest.raises(ConfigurationError):
        run(tmp_path)


def test_a_name_that_is_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        run("no/such/file.ptx")


def test_json_is_one_document_with_findings_like_every_commands() -> None:
    document: Any = json.loads(run(FAULT, *ROLES, "--format", "json").text)
    (fault,) = (f for f in document["findings"] if f["outcome"] == "fail")
    assert document["schema_version"] == 1 and document["exit_code"] == 1
    assert (fault["check"], fault["principle"], fault["tier"]) == ("PDL001", "correctness", "static")
    assert fault["location"]["line"] == 31 and fault["details"] and fault["evidence"]


def test_text_shows_the_path_and_what_to_do() -> None:
    text = run(FAULT, *ROLES).text
    assert "line 31: ld.global.f32" in text and "help: Move the read after the wait" in text


def test_markdown_is_a_table_in_which_names_cannot_make_markup(tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(FAULT.read_text().replace("scale", "sc_ale"))
    assert "sc\\_ale" in run(path, "--format", "md").text


def test_roles_come_from_a_file_and_the_command_line_has_the_last_word(tmp_path: Path) -> None:
    file = tmp_path / "roles.json"
    file.write_text(
        json.dumps({"kernels": {"sc*": {"roles": {"x": "static", "w": "static", "out": "output"}}}})
    )
    assert run(FAULT, "--roles", file).exit_code == 0
    assert run(FAULT, "--roles", file, "--role", "x=activation").exit_code == 1


@pytest.mark.parametrize("text", ["{", "[1]", '{"launch": "later"}'])
def test_a_roles_file_that_cannot_be_used_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "roles.json"
    file.write_text(text)
    with pytest.raises(ConfigurationError):
        run(FAULT, "--roles", file)


def test_launch_facts_can_be_given() -> None:
    path = FOLDER / "launched_dependent_clean.ptx"
    assert run(path).exit_code == 0 and run(path, "--launch", "pdl").exit_code == 1


def test_no_input_is_a_usage_error() -> None:
    with pytest.raises(click.UsageError):
        run()


def test_each_rule_has_its_page_with_all_sections() -> None:
    from harness.audit.rules import RULES

    pages = Path(__file__).parents[3] / "docs" / "checks"
    for rule in RULES:
        text = (pages / f"{rule.id}.md").read_text()
        sections = ["Claim", "Why", "How it decides", "What it cannot see", "How to fix", "Example"]
        assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == sections


def test_machine_code_beside_its_ptx_gets_the_names_and_is_compared_with_it(tmp_path: Path) -> None:
    sass = FOLDER.parent / "sass" / "sm_90a" / "texture_clean.sass"
    (tmp_path / "k.sm_90a.ptx").write_text((FOLDER / "texture_clean.ptx").read_text())
    (tmp_path / "k.sm_90a.sass").write_text(sass.read_text())
    result = run(tmp_path, "--role", "out=output")
    assert result.exit_code == 1 and "compiler-hoisted" in result.text
    assert run(tmp_path, "--role", "out=output", "--role", "tex=static").exit_code == 0
