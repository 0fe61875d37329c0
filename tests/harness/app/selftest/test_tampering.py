"""The gate of a selftest reads commits anew wherever a forger has touched what git holds of them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bundles.reader import read_bundle
from harness.app.reaching import StaticQuestion
from harness.app.selftest import tampering
from harness.app.selftest.catalogue import Case
from harness.app.selftest.workplace import Workplace
from harness.app.validate import read_question, static_question
from harness.model.errors import FasttrackError
from harness.model.selftest import CaseVerdict, FaultDescription, Stage
from harness.model.words import Principle, Tier
from harness.options import ChangeOptions
from tests.bundles.examples import changed_files, environment, plain_report, write_bundle

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


FORGES_NOTHING = "pass"
TOUCHES_THE_BUNDLE = "import sys; open(sys.argv[1] + '/more', 'w').close()"
LINKS_WHAT_WAS_A_FILE = """
import os, sys
file = sys.argv[1] + "/file"
os.rename(file, sys.argv[2] + "/file")
os.symlink(sys.argv[2] + "/file", file)
"""
COMMITS = """
import subprocess, sys
git = ["git", "-C", sys.argv[2], "-c", "user.name=a", "-c", "user.email=a@example.invalid"]
subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "more"], check=True)
"""


@pytest.mark.parametrize("program", [FORGES_NOTHING, TOUCHES_THE_BUNDLE, LINKS_WHAT_WAS_A_FILE, COMMITS])
@pytest.mark.parametrize("is_twin", [True, False])
def test_a_forger_that_leaves_all_as_it_was_has_shown_nothing(
    program: str, is_twin: bool, gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, case = forged(program, gate, tmp_path, is_twin)
    monkeypatch.setattr(tampering.Tampering, "_reasons", lambda *_: ["bundle-stale"])
    if program == FORGES_NOTHING and not is_twin:
        with pytest.raises(FasttrackError, match="forged nothing"):
            place.judge(case, 0.0, frozenset())
    else:
        found = place.judge(case, 0.0, frozenset())
        assert found.verdict is (CaseVerdict.FALSE_ALARM if is_twin else CaseVerdict.DETECTED)


@pytest.mark.parametrize("told", [set(), {"COR005"}])
def test_what_was_open_before_is_found_only_where_the_forged_bundle_hides_it(
    told: set[str], gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, case = forged(TOUCHES_THE_BUNDLE, gate, tmp_path, is_twin=False)
    monkeypatch.setattr(tampering.Tampering, "_reasons", lambda *_: ["bundle-stale", "COR005"])
    monkeypatch.setattr(tampering, "_told_by", lambda _: told)
    case = replace(case, fault=case.fault.model_copy(update={"expected": ("COR005",)}))
    if told:
        with pytest.raises(FasttrackError, match="COR005 was open before"):
            place.judge(case, 0.0, frozenset({"COR005"}))
    else:
        assert place.judge(case, 0.0, frozenset({"COR005"})).verdict is CaseVerdict.DETECTED


def test_a_bundle_tells_its_required_checks_that_are_open_and_a_broken_one_tells_none(tmp_path: Path) -> None:
    write_bundle(tmp_path / "bundle", (changed_files(), environment()), plain_report)
    required = {c.check for c in read_bundle(tmp_path / "bundle").judgement.checks if c.required}
    told = tampering._told_by(tmp_path / "bundle")
    (tmp_path / "bundle/judgement.json").unlink()
    assert told and told <= required and tampering._told_by(tmp_path / "bundle") == set()


def forged(program: str, gate: Gate, tmp_path: Path, is_twin: bool) -> tuple[tampering.Tampering, Case]:
    """A case with a program, and a place with a bundle and a repository for it."""
    work = tmp_path / "work"
    (work / "bundles/honest").mkdir(parents=True)
    (work / "bundles/honest/file").write_text("a")
    git(tmp_path, "clone", "--quiet", str(gate.repo), str(work / "changes/honest"))
    edit = tmp_path / "fault.py"
    edit.write_text(program)
    fault = FaultDescription(
        title="a fault",
        kind="a kind",
        principle=Principle.CORRECTNESS,
        tier=Tier.STATIC,
        stage=Stage.BUNDLE,
        expected=("bundle-stale",),
        twin="nothing",
    )
    place = Workplace(root=gate.repo, folder=work)
    return (
        tampering.Tampering(place, "honest", Tier.STATIC, lambda _: None),
        Case(id="a-fault", fault=fault, is_twin=is_twin, edit=edit),
    )
