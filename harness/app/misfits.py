"""Where a bundle is not about the change at the gate, as the gating repository itself has it."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from bundles.contents import Bundle
from bundles.verify import Difference
from harness.app.kernel_tests import imported_by_tests
from harness.app.validate import Question
from harness.model.change import EMPTY_TREE
from harness.model.evidence import (
    ChangedFilesEvidence,
    DefaultOffEvidence,
    KernelCompilationEvidence,
    KernelTestsEvidence,
    SubjectEvidence,
)
from harness.model.kernel_tests import KernelTestRun


def find_misfits(bundle: Bundle, terms: Question, now: datetime) -> list[Difference]:
    """Where the bundle speaks of another change than the one at the gate, of a part of it, or of long ago."""
    change, found = bundle.change, []
    if change.head != terms.change.head:
        text = f"It judges {change.head[:12]}, the head is {terms.change.head[:12]}: it is stale."
        found.append(Difference(slug="bundle-stale", where="change.json#/head", message=text))
    if change.merge_base != terms.change.merge_base:
        text = f"It compares with {change.merge_base[:12]}, the merge base is {terms.change.merge_base[:12]}."
        found.append(Difference(slug="bundle-other-base", where="change.json#/merge_base", message=text))
    published = terms.published
    if change.head_subject != published.text(terms.change.head_subject):
        text = "What it says of the head's message is not what the head says."
        found.append(Difference(slug="bundle-other-head", where="change.json#/head_subject", message=text))
    if change.limited_to:
        text = "It was made with --paths and leaves out a part of the change."
        found.append(Difference(slug="bundle-of-a-part", where="change.json#/limited_to", message=text))
    if bundle.manifest_text != terms.manifest_text:
        text = "Its manifest is not the one of the head commit."
        found.append(Difference(slug="bundle-other-manifest", where="fasttrack.toml", message=text))
    files = published.record(terms.changed_files).files
    records = [r for r in bundle.records if isinstance(r, ChangedFilesEvidence)]
    if len(records) != 1 or records[0].files != files or records[0].num_not_judged:
        text = "Its list of changed files is not the diff of the gating repository."
        found.append(Difference(slug="bundle-other-diff", where="evidence", message=text))
    return found + _find_other_sources(bundle, terms) + _find_expired(bundle, terms, now)


def _find_other_sources(bundle: Bundle, terms: Question) -> list[Difference]:
    """Where what was imported or compiled is not what the commits hold, by the digests that the records name."""
    commits = _Commits(terms)
    found = []
    for record in bundle.records:
        match record:
            case SubjectEvidence():
                said, wanted = record.files, commits.subject("head")
            case DefaultOffEvidence():
                said, files = record.files, commits.subject(record.side)
                wanted = {path: digest for path, digest in files.items() if path.endswith(".py")}
            case KernelCompilationEvidence():
                said, wanted = record.subject_files, commits.named(record.subject_files)
            case KernelTestsEvidence():
                said = {**record.files, **_as_imports(record.imported)}
                wanted = {**commits.named(record.run.sources), **_as_imports(commits.imported(record.run))}
            case _:
                continue
        paths = sorted(p for p in {*wanted, *said} if wanted.get(p) != said.get(p))
        if paths:
            shown = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
            side = record.side if isinstance(record, DefaultOffEvidence) else "head"
            text = f"Its {record.kind} was made with other sources of the subject than the {side}'s: {shown}."
            found.append(Difference(slug="bundle-other-subject", where=f"evidence {record.id}", message=text))
    return found


def _as_imports(paths: Iterable[str]) -> dict[str, str]:
    return {f"import of {path}": "" for path in paths}


class _Commits:
    """Digests of the files of base and head, read once and only where a record names some."""

    def __init__(self, terms: Question) -> None:
        self._terms = terms
        self._text = terms.published.text
        self._subject: dict[str, Mapping[str, str]] = {}

    def subject(self, side: str) -> Mapping[str, str]:
        """All that lies below the import roots, path to sha256."""
        if side not in self._subject:
            change, roots = self._terms.change, self._terms.manifest.paths.import_roots
            commit = change.merge_base if side == "base" else change.head
            self._subject[side] = self._export(commit, [f"{root}/**" for root in roots])
        return self._subject[side]

    def named(self, names: Iterable[str]) -> Mapping[str, str]:
        """Those of `names` that the head holds, path to sha256."""
        repository, head = self._terms.repository, self._terms.change.head
        paths = {self._text(path): path for path in repository.paths(head)}
        wanted = {paths[name] for name in names if name in paths}
        contents = repository.contents(head, wanted.__contains__)
        found = {self._text(path): hashlib.sha256(content).hexdigest() for path, content in contents.items()}
        # What is left are links: the compiler was given a copy of what each points at.
        links = wanted - contents.keys()
        return {**found, **(self._export(head, sorted(links)) if links else {})}

    def imported(self, run: KernelTestRun) -> tuple[str, ...]:
        """What the run's tests import by the head's text."""
        return tuple(map(self._text, imported_by_tests(run, self._terms.repository, self._terms.change.head)))

    def _export(self, commit: str, globs: Sequence[str]) -> dict[str, str]:
        if commit == EMPTY_TREE:
            return {}
        with tempfile.TemporaryDirectory(prefix="fasttrack-gate-") as folder:
            files = self._terms.repository.export(commit, globs, Path(folder))
        return {self._text(path): digest for path, digest in files.items()}


def _find_expired(bundle: Bundle, terms: Question, now: datetime) -> list[Difference]:
    """One difference where a record is too old for the policy; whatever the policy, where its time cannot be."""
    days = terms.policy.trust.max_age_days
    found = []
    for record in bundle.records:
        try:
            age = now - datetime.fromisoformat(record.recorded_at)
        except (ValueError, TypeError):
            return [_expired(f"It holds a record of no readable time: {record.recorded_at!r}.")]
        found.append((age, record.recorded_at))
    if not found:
        return [_expired("It holds no record.")]
    (newest, newest_time), (oldest, oldest_time) = min(found), max(found)
    if newest < timedelta(days=-1):
        return [_expired(f"It holds a record from the future, {newest_time}.")]
    if days is not None and oldest > timedelta(days=days):
        return [_expired(f"Its oldest record is of {oldest_time}; the policy takes {days} days.")]
    return []


def _expired(text: str) -> Difference:
    return Difference(slug="bundle-expired", where="evidence", message=text)
