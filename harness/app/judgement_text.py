"""A judgement as the commands show it, in every form that they know."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from bundles.contents import Bundle
from bundles.reader import read_bundle
from harness.app.judging import check_help
from harness.model.judgement import Judgement
from harness.options import OutputOptions
from reports.annotations import render_annotations
from reports.job_summary import render_job_summary
from reports.junit import render_junit
from reports.markdown import render_markdown
from reports.sarif import render_sarif
from reports.text import render_text
from reports.view import ReportView, build_view

PAGES = "FASTTRACK_PAGES"
"""The variable that holds the address at which the pages of the checks can be read."""


def render_judgement(
    judgement: Judgement, folder: Path, output: OutputOptions, bundle: Bundle | None = None
) -> str:
    """The judgement in the asked format; all but JSON come from the sealed bundle, which is read where it is None."""
    if output.format == "json":
        return judgement.model_dump_json(indent=2)
    view = build_view(bundle or read_bundle(folder), check_help())
    if output.format in _RENDERINGS:
        return _RENDERINGS[output.format](view)
    return (
        render_text(view, color=output.color, ascii_only=output.ascii_only)
        + f"\nReport: {folder / 'report.html'}\n"
    )


_RENDERINGS: Mapping[str, Callable[[ReportView], str]] = {
    "md": render_markdown,
    "sarif": lambda view: render_sarif(view, os.environ.get(PAGES, "")),
    "annotations": render_annotations,
    "summary": render_job_summary,
    "junit": render_junit,
}
