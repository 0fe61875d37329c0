"""The judge's rates are those of the kept report of a run, wherever they are told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.app.selftest.report import rate
from harness.app.selftest.table import render_sentence
from harness.model.selftest import STOPPED, CaseVerdict, SelftestReport, count_detected, count_twins

ROOT = Path(__file__).resolve().parents[4]
KEPT = SelftestReport.model_validate_json((ROOT / "docs/selftest.json").read_bytes())


@pytest.mark.parametrize("name", ["README.md", "docs/selftest.md", "reports/templates/provenance.html.j2"])
def test_readme_guide_and_report_tell_what_the_kept_report_counted(name: str) -> None:
    text = " ".join((ROOT / name).read_text(encoding="utf-8").split())
    assert render_sentence(KEPT) in text and text.count("seeded faults it found") == 1


def test_the_kept_rates_are_those_of_its_cases_with_a_twin_for_each_fault() -> None:
    found = (KEPT.detection, KEPT.false_alarm, KEPT.undecided)
    assert found == (
        rate(*count_detected(KEPT.cases)),
        rate(*count_twins(KEPT.cases, CaseVerdict.FALSE_ALARM)),
        rate(*count_twins(KEPT.cases, CaseVerdict.UNDECIDED)),
    )
    assert [c.id for c in KEPT.cases if c.is_twin] == [c.id for c in KEPT.cases if not c.is_twin]
    assert not KEPT.only and re.fullmatch("[0-9a-f]{40}", KEPT.commit)


def test_the_sentence_tells_every_number_and_what_was_stopped() -> None:
    """Whatever a run counts otherwise reads otherwise."""
    last = KEPT.cases[-1]
    assert not last.reason and last.is_twin
    stopped = last.model_copy(update={"verdict": CaseVerdict.NOT_RUN, "reason": STOPPED})
    others = [
        {"detection": KEPT.detection.model_copy(update={"hits": 1})},
        {"detection": KEPT.detection.model_copy(update={"low": 0.1})},
        {"false_alarm": KEPT.false_alarm.model_copy(update={"high": 0.5})},
        {"undecided": KEPT.undecided.model_copy(update={"hits": 3})},
        {"commit": "b" * 40},
        {"hardware": "another"},
        {"recorded_at": "2027-01-01T00:00:00Z"},
        {"cases": (*KEPT.cases[:-1], stopped)},
    ]
    told = {render_sentence(KEPT.model_copy(update=other)) for other in others}
    assert len(told | {render_sentence(KEPT)}) == len(others) + 1
