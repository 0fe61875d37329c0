"""One real run of the cpu tier over the path as it is in the tree, shared by the tests of this folder."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bundles.attestation import sign_bundle
from bundles.keys import make_private_key
from bundles.reader import read_bundle
from harness.app.cpu_tier import CpuRun, collect_cpu_tier
from harness.app.gate import gate
from harness.app.own_reading import OwnReading, read_commits
from harness.app.reaching import StaticQuestion
from harness.app.suite_plan import CpuSizes
from harness.app.validate import validate
from harness.model.evidence import AnyEvidence
from harness.model.judgement import Judgement
from harness.model.words import ExitCode, Tier, TrustLevel
from harness.options import ChangeOptions, CommandResult, GateOptions, OutputOptions, ValidateOptions

ROOT = Path(__file__).resolve().parents[3]
COPIED = (
    "specialized_path",
    "nano_training",
    "fasttrack.toml",
    ".github/fasttrack-policy.toml",
    "docs/kimi-k3-path.md",
    "docs/slice.md",
)
A_PART = (
    "docs/kimi-k3-path.md",
    "specialized_path/plugin.py",
    "specialized_path/runtime",
    "fasttrack.toml",
    ".github/fasttrack-policy.toml",
)
"""Enough where it matters what is said of the subject's files, and not which they are: read in a tenth of the time."""


def git(repo: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(repo), *identity, *arguments], check=True, capture_output=True)


def copy_subject(repo: Path, names: Sequence[str] = COPIED) -> Path:
    """A git repository that holds the subject, its manifest and the policy, or `names`, as they are in the tree."""
    for name in names:
        source, target = ROOT / name, repo / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, target)
    git(repo, "init", "--quiet")
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "the path as it is in the tree")
    return repo


def gate_once_the_sources_moved_on(bundle: Path, repo: Path) -> CommandResult:
    """What the gate says of a bundle, signed here, for a head whose subject has other sources."""
    copy_subject(repo)
    git(repo, "branch", "--force", "main")
    git(repo, "checkout", "--quiet", "-B", "change")
    plugin = repo / "specialized_path/plugin.py"
    plugin.write_text(plugin.read_text() + "\n# moved on\n")
    git(repo, "commit", "--quiet", "--all", "--message", "moved on")
    sign_bundle(bundle, make_private_key(), TrustLevel.MAINTAINER)
    return gate(
        GateOptions(
            bundles=(bundle,), repo=repo, base="main", head="change", policy=None, output=OutputOptions()
        )
    )


def validate_options(repo: Path, out: Path, *, tier: Tier = Tier.CPU) -> ValidateOptions:
    """Judges all of `repo`'s subject as new."""
    change = ChangeOptions(repo=repo, base="empty", paths=("specialized_path/**",), tier=tier)
    return ValidateOptions(change=change, out=out, output=OutputOptions())


@pytest.fixture(autouse=True, scope="session")
def _commits_read_once() -> Iterator[None]:
    """The gate's reading of the same commits under the same terms is kept: it follows from them, and takes seconds."""
    kept: dict[tuple[str, ...], OwnReading] = {}

    def read_once(question: StaticQuestion) -> OwnReading:
        change = question.change
        terms = (question.manifest.model_dump_json(), question.policy.model_dump_json())
        key = (change.merge_base, change.head, *terms)
        return kept.get(key) or kept.setdefault(key, read_commits(question))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harness.app.gate.read_commits", read_once)
        yield


@dataclass(frozen=True, slots=True)
class Run:
    """A finished `validate`."""

    exit_code: ExitCode
    judgement: Judgement
    evidence: tuple[AnyEvidence, ...]
    bundle: Path


CLEAN_SIZES = CpuSizes(
    num_feature_prompts=4,
    num_features_alone=1,
    num_mrcr_rows=24,
    num_aime_rows=16,
    num_aime_samples=2,
    num_control_requests=16,
    timing_pairs=5,
)
"""All of what decides in minutes, and of the served features and evaluations enough to show a fault."""


@pytest.fixture(scope="session")
def clean_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The whole job on the clean path: three engines, every suite, every timed cell."""
    repo = copy_subject(tmp_path_factory.mktemp("clean-repo"))
    out = tmp_path_factory.mktemp("clean") / "bundle"

    def collect(run: CpuRun) -> None:
        collect_cpu_tier(replace(run, sizes=CLEAN_SIZES))

    result = validate(validate_options(repo, out), collect_cpu=collect)
    bundle = read_bundle(out)
    return Run(result.exit_code, bundle.judgement, bundle.records, out)
