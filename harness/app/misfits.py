"""Where a bundle is not about the change at the gate, as the gating repository itself has it."""

from __future__ import annotations

import tempfile
from datetime import datetime, timedelta
from pathlib import Path

from bundles.contents import Bundle
from bundles.verify import Difference
from harness.app.validate import Question
from harness.model.evidence import ChangedFilesEvidence, SubjectEvidence


def find_misfits(bundle: Bundle, terms: Question, now: datetime) -> list[Difference]:
    """Where the bundle speaks of another change than the one at the gate, of a part of it, or of long ago."""
    change, found = bundle.change, []
    if change.head != terms.change.head:
        text = f"It judges {change.head[:12]}, the head is {terms.change.head[:12]}: it is stale."
        found.append(Difference(slug="bundle-stale", where="change.json#/head", message=text))
    if change.merge_base != terms.change.merge_base:
        text = f"It compares with {change.merge_base[:12]}, the merge base is {terms.change.merge_base[:12]}."
        found.append(Difference(slug="bundle-other-base", where="change.json#/merge_base", message=text))
    if change.head_subject != terms.change.head_subject:
        text = "What it says of the head's message is not what the head says."
        found.append(Difference(slug="bundle-other-head", where="change.json#/head_subject", message=text))
    if change.limited_to:
        text = "It was made with --paths and leaves out a part of the change."
        found.append(Difference(slug="bundle-of-a-part", where="change.json#/limited_to", message=text))
    if bundle.manifest_text != terms.manifest_text:
        text = "Its manifest is not the one of the head commit."
        found.append(Difference(slug="bundle-other-manifest", where="fasttrack.toml", message=text))
    records = [r for r in bundle.records if isinstance(r, ChangedFilesEvidence)]
    if len(records) != 1 or records[0].files != terms.changed_files.files or records[0].num_not_judged:
        text = "Its list of changed files is not the diff of the gating repository."
        found.append(Difference(slug="bundle-other-diff", where="evidence", message=text))
    return found + _find_other_subject(bundle, terms) + _find_expired(bundle, terms, now)


def _find_other_subject(bundle: Bundle, terms: Question) -> list[Difference]:
    """Where what the arms were given to import is not what the head commit holds."""
    records = [record for record in bundle.records if isinstance(record, SubjectEvidence)]
    if not records:
        return []
    globs = [f"{root}/**" for root in terms.manifest.paths.import_roots]
    with tempfile.TemporaryDirectory(prefix="fasttrack-gate-") as folder:
        wanted = terms.repository.export(terms.change.head, globs, Path(folder))
    found = []
    for record in records:
        paths = sorted(p for p in {*wanted, *record.files} if wanted.get(p) != record.files.get(p))
        if paths:
            shown = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
            text = f"It was made with other sources of the subject than the head's: {shown}."
            found.append(Difference(slug="bundle-other-subject", where=f"evidence {record.id}", message=text))
    return found


def _find_expired(bundle: Bundle, terms: Question, now: datetime) -> list[Difference]:
    days = terms.policy.trust.max_age_days
    if days is None:
        return []
    found = []
    for record in bundle.records:
        try:
            age = now - datetime.fromisoformat(record.recorded_at)
        except (ValueError, TypeError):
            text = f"It holds a record of no readable time: {record.recorded_at!r}."
            return [Difference(slug="bundle-expired", where="evidence", message=text)]
        found.append((age, record.recorded_at))
    if not found:
        return [Difference(slug="bundle-expired", where="evidence", message="It holds no record.")]
    (newest, newest_time), (oldest, oldest_time) = min(found), max(found)
    if oldest > timedelta(days=days):
        text = f"Its oldest record is of {oldest_time}; the policy takes {days} days."
        return [Difference(slug="bundle-expired", where="evidence", message=text)]
    if newest < timedelta(days=-1):
        text = f"It holds a record from the future, {newest_time}."
        return [Difference(slug="bundle-expired", where="evidence", message=text)]
    return []
