"""What the required checks show to hold, principle by principle, in the words of their claims."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.model.words import Outcome, Principle, Tier
from reports.checks import CheckCard
from reports.shown import Count, Shown, clip

NUM_TITLES = 2
"""Claims of one principle that are spelt out; the others are named."""
NUM_NAMES = 8
TITLE_CHARACTERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One claim that holds."""

    check: Shown
    title: Shown
    tier: Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPrinciple:
    """The required claims of one principle that hold; none at all is said, too."""

    principle: Principle
    required: Count
    first: tuple[Held, ...]
    named: tuple[Shown, ...]
    further: Count
    """Those that are neither spelt out nor named."""
    not_applicable: Count


def view_held(cards: Iterable[CheckCard]) -> tuple[HeldPrinciple, ...]:
    """An entry a principle. Claims from the dearest tier come first, and among them those with a number."""
    required = [card for card in cards if card.required]
    return tuple(_view_principle(p, [c for c in required if c.principle is p]) for p in Principle)


def _view_principle(principle: Principle, cards: list[CheckCard]) -> HeldPrinciple:
    held = sorted((c for c in cards if c.outcome is Outcome.PASS), key=_rank)
    return HeldPrinciple(
        principle=principle,
        required=_count(cards),
        first=tuple(
            Held(check=c.id, title=clip(c.title, TITLE_CHARACTERS), tier=c.tier) for c in held[:NUM_TITLES]
        ),
        named=tuple(c.id for c in held[NUM_TITLES : NUM_TITLES + NUM_NAMES]),
        further=_count(held[NUM_TITLES + NUM_NAMES :]),
        not_applicable=_count(c for c in cards if c.outcome is Outcome.NOT_APPLICABLE),
    )


def _rank(card: CheckCard) -> tuple[int, bool]:
    return -card.tier.rank, not any(finding.measurements for finding in card.findings)


def _count(cards: Iterable[CheckCard]) -> Count:
    return Count(refs=tuple(card.id.ref.removesuffix("/check") for card in cards))
