"""vLLM's own decode paths, judged by what changed between two releases: what was found is what reading them finds.

The wheels are 660 MB and are not downloaded by a test. `python examples/judge_vllm_release.py --wheels FOLDER` gets
them; with `FASTTRACK_VLLM_WHEELS=FOLDER` these tests run.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from examples.judge_vllm_release import EXAMPLES, FOLDERS, RELEASES, build_repository
from harness.app.inward import InwardEvidence, collect_inward_evidence
from harness.app.reaching import engine_source, read_outside
from harness.app.validate import Question, read_question, static_question
from harness.checks.isolation.iso005_reaching_out import ReachingOut
from harness.checks.isolation.iso006_surface import Surface
from harness.model.check import CheckContext
from harness.model.evidence import HooksEvidence, ImportsEvidence, evidence_set
from harness.model.import_presets import VLLM_CORE
from harness.model.paths import PathRules
from harness.model.reach import ImportForm
from harness.model.words import Tier
from harness.options import ChangeOptions

WHEELS = Path(os.environ.get("FASTTRACK_VLLM_WHEELS", "no-wheels"))


@pytest.fixture(scope="session")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository with both releases."""
    wheels = [next(iter(WHEELS.glob(f"vllm-{release}-*.whl")), None) for release in RELEASES]
    found = [wheel for wheel in wheels if wheel is not None]
    if len(found) < len(RELEASES):
        pytest.skip("FASTTRACK_VLLM_WHEELS names no folder with the wheels of vLLM 0.32.0 and 0.33.0")
    return build_repository(found, tmp_path_factory.mktemp("releases") / "repository")


def question_of(repository: Path, name: str) -> Question:
    """What an example asks of the two releases."""
    return read_question(
        ChangeOptions(
            repo=repository,
            base="HEAD~1",
            manifest=EXAMPLES / name / "fasttrack.toml",
            policy=EXAMPLES / "release-policy.toml",
            paths=FOLDERS[name],
            tier=Tier.STATIC,
        )
    )


def read_release(repository: Path, name: str) -> tuple[tuple[InwardEvidence, ...], tuple[str, ...]]:
    """What is read for an example, and the packages of its own model."""
    question = question_of(repository, name)
    rules = PathRules(question.manifest.paths, question.policy)
    return collect_inward_evidence(static_question(question)), rules.own_models


@pytest.mark.parametrize("name", FOLDERS)
def test_hooks_reaches_and_private_uses_are_those_of_the_source(releases: Path, name: str) -> None:
    records, own_models = read_release(releases, name)
    hooks = next(r for r in records if isinstance(r, HooksEvidence))
    imports = next(r for r in records if isinstance(r, ImportsEvidence))
    found = {
        "hooks": [
            {"path": file.path, "line": hunk.head_line, "state": str(hunk.state), "guards": list(hunk.guards)}
            for file in hooks.files
            for hunk in file.hunks
            if hunk.names_subject
        ],
        "imports_of_the_subject": [
            {
                "path": reach.path,
                "line": reach.line,
                "target": reach.target,
                "form": str(reach.form),
                "guards": list(reach.guards),
            }
            for reach in imports.inward
        ],
        "private_or_forbidden": [
            {"path": use.path, "line": use.line, "target": use.target}
            for use in imports.outward
            if use.form is not ImportForm.TYPES_ONLY and VLLM_CORE.why_forbidden(use.target, own=own_models)
        ],
    }
    recorded = json.loads((EXAMPLES / name / "expected.json").read_text())
    assert found == {what: recorded[what] for what in found}


@pytest.mark.parametrize("name", FOLDERS)
def test_reaches_outside_and_settings_are_those_of_the_source(releases: Path, name: str) -> None:
    question = question_of(releases, name)
    static = static_question(question)
    context = CheckContext(
        change=question.change,
        manifest=question.manifest,
        policy=question.policy,
        evidence=evidence_set(read_outside(static, engine_source(static))),
    )
    found = {
        what: [
            {
                "path": finding.location.path,
                "line": finding.location.line,
                "target": finding.subject,
                "state": str(finding.outcome),
            }
            for finding in check.run(context)
            if finding.location is not None
        ]
        for what, check in (("reaches_outside", ReachingOut()), ("settings", Surface()))
    }
    recorded = json.loads((EXAMPLES / name / "expected.json").read_text())
    assert found == {what: recorded[what] for what in found}


@pytest.mark.parametrize("name", FOLDERS)
def test_the_recorded_findings_name_files_and_lines_only(name: str) -> None:
    """No code of vLLM is kept here."""
    recorded = json.loads((EXAMPLES / name / "expected.json").read_text())
    fields = {key for entries in recorded.values() for entry in entries for key in entry}
    assert fields <= {"path", "line", "state", "guards", "target", "form"}
