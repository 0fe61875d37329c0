"""What a forger with this tool does: a bundle changed and sealed again, so that it is consistent in itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from bundles.reader import read_bundle
from bundles.writer import EvidenceStore, seal
from harness.app.judging import decide, render_report
from harness.model.change import Change
from harness.model.evidence import AnyEvidence
from harness.model.judgement import Judgement

Records = Sequence[AnyEvidence]


def reseal(
    folder: Path,
    records: Callable[[Records], Records] = tuple,
    *,
    manifest: Callable[[str], str] = str,
    policy: Callable[[str], str] = str,
    change: Callable[[Change], Change] | None = None,
    judgement: Callable[[Judgement], Judgement] | None = None,
) -> None:
    """Writes the bundle in `folder` anew; each function takes what it held and gives what it is to hold.

    What follows from them (ids of records, judgement, report, digests) is made by the judge's own code, so that no
    list of digests gives the edit away. Raw files are left out.
    """
    bundle = read_bundle(folder)
    manifest_text, policy_text = manifest(bundle.manifest_text), policy(bundle.policy_text)
    about = change(bundle.change) if change else bundle.change
    store = EvidenceStore(folder, replace=True)
    as_read = set(map(id, bundle.records))
    for record in records(bundle.records):
        # What a program made is read anew, as a bundle's reader does, and so has an id of its own.
        store.add(record if id(record) in as_read else type(record).model_validate(record.model_dump()))
    decided = decide(manifest_text, policy_text, about, store.records)
    seal(
        folder,
        manifest_text=manifest_text,
        policy_text=policy_text,
        judgement=judgement(decided) if judgement else decided,
        render_report=render_report,
    )
