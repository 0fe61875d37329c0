"""Changes as they would come: a private repository with the subject, and a commit on top of it for each case."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.app.selftest.catalogue import CATALOGUE
from harness.model.errors import ConfigurationError, FasttrackError

_IDENTITY = (
    *("-c", "user.name=selftest", "-c", "user.email=selftest@example.invalid"),
    *("-c", "commit.gpgsign=false", "-c", "core.hooksPath=/dev/null", "-c", "core.autocrlf=false"),
)

_ALWAYS = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2026-01-01T00:00:00Z")
"""The same files make the same commit, whenever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """Folders of one selftest."""

    root: Path
    """The checkout whose files are the subject and the judge's own."""
    folder: Path

    @property
    def clean(self) -> Path:
        """The repository with the tree as it is in the checkout, in one commit."""
        return self.folder / "clean"

    def copy_tree(self) -> None:
        """Writes the clean repository; what git ignores and the catalogue itself stay out."""
        listed = _git(self.root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        for name in filter(None, listed.split("\0")):
            source, target = self.root / name, self.clean / name
            if name.startswith(f"{CATALOGUE}/") or not source.is_file():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        _git(self.clean, "init", "--quiet", "--initial-branch=main")
        _git(self.clean, "add", "--all", "--force")
        _git(self.clean, "commit", "--quiet", "--message", "the tree as it is")

    def commit_on_top(self, name: str, patches: Sequence[Path], base: Path | None = None) -> Path:
        """A repository with the patches as one commit on the clean tree, or on the clean tree with the patch `base`.

        Raises:
            FasttrackError: one no longer fits.
        """
        repo = self._clone(name)
        if base is not None:
            _commit(repo, [base], "what the change is made on")
        _commit(repo, patches, "a change")
        return repo

    def _clone(self, name: str) -> Path:
        repo = self.folder / "changes" / name
        repo.parent.mkdir(exist_ok=True)
        _git(self.folder, "clone", "--quiet", "--shared", str(self.clean), str(repo))
        return repo

    def group(self, name: str, patches: Iterable[Path]) -> list[list[Path]]:
        """Patches in groups of those that fit the clean tree together; one that never fits is alone."""
        repo = self._clone(name)
        groups: list[list[Path]] = []
        waiting = list(patches)
        while waiting:
            _git(repo, "reset", "--quiet", "--hard", "origin/main")
            fitting = [p for p in waiting if _fits(repo, p)] or waiting[:1]
            groups.append(fitting)
            waiting = [p for p in waiting if p not in fitting]
        return groups


def _commit(repo: Path, patches: Sequence[Path], message: str) -> None:
    for patch in patches:
        try:
            _apply(repo, patch)
        except FasttrackError as error:
            raise FasttrackError("bad-patch", f"{patch} no longer fits: {error.message}") from error
    _git(repo, "commit", "--quiet", "--message", message)


def _apply(repo: Path, patch: Path) -> None:
    """Where another patch has changed the lines around, merges both, if neither is in the other's way."""
    _git(repo, "apply", "--3way", str(patch.resolve()))


def _fits(repo: Path, patch: Path) -> bool:
    """Applies a patch on top of those before, if it can be."""
    try:
        _apply(repo, patch)
    except FasttrackError:
        _git(repo, "reset", "--quiet", "--hard")
        return False
    _git(repo, "commit", "--quiet", "--allow-empty", "--message", "one more")
    return True


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *_IDENTITY, *arguments],
        cwd=folder,
        env=os.environ | _ALWAYS,
        capture_output=True,
        text=True,
        errors="surrogateescape",
    )
    if done.returncode:
        raise FasttrackError("git", f"git {arguments[0]}: {done.stderr.strip()[:600]}")
    return done.stdout


def find_root(repo: Path) -> Path:
    """The top of the checkout that `repo` is in."""
    try:
        return Path(_git(repo, "rev-parse", "--show-toplevel").strip())
    except FasttrackError as error:
        raise ConfigurationError("no-repository", f"{repo} is in no git repository.") from error


def changed_paths(repo: Path) -> frozenset[str]:
    """What the newest commit changes."""
    return frozenset(filter(None, _git(repo, "diff", "--name-only", "-z", "HEAD~1", "HEAD").split("\0")))


def head_of(repo: Path) -> str:
    """The commit that a checkout is at, with a mark when its files differ from it."""
    is_changed = bool(_git(repo, "status", "--porcelain").strip())
    return _git(repo, "rev-parse", "HEAD").strip() + ("+" if is_changed else "")
