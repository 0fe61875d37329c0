"""The report as a value: bundle in, everything that any rendering shows out. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from bundles.contents import Bundle
from bundles.layout import CHANGE, JUDGEMENT, MANIFEST_JSON, POLICY, SUBJECT_MANIFEST
from harness.model.change import EMPTY_TREE
from harness.model.words import Verdict
from reports.checks import (
    CheckCard,
    CheckHelp,
    GridRow,
    PrincipleSection,
    view_checks,
    view_grid,
    view_sections,
)
from reports.claims import ClaimRow, Unmeasured, view_claims, view_unmeasured
from reports.drills import view_drills
from reports.drills.tables import Drill
from reports.engines import engine_limits, unchecked_engine, view_engine
from reports.evidence import (
    EnvironmentView,
    EvidenceEntry,
    Excerpt,
    evidence_anchor,
    view_environments,
    view_evidence,
)
from reports.headline import view_headline
from reports.held import HeldPrinciple, view_held
from reports.limits import Ask, Limit, view_asks, view_limits
from reports.ruling import RulingView
from reports.shown import Count, Sentence, Shown, clip, format_number, pointer, visible

SHORT_DIGEST = 10
TITLE_CHARACTERS, TIME_CHARACTERS = 120, 40
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*|\d+")
_MAP = "#map"
"""Where numbers of checks lead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What was judged, by whom, and the verdict."""

    verdict: Verdict
    """The gate's, where it spoke; waivers and trust come after the evidence."""
    reason: Sentence
    """The judgement's own sentence, check ids and numbers linked; before it, what the gate adds."""
    headline: Sentence
    """The same on a page that has to fit on one screen."""
    title: Shown
    change_id: Shown
    model: Shown
    vllm: Sentence
    """What the evidence is of, and what is declared where that is another."""
    base: Shown
    base_is_empty: bool
    """Whether the whole tree was judged as new."""
    head: Shown
    head_subject: Shown
    recorded_from: Shown | None
    recorded_to: Shown | None
    harness_version: Shown
    policy_version: Shown
    content_sha256: Shown
    required: Count
    let_through: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRow:
    """One file of the bundle."""

    path: str
    size: Shown
    sha256: Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What the report was made from, by digest."""

    content_sha256: Shown
    manifest_sha256: Shown
    policy_sha256: Shown
    merge_base: Shown
    head: Shown
    files: tuple[FileRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportView:
    """All that a rendering may show. Every text that came from a change or a model is free of control characters."""

    header: Header
    grid: tuple[GridRow, ...]
    held: tuple[HeldPrinciple, ...]
    claims: tuple[ClaimRow, ...]
    unmeasured: tuple[Unmeasured, ...]
    asks: tuple[Ask, ...]
    limits: tuple[Limit, ...]
    checks: tuple[CheckCard, ...]
    sections: tuple[PrincipleSection, ...]
    drills: tuple[Drill, ...]
    evidence: tuple[EvidenceEntry, ...]
    environments: tuple[EnvironmentView, ...]
    provenance: Provenance
    policy_text: Excerpt
    manifest_text: Excerpt
    ruling: RulingView | None
    """None in a bundle's own report: the gate speaks after it."""


def build_view(bundle: Bundle, check_help: CheckHelp, ruling: RulingView | None = None) -> ReportView:
    """The view of a bundle.

    Args:
        bundle: What is shown.
        check_help: The harness's own line on how each check decides.
        ruling: What the gate said of the bundle.
    """
    anchors = {record.id: f"#{evidence_anchor(record.id)}" for record in bundle.records}
    cards = view_checks(bundle, check_help, anchors)
    grid = view_grid(cards)
    waived = ruling.waived if ruling is not None else frozenset()
    return ReportView(
        header=_view_header(bundle, cards, grid, ruling),
        grid=grid,
        held=view_held(cards),
        claims=view_claims(cards),
        unmeasured=view_unmeasured(cards),
        asks=view_asks(card for card in cards if card.id.text not in waived),
        limits=(
            *engine_limits(bundle),
            *view_limits(bundle, cards, is_ruled=ruling is not None),
            *unchecked_engine(bundle),
        ),
        checks=cards,
        sections=view_sections(cards),
        drills=view_drills(bundle, cards),
        evidence=view_evidence(bundle),
        environments=view_environments(bundle),
        provenance=_view_provenance(bundle),
        policy_text=_whole_file(POLICY, bundle.policy_text),
        manifest_text=_whole_file(SUBJECT_MANIFEST, bundle.manifest_text),
        ruling=ruling,
    )


def _view_header(
    bundle: Bundle, cards: tuple[CheckCard, ...], grid: tuple[GridRow, ...], ruling: RulingView | None
) -> Header:
    judgement, change = bundle.judgement, bundle.change
    reason = _link_checks(visible(judgement.reason), cards)
    additions = ruling.additions if ruling is not None else ()

    def declared(key: str, text: str) -> Shown:
        return clip(Shown(text=visible(text), ref=pointer(SUBJECT_MANIFEST, "change", key)), TITLE_CHARACTERS)

    times = sorted((f.record.recorded_at, f.path) for f in bundle.evidence)
    shown_times = [
        clip(Shown(text=visible(t), ref=pointer(p, "recorded_at")), TIME_CHARACTERS) for t, p in times
    ]
    section = bundle.manifest.change
    return Header(
        verdict=Verdict(ruling.verdict.text) if ruling is not None else judgement.verdict,
        reason=(*additions, *reason),
        headline=(*additions, *view_headline(reason, cards)),
        title=declared("title", section.title),
        change_id=declared("id", section.id),
        model=declared("model", section.model),
        vllm=view_engine(bundle),
        base=_short(Shown(text=visible(change.merge_base), ref=pointer(CHANGE, "merge_base"))),
        base_is_empty=change.merge_base == EMPTY_TREE,
        head=_short(Shown(text=visible(change.head), ref=pointer(CHANGE, "head"))),
        head_subject=Shown(text=visible(change.head_subject), ref=pointer(CHANGE, "head_subject")),
        recorded_from=shown_times[0] if shown_times else None,
        recorded_to=shown_times[-1] if shown_times else None,
        harness_version=Shown(
            text=visible(judgement.harness_version), ref=pointer(JUDGEMENT, "harness_version")
        ),
        policy_version=Shown(
            text=visible(judgement.policy_version), ref=pointer(JUDGEMENT, "policy_version")
        ),
        content_sha256=_short(
            Shown(text=bundle.content_sha256, ref=pointer(MANIFEST_JSON, "content_sha256"))
        ),
        required=Count(refs=tuple(ref for row in grid for ref in row.required.refs)),
        let_through=Count(refs=tuple(ref for row in grid for ref in row.let_through.refs)),
    )


def _link_checks(reason: str, cards: tuple[CheckCard, ...]) -> Sentence:
    """The sentence in pieces, so that each check id and each number in it is a link."""
    links = {card.id.text: card.id.href for card in cards}
    ref = pointer(JUDGEMENT, "reason")
    pieces, start = [], 0
    for word in _WORD.finditer(reason):
        href = _MAP if word[0].isdigit() else links.get(word[0], "")
        if href:
            pieces += [Shown(text=reason[start : word.start()], ref=ref, is_part=True)]
            pieces += [Shown(text=word[0], ref=ref, is_part=True, href=href)]
            start = word.end()
    pieces.append(Shown(text=reason[start:], ref=ref, is_part=True))
    return tuple(piece for piece in pieces if piece.text)


def _view_provenance(bundle: Bundle) -> Provenance:
    def judged(key: str, text: str) -> Shown:
        return Shown(text=visible(text), ref=pointer(JUDGEMENT, *key.split("/")))

    judgement = bundle.judgement
    return Provenance(
        content_sha256=Shown(text=bundle.content_sha256, ref=pointer(MANIFEST_JSON, "content_sha256")),
        manifest_sha256=judged("manifest_sha256", judgement.manifest_sha256),
        policy_sha256=judged("policy_sha256", judgement.policy_sha256),
        merge_base=judged("change/merge_base", judgement.change.merge_base),
        head=judged("change/head", judgement.change.head),
        files=tuple(
            FileRow(
                path=path,
                size=Shown(
                    text=format_number(digest.size), ref=pointer(MANIFEST_JSON, "files", path, "size")
                ),
                sha256=Shown(text=digest.sha256, ref=pointer(MANIFEST_JSON, "files", path, "sha256")),
            )
            for path, digest in bundle.contents.items()
        ),
    )


def _short(shown: Shown) -> Shown:
    return replace(shown, text=shown.text[:SHORT_DIGEST], is_part=True)


def _whole_file(path: str, text: str) -> Excerpt:
    return Excerpt(text=visible(text, multiline=True), path=path, is_whole=True)
