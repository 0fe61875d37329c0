"""Bundles that were tampered with after they were made, brought to the gate."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from bundles.reader import read_bundle
from harness.app.cpu_tier import CpuRun
from harness.app.gate import gate
from harness.app.own_reading import OwnReading, read_commits
from harness.app.reaching import StaticQuestion
from harness.app.selftest.catalogue import CATALOGUE, Case
from harness.app.selftest.judging import answer, judge_reasons
from harness.app.selftest.workplace import Workplace
from harness.app.validate import validate
from harness.model.errors import FasttrackError
from harness.model.judgement import Judgement
from harness.model.selftest import CaseResult, CaseVerdict, Stage
from harness.model.words import Outcome, Tier
from harness.options import ChangeOptions, GateOptions, OutputOptions, ValidateOptions

_TIMEOUT_S = 900
"""Of a program; one that seals the bundle of a timed run took over a minute on two loaded cores."""
PATCH = "a_change.patch"
"""The honest change that the bundles are about, in the catalogue's folder."""


class Tampering:
    """The bundle of one honest change, and what a gate says of altered copies of it.

    Args:
        workplace: Where changes and bundles are.
        name: Of change and bundle.
        tier: How far the honest change is judged.
        collect: What is run on the CPU tier.
    """

    def __init__(
        self, workplace: Workplace, name: str, tier: Tier, collect: Callable[[CpuRun], None]
    ) -> None:
        self._workplace, self._name, self._tier, self._collect = workplace, name, tier, collect

    def prepare(self, beside: Sequence[Path] = ()) -> frozenset[str]:
        """Makes the bundle; gives what is open at the gate without tampering.

        The patches `beside` are part of the change.
        """
        repo = self._workplace.commit_on_top(self._name, [self.patch, *beside])
        validate(
            ValidateOptions(
                change=ChangeOptions(repo=repo, base="HEAD~1", tier=self._tier),
                out=self._bundle,
                output=OutputOptions(quiet=True),
            ),
            collect_cpu=self._collect,
        )
        return frozenset(self._reasons(repo, self._bundle))

    @property
    def patch(self) -> Path:
        """What the change is in any case."""
        return self._workplace.root / CATALOGUE / PATCH

    def judgement(self) -> Judgement:
        """Of the change as it is, nothing edited."""
        return read_bundle(self._bundle).judgement

    @property
    def _bundle(self) -> Path:
        return self._workplace.folder / "bundles" / self._name

    def judge(self, case: Case, started: float, open_before: frozenset[str]) -> CaseResult:
        """Lets the case's program at copies of bundle and repository, then asks the gate.

        `open_before` is what `prepare` gave.
        """
        if case.fault.stage is Stage.EVIDENCE and (undecided := open_before & set(case.fault.expected)):
            reason = f"{', '.join(sorted(undecided))} is open on this machine before anything is edited"
            return answer(case, CaseVerdict.NOT_RUN, reason=reason)
        folder = self._workplace.folder / "tampered" / case.name
        bundle, repo = folder / "bundle", folder / "repo"
        shutil.copytree(self._bundle, bundle)
        shutil.copytree(self._workplace.folder / "changes" / self._name, repo, symlinks=True)
        before = _digest_of(bundle), _digest_of_git(repo)
        command = [sys.executable, "-P", str(case.edit.resolve()), str(bundle), str(repo)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S
            )
        except subprocess.TimeoutExpired as error:
            raise FasttrackError("bad-tampering", f"{case.edit.name} of {case.id} did not end.") from error
        if done.returncode:
            raise FasttrackError(
                "bad-tampering", f"{case.edit.name} of {case.id} failed: {done.stderr[-600:]}"
            )
        if not case.is_twin and before == (_digest_of(bundle), _digest_of_git(repo)):
            raise FasttrackError("bad-tampering", f"{case.edit.name} of {case.id} forged nothing.")
        if not case.is_twin and (told := open_before & set(case.fault.expected) & _told_by(bundle)):
            names = ", ".join(sorted(told))
            message = f"{names} was open before {case.edit.name} of {case.id}, and the forged bundle says so itself."
            raise FasttrackError("bad-tampering", message)
        reasons = tuple(sorted(set(self._reasons(repo, bundle))))
        return judge_reasons(case, reasons, time.monotonic() - started, open_before=open_before)

    def _reasons(self, repo: Path, bundle: Path) -> list[str]:
        """What keeps the gate shut: slugs of what is wrong with the bundle, and required checks that are open."""
        options = GateOptions(
            bundles=(bundle,),
            repo=repo,
            base="origin/main",
            head="HEAD",
            policy=None,
            output=OutputOptions(format="json"),
        )
        read = partial(_read_once, _digest_of_git(repo))
        findings = json.loads(gate(options, read=read).text)["findings"]
        return [_name_of(f) for f in findings if not Outcome(f["outcome"]).lets_through]


_readings: dict[tuple[str, str], OwnReading] = {}


def _read_once(git: str, question: StaticQuestion) -> OwnReading:
    """What the gate reads of the commits, once a process where nobody has touched what git holds."""
    # Manifest and policy are those of the commits: the gate of a selftest is given no others.
    key = (git, question.change.model_dump_json())
    if key not in _readings:
        _readings[key] = read_commits(question)
    return _readings[key]


def _digest_of_git(repo: Path) -> str:
    """Of all from which git's objects and names of this repository come, but for what it borrows."""
    found = hashlib.sha256()
    folder = repo / ".git"
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        # The index says what is in the working tree, which the gate does not read; git writes it when it looks.
        if path != folder / "index":
            name, content = path.relative_to(folder).as_posix().encode(), path.read_bytes()
            found.update(b"%d %s %d " % (len(name), name, len(content)) + content)
    return found.hexdigest()


def _digest_of(place: Path) -> str:
    """Of all that lies in a folder, links as links; or of what stands in its place."""
    found = hashlib.sha256()
    for path in [place, *sorted(place.rglob("*"))]:
        name = path.relative_to(place).as_posix().encode("utf-8", "surrogateescape")
        is_link = path.is_symlink()
        content = bytes(path.readlink()) if is_link else path.read_bytes() if path.is_file() else b"folder"
        found.update(b"%d %s %d %d " % (len(name), name, is_link, len(content)) + content)
    return found.hexdigest()


def _told_by(bundle: Path) -> set[str]:
    """Required checks that a bundle says itself are open; none where it cannot be read."""
    try:
        checks = read_bundle(bundle).judgement.checks
    except FasttrackError:
        return set()
    return {c.check for c in checks if c.required and not c.outcome.lets_through}


def _name_of(finding: Mapping[str, str]) -> str:
    """The check, or the slug with which a bundle was refused."""
    if finding["check"] != "BUNDLE":
        return finding["check"]
    return finding["message"].rpartition("[")[2].removesuffix("]")
