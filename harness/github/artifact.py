"""Bundles that workflow runs uploaded: which of them concern a commit, and how they are taken out without trust."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from harness.github.calls import Artifact, GitHub, PullRequest
from harness.model.errors import EvidenceError

KINDS = ("cpu", "gpu", "submitted")
"""By whom: the pull request's own run, the run on a GPU machine, a maintainer who took in a contributor's bundle."""
MEMBER = "bundle.tar.gz"
MAX_BYTES = 256 << 20


def artifact_name(kind: str, head_sha: str) -> str:
    """What the workflows call the artifact that holds a bundle of the commit."""
    return f"fasttrack-{kind}-{head_sha}"


def collect_bundles(github: GitHub, pull: PullRequest, head_sha: str, folder: Path) -> list[Path]:
    """Downloads the newest bundle of each kind that was uploaded for the commit.

    Anybody who may open a pull request can upload an artifact of any name. One counts when its run, as GitHub has it,
    was of the commit itself or of the base repository's default branch; it is evidence like any other, and not trusted.

    Raises:
        EvidenceError: an artifact holds anything but one bundle.
        GitHubError: GitHub did not give it.
    """
    bundles = []
    for kind in KINDS:
        found = [a for a in github.artifacts(artifact_name(kind, head_sha)) if _concerns(a, pull, head_sha)]
        if found:
            newest = max(found, key=lambda artifact: artifact.id)
            packed, bundle = folder / f"{kind}.zip", folder / f"{kind}.tar.gz"
            github.download_artifact(newest, packed, MAX_BYTES)
            take_member(packed, bundle)
            bundles.append(bundle)
    return bundles


def take_member(packed: Path, target: Path) -> None:
    """Writes the one file of an artifact's zip to `target`; no name in the zip decides where anything goes.

    Raises:
        EvidenceError: damaged, encrypted, too large, or anything but one file of the name `bundle.tar.gz`.
    """
    num_bytes = 0
    try:
        with zipfile.ZipFile(packed) as archive:
            names = archive.namelist()
            if names != [MEMBER]:
                raise _refused(f"It holds {_say_names(names)}, not {MEMBER} alone.")
            with archive.open(MEMBER) as member, target.open("wb") as file:
                while chunk := member.read(1 << 16):
                    num_bytes += len(chunk)
                    if num_bytes > MAX_BYTES:
                        raise _refused(f"It unfolds to more than {MAX_BYTES} bytes.")
                    file.write(chunk)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError) as error:
        raise _refused(f"It cannot be unpacked: {type(error).__name__}.") from error


def _concerns(artifact: Artifact, pull: PullRequest, head_sha: str) -> bool:
    run = artifact.workflow_run
    if run is None or artifact.expired or pull.base.repo is None:
        return False
    is_own = run.head_repository_id == run.repository_id == pull.base.repo.id
    return run.head_sha == head_sha or (is_own and run.head_branch == pull.base.repo.default_branch)


def _say_names(names: Sequence[str]) -> str:
    shown = ", ".join(ascii(name)[:60] for name in names[:3]) or "nothing"
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def _refused(message: str) -> EvidenceError:
    return EvidenceError("artifact-refused", f"An uploaded artifact is refused. {message}")
