"""Checks as a report shows them: the map of all, and one card for each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bundles.contents import Bundle
from bundles.layout import JUDGEMENT
from harness.model.judgement import CheckSummary
from harness.model.words import Outcome, Principle, Tier
from reports.evaluation import ItemShelf
from reports.findings import FindingView, detail_room, view_finding
from reports.marks import WORST_FIRST
from reports.shown import Count, Shown, clip, pointer, visible

ID_CHARACTERS = 60
CheckHelp = Mapping[str, tuple[str, str]]
"""By check id: the claim as a sentence, and one line on how it decides. The wording is the harness's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCard:
    """One check and all that it found."""

    anchor: str
    id: Shown
    title: Shown
    how: str
    page: str
    """The documentation page, relative to the repository of fasttrack."""
    principle: Principle
    tier: Tier
    required: bool
    outcome: Outcome
    open: tuple[FindingView, ...]
    """Findings that do not let through, worst first."""
    passing: tuple[FindingView, ...]
    passing_count: Count
    evidence: tuple[str, ...]
    """Ids of the records that its findings rest on, in the order of the findings, each once."""

    @property
    def findings(self) -> tuple[FindingView, ...]:
        """All findings, worst first."""
        return self.open + self.passing


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeCount:
    """How many checks of a cell have one outcome."""

    outcome: Outcome
    count: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCell:
    """The checks of one principle at one tier; empty when there are none."""

    tier: Tier
    anchor: str
    required: tuple[OutcomeCount, ...]
    advisory: tuple[OutcomeCount, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRow:
    """One principle over the tiers that have a check."""

    principle: Principle
    cells: tuple[GridCell, ...]
    let_through: Count
    """Required checks that let the change through."""
    required: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class TierGroup:
    """The cards of one principle at one tier, in the judgement's order."""

    tier: Tier
    anchor: str
    cards: tuple[CheckCard, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrincipleSection:
    """The cards of one principle, cheapest tier first."""

    principle: Principle
    groups: tuple[TierGroup, ...]


def view_checks(bundle: Bundle, help_: CheckHelp, evidence: Mapping[str, str]) -> tuple[CheckCard, ...]:
    """A card for every check of the judgement, in its order."""
    findings: dict[str, list[tuple[int, FindingView]]] = {c.check: [] for c in bundle.judgement.checks}
    shelf, room = ItemShelf(bundle), detail_room(bundle.judgement.findings)
    for index, finding in enumerate(bundle.judgement.findings):
        view = view_finding(finding, index, evidence, shelf.view_items(finding, index), room)
        findings[finding.check].append((index, view))
    return tuple(
        _view_check(summary, index, findings[summary.check], help_)
        for index, summary in enumerate(bundle.judgement.checks)
    )


def view_grid(cards: Iterable[CheckCard]) -> tuple[GridRow, ...]:
    """The map of the report: a row a principle, a cell for each tier that has a check of any principle."""
    all_cards = tuple(cards)
    tiers = [tier for tier in Tier if any(card.tier is tier for card in all_cards)]
    return tuple(
        _view_row(principle, tiers, [card for card in all_cards if card.principle is principle])
        for principle in Principle
    )


def view_sections(cards: Iterable[CheckCard]) -> tuple[PrincipleSection, ...]:
    """The cards by principle and tier; principles and tiers without a check are left out."""
    all_cards = tuple(cards)
    sections = []
    for principle in Principle:
        groups = []
        for tier in Tier:
            group = tuple(c for c in all_cards if c.principle is principle and c.tier is tier)
            if group:
                groups.append(TierGroup(tier=tier, anchor=group_anchor(principle, tier), cards=group))
        if groups:
            sections.append(PrincipleSection(principle=principle, groups=tuple(groups)))
    return tuple(sections)


def group_anchor(principle: Principle, tier: Tier) -> str:
    """Where the report shows the checks of one principle at one tier."""
    return f"{principle}-{tier}"


def check_anchor(check: str, index: int) -> str:
    """Where the report shows a check; `index` is its place in the judgement."""
    return f"check-{check}" if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,40}", check) else f"check-at-{index}"


def _view_check(
    summary: CheckSummary, index: int, findings: list[tuple[int, FindingView]], help_: CheckHelp
) -> CheckCard:
    ranked = sorted(findings, key=lambda pair: WORST_FIRST.index(pair[1].outcome))
    passing = [(i, f) for i, f in ranked if f.outcome.lets_through]
    anchor = check_anchor(summary.check, index)
    return CheckCard(
        anchor=anchor,
        id=clip(
            Shown(
                text=visible(summary.check),
                ref=pointer(JUDGEMENT, "checks", index, "check"),
                href=f"#{anchor}",
            ),
            ID_CHARACTERS,
        ),
        title=Shown(text=visible(summary.title), ref=pointer(JUDGEMENT, "checks", index, "title")),
        how=visible(help_[summary.check][1]) if summary.check in help_ else "",
        page=f"docs/checks/{visible(summary.check)[:ID_CHARACTERS]}.md",
        principle=Principle(summary.principle),
        tier=summary.tier,
        required=summary.required,
        outcome=summary.outcome,
        open=tuple(f for _, f in ranked if not f.outcome.lets_through),
        passing=tuple(f for _, f in passing),
        passing_count=Count(refs=tuple(pointer(JUDGEMENT, "findings", i) for i, _ in passing)),
        evidence=tuple(dict.fromkeys(e.text for _, f in ranked for e in f.evidence)),
    )


def _view_row(principle: Principle, tiers: list[Tier], cards: list[CheckCard]) -> GridRow:
    required = [card for card in cards if card.required]
    return GridRow(
        principle=principle,
        cells=tuple(_view_cell(principle, tier, [c for c in cards if c.tier is tier]) for tier in tiers),
        let_through=_count(card for card in required if card.outcome.lets_through),
        required=_count(required),
    )


def _view_cell(principle: Principle, tier: Tier, cards: list[CheckCard]) -> GridCell:
    return GridCell(
        tier=tier,
        anchor=group_anchor(principle, tier),
        required=_count_outcomes(card for card in cards if card.required),
        advisory=_count_outcomes(card for card in cards if not card.required),
    )


def _count_outcomes(cards: Iterable[CheckCard]) -> tuple[OutcomeCount, ...]:
    all_cards = tuple(cards)
    counts = [(o, _count(c for c in all_cards if c.outcome is o)) for o in WORST_FIRST]
    return tuple(OutcomeCount(outcome=outcome, count=count) for outcome, count in counts if count.refs)


def _count(cards: Iterable[CheckCard]) -> Count:
    return Count(refs=tuple(card.id.ref.removesuffix("/check") for card in cards))
