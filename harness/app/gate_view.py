"""What the gate judged, as a report: the bundles' evidence under the gating repository's policy and reading."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bundles.contents import Bundle, EvidenceFile, head_of
from bundles.files import digest_bytes, write_atomic
from bundles.json_text import render_evidence_json, render_pretty_json
from bundles.layout import (
    CHANGE,
    JUDGEMENT,
    MANIFEST_JSON,
    POLICY,
    REPORT,
    SUBJECT_MANIFEST,
    BundleManifest,
    content_digest,
    evidence_path,
)
from bundles.writer import require_outside
from harness.app.gate_json import gate_document, render_gate_json
from harness.app.judging import check_help
from harness.app.ruling import Judged, Ruling
from harness.model.errors import ConfigurationError
from harness.model.evidence import SourceEvidence
from reports.html import render_html
from reports.ruling import GATE_JSON, view_ruling
from reports.view import ReportView, build_view


def view_of(ruling: Ruling) -> ReportView | None:
    """The view of the bundle that the judged evidence would make, with the gate's word; None where none was judged."""
    if ruling.judged is None:
        return None
    bundle, _ = _as_bundle(ruling.judged)
    return build_view(bundle, check_help(), view_ruling(gate_document(ruling)))


def write_gate_folder(ruling: Ruling, folder: Path) -> None:
    """Writes the gate's document and, where something was judged, the report with the files that it points into.

    It is no bundle: the report shows what came after the bundles.

    Raises:
        ConfigurationError: the folder holds something, or lies in a bundle.
    """
    require_outside(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError("out-not-empty", f"{folder} is not empty.", "Give a new folder with --out.")
    write_atomic(folder / GATE_JSON, render_gate_json(ruling).encode("utf-8") + b"\n")
    if ruling.judged is None:
        return
    bundle, files = _as_bundle(ruling.judged)
    view = build_view(bundle, check_help(), view_ruling(gate_document(ruling)))
    for path, data in (files | {REPORT: render_html(view).encode("utf-8")}).items():
        write_atomic(folder / path, data)


def _as_bundle(judged: Judged) -> tuple[Bundle, dict[str, bytes]]:
    """The evidence as a bundle, and its files by path."""
    question = judged.question
    records = [record for record in judged.records if not isinstance(record, SourceEvidence)]
    evidence = {evidence_path(index, r.id): render_evidence_json(r) for index, r in enumerate(records)}
    files = {
        SUBJECT_MANIFEST: question.manifest_text.encode("utf-8"),
        POLICY: question.policy_text.encode("utf-8"),
        CHANGE: render_pretty_json(judged.judgement.change),
        JUDGEMENT: render_pretty_json(judged.judgement),
        **evidence,
    }
    contents = {path: digest_bytes(files[path]) for path in sorted(files)}
    digest = content_digest(contents)
    files[MANIFEST_JSON] = render_pretty_json(
        BundleManifest(
            harness_version=judged.judgement.harness_version,
            change=judged.judgement.change,
            content_sha256=digest,
            files=contents,
        )
    )
    bundle = replace(
        judged.first,
        manifest_text=question.manifest_text,
        policy_text=question.policy_text,
        manifest=question.manifest,
        policy=question.policy,
        evidence=tuple(
            EvidenceFile(path=path, record=record, head=head_of(files[path]))
            for path, record in zip(evidence, records, strict=True)
        ),
        judgement=judged.judgement,
        contents=contents,
        content_sha256=digest,
    )
    return bundle, files
