"""What the gate judged, as a report's view: the bundles' evidence under the gating repository's policy and reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from bundles.archive import opened
from bundles.contents import Bundle, EvidenceFile
from bundles.error import BundleError
from bundles.files import digest_bytes
from bundles.json_text import render_pretty_json
from bundles.layout import evidence_path
from bundles.merge import Choice, list_choices, merged_records
from bundles.reader import read_bundle
from bundles.verify import verify_bundle
from harness.app.inward import InwardEvidence, collect_without_collector
from harness.app.judging import check_help, decide, render_report
from harness.app.misfits import find_misfits
from harness.app.validate import Question, static_question
from harness.model.evidence import SourceEvidence
from harness.model.words import Verdict
from reports.view import ReportView, build_view

_WORST_FIRST = (Verdict.REJECT, Verdict.UNDECIDED, Verdict.ADMIT)


def view_at_gate(places: Sequence[Path], question: Question, *, suspect: bool) -> ReportView | None:
    """The view of what the gate judges; of replicates, of the worst.

    Args:
        places: The bundles.
        question: As the gate reads it.
        suspect: Whether the gate may have refused a bundle, so that there is nothing to be shown.

    Returns:
        None where a bundle is not intact or does not fit the change.
    """
    if suspect and not all(_fits(place, question) for place in places):
        return None
    bundles = [_read(place) for place in places]
    inward = collect_without_collector(static_question(question))
    judged = [_judge(bundles, choice, question, inward) for choice in list_choices(bundles)]
    worst = min(judged, key=lambda bundle: _WORST_FIRST.index(bundle.judgement.verdict))
    return build_view(worst, check_help())


def _fits(place: Path, question: Question) -> bool:
    try:
        with opened(place) as folder:
            if not verify_bundle(folder, decide, render_report).intact:
                return False
            return not find_misfits(read_bundle(folder), question, datetime.now(UTC))
    except BundleError:
        return False


def _read(place: Path) -> Bundle:
    with opened(place) as folder:
        return read_bundle(folder)


def _judge(
    bundles: Sequence[Bundle], choice: Choice, question: Question, inward: Sequence[InwardEvidence]
) -> Bundle:
    """The bundle that the choice's evidence would make, judged as the gate judges it."""
    merged = merged_records(bundles, choice, [() for _ in bundles])
    kept = [record for record in merged if not isinstance(record, InwardEvidence | SourceEvidence)]
    records = [*kept, *inward]
    first = bundles[0]
    evidence = tuple(
        EvidenceFile(path=evidence_path(index, record.id), record=record, head="")
        for index, record in enumerate(records)
    )
    digests = {file.path: digest_bytes(render_pretty_json(file.record)) for file in evidence}
    return replace(
        first,
        manifest_text=question.manifest_text,
        policy_text=question.policy_text,
        manifest=question.manifest,
        policy=question.policy,
        evidence=evidence,
        judgement=decide(question.manifest_text, question.policy_text, first.change, records),
        contents={**first.contents, **digests},
    )
