"""Laws of the SARIF form: valid by the format's own schema, honest about what was not run, within GitHub's limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.model.words import Outcome
from reports.sarif import MAX_RESULTS, render_sarif
from tests.reports.many_findings import view_of, with_findings
from tests.reports.pages import NAMES

SCHEMA = json.loads((Path(__file__).parent / "schemas" / "sarif-2.1.0.json").read_text())


def run_of(text: str) -> Any:
    return json.loads(text)["runs"][0]


@pytest.mark.parametrize("name", NAMES)
def test_every_example_is_valid_by_the_schema_of_the_format(examples: dict[str, Path], name: str) -> None:
    jsonschema.validate(json.loads(render_sarif(view_of(examples[name]))), SCHEMA)


def test_the_schema_turns_a_broken_log_down(examples: dict[str, Path]) -> None:
    log = json.loads(render_sarif(view_of(examples["reject"])))
    log["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(log, SCHEMA)


def test_a_failed_required_check_is_an_error_at_its_file(examples: dict[str, Path]) -> None:
    results = run_of(render_sarif(view_of(examples["reject"])))["results"]
    assert results[0]["level"] == "error"
    assert results[0]["locations"][0]["physicalLocation"]["artifactLocation"]["uriBaseId"] == "%SRCROOT%"


def test_a_failure_of_an_advisory_check_is_a_warning(examples: dict[str, Path]) -> None:
    view = with_findings(view_of(examples["reject"]), 1, Outcome.FAIL, required=False)
    assert run_of(render_sarif(view))["results"][0]["level"] == "warning"


def test_a_report_that_admits_has_no_result(examples: dict[str, Path]) -> None:
    assert run_of(render_sarif(view_of(examples["admit"])))["results"] == []


def test_what_was_not_run_is_a_notification_and_the_verdict_is_named(examples: dict[str, Path]) -> None:
    run = run_of(render_sarif(view_of(examples["undecided"])))
    told = [n["message"]["text"] for n in run["invocations"][0]["toolExecutionNotifications"]]
    assert any(text.startswith("not run: ") for text in told)
    assert run["properties"]["verdict"] == "undecided"


def test_a_check_that_broke_is_an_execution_that_was_not_successful(examples: dict[str, Path]) -> None:
    assert not run_of(render_sarif(view_of(examples["error"])))["invocations"][0]["executionSuccessful"]


def test_a_finding_keeps_its_fingerprint_when_its_line_moves(examples: dict[str, Path]) -> None:
    view = view_of(examples["reject"])
    before = run_of(render_sarif(with_findings(view, 1, Outcome.FAIL, text="own/a.py:12 does it")))
    after = run_of(render_sarif(with_findings(view, 1, Outcome.FAIL, text="own/a.py:99 does it")))
    other = run_of(render_sarif(with_findings(view, 1, Outcome.FAIL, text="own/a.py:12 does that")))
    prints = [r["results"][0]["partialFingerprints"] for r in (before, after, other)]
    assert prints[0] == prints[1] != prints[2]


def test_findings_alike_have_fingerprints_of_their_own(examples: dict[str, Path]) -> None:
    view = with_findings(view_of(examples["reject"]), 50, Outcome.FAIL)
    prints = {r["partialFingerprints"]["fasttrack/v1"] for r in run_of(render_sarif(view))["results"]}
    assert len(prints) == 50


def test_past_what_github_shows_the_log_says_how_many_are_missing(examples: dict[str, Path]) -> None:
    view = with_findings(view_of(examples["reject"]), MAX_RESULTS + 7, Outcome.FAIL)
    run = run_of(render_sarif(view))
    assert len(run["results"]) == MAX_RESULTS
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"].startswith("7 further findings")


def test_a_path_of_odd_characters_is_a_uri(examples: dict[str, Path]) -> None:
    text = render_sarif(view_of(examples["hostile"]))
    uris = [
        loc["physicalLocation"]["artifactLocation"]["uri"]
        for result in run_of(text)["results"]
        for loc in result["locations"]
    ]
    assert uris and not any(set(uri) & set(' "<>\n\x1b`{}|') for uri in uris)


def test_a_rule_links_to_its_checks_page(examples: dict[str, Path]) -> None:
    text = render_sarif(view_of(examples["reject"]), "https://example.org/fasttrack/docs/checks/")
    checker = jsonschema.Draft7Validator(SCHEMA, format_checker=jsonschema.FormatChecker())
    checker.validate(json.loads(text))
    rules = run_of(text)["tool"]["driver"]["rules"]
    assert [r["helpUri"] for r in rules] == [
        f"https://example.org/fasttrack/docs/checks/{r['id']}.md" for r in rules
    ]


@pytest.mark.parametrize("pages", ["", "docs/checks", "javascript:alert(1)", "https://a b", "https://a/<x>"])
def test_without_an_address_of_the_pages_no_link_is_made_up(examples: dict[str, Path], pages: str) -> None:
    rules = run_of(render_sarif(view_of(examples["reject"]), pages))["tool"]["driver"]["rules"]
    assert not any("helpUri" in rule for rule in rules)
