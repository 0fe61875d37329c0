"""Laws of the job summary: the first screen first, every open finding below, never longer than GitHub shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.model.words import Outcome
from reports.job_summary import MAX_BYTES, render_job_summary
from reports.markdown import render_markdown
from tests.reports.many_findings import view_of, with_findings
from tests.reports.pages import NAMES


@pytest.mark.parametrize("name", NAMES)
def test_it_begins_with_the_first_screen(examples: dict[str, Path], name: str) -> None:
    view = view_of(examples[name])
    assert render_job_summary(view).startswith(render_markdown(view))


def test_every_open_finding_has_a_row(examples: dict[str, Path]) -> None:
    text = render_job_summary(with_findings(view_of(examples["reject"]), 300, Outcome.FAIL))
    assert "<details><summary>300 open findings</summary>" in text
    assert len(re.findall(r"own/a\.py:\d+ \|", text)) == 300


def test_it_is_cut_below_githubs_limit_and_says_how_many_are_missing(examples: dict[str, Path]) -> None:
    view = with_findings(view_of(examples["reject"]), 4000, Outcome.FAIL, text="数" * 500)
    text = render_job_summary(view)
    shown = len(re.findall(r"own/a\.py:\d+ \|", text))
    assert len(text.encode()) <= MAX_BYTES
    assert f"and {4000 - shown} more, which the report holds" in text
    assert text.endswith("</details>\n")


@pytest.mark.parametrize("name", NAMES)
def test_every_row_has_as_many_cells_as_the_head(examples: dict[str, Path], name: str) -> None:
    table = render_job_summary(view_of(examples[name])).partition("<details>")[2]
    cells = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines() if line.startswith("|")}
    assert cells <= {5}
