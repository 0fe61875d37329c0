"""What the gate judged, as a report's view: the bundles' evidence under the gating repository's policy and reading."""

from __future__ import annotations

from dataclasses import replace

from bundles.contents import EvidenceFile
from bundles.files import digest_bytes
from bundles.json_text import render_pretty_json
from bundles.layout import evidence_path
from harness.app.gate import Judged
from harness.app.judging import check_help
from harness.model.evidence import SourceEvidence
from reports.view import ReportView, build_view


def view_of(judged: Judged) -> ReportView:
    """The view of the bundle that the judged evidence would make."""
    records = [record for record in judged.records if not isinstance(record, SourceEvidence)]
    evidence = tuple(
        EvidenceFile(path=evidence_path(index, record.id), record=record, head="")
        for index, record in enumerate(records)
    )
    digests = {file.path: digest_bytes(render_pretty_json(file.record)) for file in evidence}
    question, first = judged.question, judged.first
    bundle = replace(
        first,
        manifest_text=question.manifest_text,
        policy_text=question.policy_text,
        manifest=question.manifest,
        policy=question.policy,
        evidence=evidence,
        judgement=judged.judgement,
        contents={**first.contents, **digests},
    )
    return build_view(bundle, check_help())
