"""Laws of SARIF and annotations over a real judgement of a change whose files have odd names."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import jsonschema
import pytest

from bundles.reader import read_bundle
from harness.app.gate_text import render_annotations as check_run_annotations
from harness.app.judging import check_help
from harness.app.validate import validate
from harness.model.words import Tier
from harness.options import ChangeOptions, OutputOptions, ValidateOptions
from reports.annotations import render_annotations
from reports.job_summary import render_job_summary
from reports.view import ReportView, build_view
from tests.harness.checks.test_iso001_changed_paths import MANIFEST, POLICY
from tests.harness.facts.conftest import ScratchRepository

SCHEMA = json.loads((Path(__file__).parent / "schemas" / "sarif-2.1.0.json").read_text())
NAMES: tuple[bytes, ...] = tuple(
    b"judge/" + name
    for name in (
        b"with space.py",
        b"per%20cent.py",
        b"ha#sh?.py",
        b"quo\"te'.py",
        b"new\nline.py",
        b"..odd..py",
        b"a..b/...py",
        "uni\u00e9\u4e2d.py".encode(),
        b"caf\xe9.py",
        b"back\\slash.py",
        b"colon:comma,.py",
        b"::error::x.py",
        b"\x1b[31m.py",
        b"d/" * 60 + b"deep.py",
    )
)
URI = re.compile(r"[A-Za-z0-9._~/!$&'()*+,;=@%-]+")


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ReportView]:
    """The SARIF log that the command prints at the static tier, and the view of the same bundle."""
    folder = tmp_path_factory.mktemp("odd")
    repository = ScratchRepository(folder / "repository")
    repository.commit({"fasttrack.toml": MANIFEST, ".github/fasttrack-policy.toml": POLICY})
    repository.branch()
    for name in NAMES:
        path = repository.folder / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x = 1\n")
    repository.commit()
    change = ChangeOptions(repo=repository.folder, base="main", tier=Tier.STATIC)
    output = OutputOptions(format="sarif", quiet=True)
    result = validate(ValidateOptions(change=change, out=folder / "bundle", output=output))
    return json.loads(result.text), build_view(read_bundle(folder / "bundle"), check_help())


def uris(log: Any) -> list[str]:
    results = log["runs"][0]["results"]
    return [r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in results]


def test_the_log_is_valid_by_the_schema_of_the_format(judged: tuple[Any, ReportView]) -> None:
    jsonschema.validate(judged[0], SCHEMA)


def test_every_file_is_named_by_a_relative_uri_of_its_own_bytes(judged: tuple[Any, ReportView]) -> None:
    found = uris(judged[0])
    assert all(URI.fullmatch(uri) and not uri.startswith("/") for uri in found)
    assert set(NAMES) <= {unquote_to_bytes(uri) for uri in found}


def test_an_annotation_names_a_file_as_the_runner_knows_it(judged: tuple[Any, ReportView]) -> None:
    first = [line for line in render_annotations(judged[1]).splitlines() if "ISO001" in line]
    assert any(line.startswith("::error file=judge/back\\slash.py,") for line in first)
    assert any(line.startswith("::error file=judge/%3A%3Aerror%3A%3Ax.py,") for line in first)


def test_no_name_steers_the_terminal_that_shows_the_annotations(judged: tuple[Any, ReportView]) -> None:
    assert render_annotations(judged[1]).replace("\n", "").isprintable()


def test_an_annotation_of_the_check_run_names_a_file_as_github_knows_it(
    judged: tuple[Any, ReportView],
) -> None:
    paths = {annotation["path"] for annotation in check_run_annotations(judged[1])}
    assert {"judge/back\\slash.py", "judge/::error::x.py", "judge/\\x1b[31m.py"} <= paths


def test_the_job_summary_shows_what_a_name_would_hide(judged: tuple[Any, ReportView]) -> None:
    text = render_job_summary(judged[1]).replace("\n", "").replace("\u200b", "")
    assert text.isprintable() and "\\\\x1b\\[31m.py" in text
