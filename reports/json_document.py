"""The judgement as one JSON document, for tools."""

from __future__ import annotations

from bundles.json_text import render_pretty_json
from harness.model.judgement import Judgement


def render_json(judgement: Judgement) -> str:
    """The text of the bundle's `judgement.json`: `schema_version`, `verdict`, `reason`, `findings` and more."""
    return render_pretty_json(judgement).decode("utf-8")
