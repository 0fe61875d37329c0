"""A small change in a repository of its own, and bundles of it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from harness.app.attest import pack_bundle
from harness.app.validate import validate
from harness.model.words import Tier
from harness.options import ChangeOptions, OutputOptions, ValidateOptions
from tests.bundles.examples import MANIFEST_TEXT

POLICY = 'schema_version = 1\nversion = "t"\nprotected = [".github/**"]\n[required]\nstatic = ["ISO001"]\n'
WEAK_POLICY = 'schema_version = 1\nversion = "weak"\npreset = "none"\n[required]\nstatic = ["SYN001"]\n'
TITLE = "A fast path"
_EXAMPLE_TITLE = "Kimi K3 specialised decode path"


def manifest(title: str) -> str:
    """Of a subject in the folder `fast`."""
    return MANIFEST_TEXT.replace(_EXAMPLE_TITLE, title).replace("specialized_path", "fast")


@dataclass(frozen=True, slots=True)
class Subject:
    """The clone that gates: main is checked out, the change is only among the objects."""

    repo: Path

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false")
        command = ["git", "-C", str(self.repo), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    @property
    def base(self) -> str:
        return self.git("rev-parse", "main")

    def change(self, *, title: str = TITLE, parent: str = "main", **files: str) -> str:
        """A commit on `parent` that adds the manifest, one owned file, and `files`; returns its name."""
        self.git("checkout", "--quiet", "--detach", parent)
        owned = {"fasttrack.toml": manifest(title), "fast/path.py": '"""A path."""\n'}
        for name, text in {**owned, **files}.items():
            path = self.repo / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "a change")
        head = self.git("rev-parse", "HEAD")
        self.git("checkout", "--quiet", "main")
        return head

    def bundle(self, head: str, out: Path) -> Path:
        """The packed bundle of `fasttrack validate --tier static`."""
        options = ChangeOptions(repo=self.repo, base="main", head=head, tier=Tier.STATIC)
        validate(ValidateOptions(change=options, out=out, output=OutputOptions(quiet=True)))
        pack_bundle(out, None)
        return out.with_name(out.name + ".tar.gz")


def make_subject(repo: Path) -> Subject:
    """A main branch that has a policy, and once had a weak one."""
    (repo / ".github").mkdir(parents=True)
    subject = Subject(repo)
    subject.git("init", "--quiet", "--initial-branch", "main")
    for policy in (WEAK_POLICY, POLICY):
        (repo / ".github/fasttrack-policy.toml").write_text(policy)
        subject.git("add", "--all")
        subject.git("commit", "--quiet", "--message", "a policy")
    return subject
