"""The report as one HTML file: no script, no request, readable from a folder in ten years."""

from __future__ import annotations

import re
from dataclasses import replace

import jinja2

from harness.model.words import Outcome
from reports.drills.tables import Figure, Missing, Table
from reports.evidence import shrink_excerpts
from reports.marks import (
    ARM_MEANINGS,
    EXIT_CODE_MEANINGS,
    MARKS,
    OTHER_WORDS,
    QUESTIONS,
    TIER_MEANINGS,
    TIER_SUBJECTS,
    VERDICT_MEANINGS,
)
from reports.shown import Count, Length, Shown, Tally
from reports.view import ReportView

MAX_BYTES = 1_500_000
"""Above it excerpts shrink, then findings that let a check through are told in brief; tables, open findings never."""
NUM_CLAIMS_AT_TOP = 4
NUM_ASKS_AT_TOP = 3
NUM_LIMITS_AT_TOP = 5
NUM_NUMBERS_OPEN = 8
"""Numbers of a finding that are shown before the rest is folded."""
NUM_WHOLE_FINDINGS = 25
"""Of one check; the further ones are listed in brief, folded, with what they say alone."""
_FEWER_PASSING = (NUM_WHOLE_FINDINGS, 3, 0)
"""How many of a check's passing findings are whole, tried in turn on a page that is too large."""
NUM_DETAILS_IN_BRIEF = 5
"""Lines of a finding's details on a page that is too large with all of its passing findings in brief."""
NUM_ROWS_OPEN = 12
"""Rows of a drill-down's table that are shown before the rest is folded."""
_CODE = re.compile(r"`([^`\n]+)`")


def _kind(piece: object) -> str:
    """Which macro of the template renders a piece of a sentence, or a part of a drill-down."""
    match piece:
        case Shown():
            return "shown"
        case Count():
            return "count"
        case Length():
            return "length"
        case Tally():
            return "tally"
        case Table():
            return "table"
        case Figure():
            return "figure"
        case Missing():
            return "missing"
        case _:
            return "wording"


def _code_parts(text: str) -> list[tuple[str, bool]]:
    """The text in pieces, each with whether it stood between backticks; the backticks are left out."""
    return [(part, index % 2 == 1) for index, part in enumerate(_CODE.split(text)) if part]


def plain_environment() -> jinja2.Environment:
    """What every page is rendered with: escaped, and no name that is not there."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _environment() -> jinja2.Environment:
    environment = plain_environment()
    environment.filters["code_parts"] = _code_parts
    environment.tests["kind"] = lambda piece, kind: _kind(piece) == kind
    environment.globals.update(
        MARKS=MARKS,
        Outcome=Outcome,
        QUESTIONS=QUESTIONS,
        VERDICT_MEANINGS=VERDICT_MEANINGS,
        TIER_MEANINGS=TIER_MEANINGS,
        TIER_SUBJECTS=TIER_SUBJECTS,
        ARM_MEANINGS=ARM_MEANINGS,
        EXIT_CODE_MEANINGS=EXIT_CODE_MEANINGS,
        OTHER_WORDS=OTHER_WORDS,
        NUM_CLAIMS_AT_TOP=NUM_CLAIMS_AT_TOP,
        NUM_ASKS_AT_TOP=NUM_ASKS_AT_TOP,
        NUM_LIMITS_AT_TOP=NUM_LIMITS_AT_TOP,
        NUM_DETAILS_IN_BRIEF=NUM_DETAILS_IN_BRIEF,
        NUM_NUMBERS_OPEN=NUM_NUMBERS_OPEN,
        NUM_ROWS_OPEN=NUM_ROWS_OPEN,
        NUM_WHOLE_FINDINGS=NUM_WHOLE_FINDINGS,
    )
    return environment


_ENVIRONMENT = _environment()


def render_html(view: ReportView) -> str:
    """The page. The same view gives the same bytes; one that would be too large shows less, as `MAX_BYTES` says."""
    html = _render(view, NUM_WHOLE_FINDINGS)
    for num_whole_passing, is_brief in (*((number, False) for number in _FEWER_PASSING), (0, True)):
        if len(html.encode("utf-8")) <= MAX_BYTES:
            break
        html = _render(replace(view, evidence=shrink_excerpts(view.evidence)), num_whole_passing, is_brief)
    return html


def _render(view: ReportView, num_whole_passing: int, is_brief: bool = False) -> str:
    entries = {entry.id: entry for entry in view.evidence}
    return _ENVIRONMENT.get_template("report.html.j2").render(
        view=view, entries=entries, num_whole_passing=num_whole_passing, is_brief=is_brief
    )
