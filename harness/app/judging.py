"""From evidence to judgement to report: pure, so that a bundle alone gives the same again."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import harness
from bundles.contents import Bundle
from harness.checks.registry import all_checks
from harness.config import load_manifest, load_policy
from harness.model.change import Change
from harness.model.check import CheckContext
from harness.model.evidence import AnyEvidence, evidence_set
from harness.model.judgement import Judgement
from harness.model.words import Tier
from harness.runner import judge
from reports.html import render_html
from reports.view import build_view

HARNESS_VERSION = version("fasttrack")


def decide(
    manifest_text: str, policy_text: str, change: Change, evidence: Sequence[AnyEvidence]
) -> Judgement:
    """The judgement that the evidence and the policy give; the same input gives the same bytes.

    Raises `ConfigurationError` when manifest or policy do not parse.
    """
    checks = all_checks()
    context = CheckContext(
        change=change,
        manifest=load_manifest(manifest_text),
        policy=load_policy(policy_text, known_checks=known_checks()),
        evidence=evidence_set(evidence),
    )
    return judge(context, checks, pages=pages_folder(), harness_version=HARNESS_VERSION)


def known_checks() -> dict[str, Tier]:
    """Tier by id of every check that exists."""
    return {check.id: check.tier for check in all_checks()}


def check_help() -> dict[str, tuple[str, str]]:
    """By id: the claim, and one line on how it decides."""
    return {check.id: (check.title, check.how) for check in all_checks()}


def render_report(bundle: Bundle) -> str:
    """The HTML report of a bundle."""
    return render_html(build_view(bundle, check_help()))


def pages_folder() -> Path:
    """Where the pages of the checks are: inside the installed package, or beside it in a checkout."""
    package = Path(harness.__file__).resolve().parent
    packed = package / "check_pages"
    return packed if packed.is_dir() else package.parent / "docs" / "checks"
