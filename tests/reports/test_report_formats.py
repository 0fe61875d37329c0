"""Laws of `fasttrack report --format`: every form comes from the same bundle, and the exit code is the verdict's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bundles.writer import EvidenceStore, seal
from harness.app.judging import decide, render_report
from harness.cli import main
from harness.cli_options import FORMATS, REPORT_FORMATS
from harness.model.words import ExitCode
from tests.bundles.examples import CHANGE, MANIFEST_TEXT, POLICY_TEXT, evidence_to_reject


@pytest.fixture(scope="module")
def rejected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle as the judge makes it."""
    store = EvidenceStore(tmp_path_factory.mktemp("formats") / "b")
    for record in evidence_to_reject():
        store.add(record)
    seal(
        store.folder,
        manifest_text=MANIFEST_TEXT,
        policy_text=POLICY_TEXT,
        judgement=decide(MANIFEST_TEXT, POLICY_TEXT, CHANGE, store.records),
        render_report=render_report,
    )
    return store.folder


@pytest.mark.parametrize("form", REPORT_FORMATS)
def test_every_form_ends_with_the_verdicts_exit_code(
    rejected: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(rejected), "--format", form]) == ExitCode.REJECT
    assert capsys.readouterr().out.strip()


def test_the_sarif_form_is_one_document(rejected: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["report", str(rejected), "--format", "sarif"])
    assert json.loads(capsys.readouterr().out)["version"] == "2.1.0"


def test_forms_of_a_judgement_are_not_offered_where_there_is_none() -> None:
    assert set(REPORT_FORMATS) - set(FORMATS) == {"sarif", "annotations", "summary", "junit"}
    assert main(["doctor", "--format", "sarif"]) == ExitCode.USAGE
