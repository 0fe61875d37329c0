"""The sentence under the verdict on a page that has to fit on one screen."""

from __future__ import annotations

from collections.abc import Iterable

from harness.model.words import Tier
from reports.checks import CheckCard
from reports.marks import MARKS, WORST_FIRST
from reports.shown import Count, Piece, Sentence

MAX_NAMED = 12
"""Open checks that a sentence may name one by one."""


def view_headline(reason: Sentence, cards: Iterable[CheckCard]) -> Sentence:
    """`reason`; where it would name more checks than anybody reads, how many are open at each tier instead."""
    required = [card for card in cards if card.required]
    still_open = [card for card in required if not card.outcome.lets_through]
    if len(still_open) <= MAX_NAMED:
        return reason
    said: list[Piece] = ["Of ", _count(required), " required checks, "]
    for outcome in WORST_FIRST:
        group = [card for card in still_open if card.outcome is outcome]
        if not group:
            continue
        said += [
            "; " if len(said) > 3 else "",
            _count(group),
            f" {MARKS[outcome].word} (",
            *_tiers(group),
            ")",
        ]
    return (*said, ".")


def _tiers(cards: list[CheckCard]) -> list[Piece]:
    said: list[Piece] = []
    for tier in Tier:
        if here := [card for card in cards if card.tier is tier]:
            said += [", " if said else "", f"{tier} tier ", _count(here)]
    return said


def _count(cards: Iterable[CheckCard]) -> Count:
    return Count(refs=tuple(card.id.ref.removesuffix("/check") for card in cards))
