"""Laws of `fasttrack report --format`: every form comes from the same bundle, and the exit code is the verdict's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli import main
from harness.cli_options import FORMATS, REPORT_FORMATS
from harness.model.words import ExitCode


@pytest.mark.parametrize("form", REPORT_FORMATS)
def test_every_form_ends_with_the_verdicts_exit_code(
    examples: dict[str, Path], form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(examples["reject"]), "--format", form]) == ExitCode.REJECT
    assert capsys.readouterr().out.strip()


def test_the_sarif_form_is_one_document(
    examples: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["report", str(examples["reject"]), "--format", "sarif"])
    assert json.loads(capsys.readouterr().out)["version"] == "2.1.0"


def test_forms_of_a_judgement_are_not_offered_where_there_is_none() -> None:
    assert set(REPORT_FORMATS) - set(FORMATS) == {"sarif", "annotations", "summary", "junit"}
    assert main(["doctor", "--format", "sarif"]) == ExitCode.USAGE
