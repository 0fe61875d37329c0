"""The gate of a selftest reads commits anew wherever a forger has touched what git holds of them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.app.reaching import StaticQuestion
from harness.app.selftest import tampering
from harness.app.validate import read_question, static_question
from harness.options import ChangeOptions

MANIFEST = (Path(__file__).resolve().parents[4] / "fasttrack.toml").read_text(encoding="utf-8")
POLICY = 'schema_version = 1\nversion = "made"\n[required]\nstatic = ["ISO001"]\n'


def git(repo: Path, *arguments: str) -> str:
    names = ("-c", "user.name=a", "-c", "user.email=a@example.invalid")
    done = subprocess.run(["git", "-C", repo, *names, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(repo: Path, **files: str) -> str:
    for name, text in files.items():
        (repo / name).write_text(text, encoding="utf-8")
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "a change")
    return git(repo, "rev-parse", "HEAD")


@dataclass(frozen=True, slots=True)
class Gate:
    """Asks for a reading as the selftest's gate does, and counts how often commits are read."""

    repo: Path
    reads: list[str]

    def read(self, base: str = "HEAD~1") -> int:
        terms = read_question(ChangeOptions(repo=self.repo, base=base, head="HEAD"))
        tampering._read_once(tampering._digest_of_git(self.repo), static_question(terms))
        return len(self.reads)


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gate:
    reads: list[str] = []

    def read(question: StaticQuestion) -> object:
        reads.append(question.change.head)
        return object()

    monkeypatch.setattr(tampering, "read_commits", read)
    monkeypatch.setattr(tampering, "_readings", {})
    repo = tmp_path / "repo"
    (repo / ".github").mkdir(parents=True)
    git(repo, "init", "--quiet", "--initial-branch=main")
    (repo / ".github/fasttrack-policy.toml").write_text(POLICY, encoding="utf-8")
    commit(repo, **{"fasttrack.toml": MANIFEST})
    commit(repo, **{"own.py": "A = 1\n"})
    return Gate(repo, reads)


def test_what_nobody_touched_is_read_once(gate: Gate, tmp_path: Path) -> None:
    assert gate.read() == 1
    git(tmp_path, "clone", "--quiet", "--mirror", str(gate.repo), "elsewhere")
    git(gate.repo, "status")
    assert gate.read() == 1


def test_another_change_of_the_same_repository_is_read_anew(gate: Gate) -> None:
    commit(gate.repo, **{"own.py": "A = 2\n"})
    assert [gate.read(), gate.read("HEAD~2"), gate.read()] == [1, 2, 2]


def replace_object(repo: Path) -> None:
    """The same commit, whose tree git now tells otherwise."""
    head = git(repo, "rev-parse", "HEAD")
    other = commit(repo, **{"own.py": "A = 2\n"})
    git(
        repo,
        "replace",
        head,
        git(repo, "commit-tree", f"{other}^{{tree}}", "-p", f"{head}~1", "-m", "a change"),
    )
    git(repo, "reset", "--quiet", "--hard", head)


def move_the_base(repo: Path) -> None:
    commit(repo, **{"other.py": "B = 1\n"})


def edit_the_policy(repo: Path) -> None:
    commit(repo, **{".github/fasttrack-policy.toml": POLICY.replace("made", "other")})
    commit(repo, **{"own.py": "A = 1\n\n"})


def borrow_objects(repo: Path) -> None:
    (repo / ".git/objects/info/alternates").write_text("/elsewhere/objects\n", encoding="utf-8")


@pytest.mark.parametrize("forge", [replace_object, move_the_base, edit_the_policy, borrow_objects])
def test_what_somebody_touched_is_read_anew(gate: Gate, forge: Callable[[Path], None]) -> None:
    gate.read()
    forge(gate.repo)
    assert gate.read() == 2
