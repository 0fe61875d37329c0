"""How the two suites are graded, and what guessing would score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import TypeVar

from harness.graders.aime import grade_aime, parse_reference
from harness.graders.mrcr import grade_mrcr
from harness.model.evaluation import EvalRow, SuiteItem

T = TypeVar("T")
MAX_CHANCE_ROWS, MAX_OTHER_TEXTS = 100, 4
"""Rows, and other texts of each conversation, that chance is measured on: the ratio is slow on long texts."""


def grade_mrcr_item(item: SuiteItem, row: EvalRow) -> float:
    """MRCR's score of an answer."""
    return grade_mrcr(item.text, row.answer, row.prefix)


def grade_aime_item(item: SuiteItem, row: EvalRow) -> float:
    """1 for the right integer, else 0; a truncated answer is not right."""
    return float(grade_aime(item.text, row.answer, item.finish_reason).outcome == "correct")


def is_gradable(suite: str, row: EvalRow) -> bool:
    """Whether a question has messages and the reference that its suite's rule needs; other suites have their own."""
    if not row.messages:
        return False
    if suite == "mrcr":
        return bool(row.prefix) and row.answer.startswith(row.prefix) and row.answer != row.prefix
    if suite != "aime":
        return True
    try:
        parse_reference(row.answer)
    except ValueError:
        return False
    return True


def mrcr_chance(rows: Sequence[EvalRow]) -> float:
    """The mean score of the prefix followed by another text of the conversation's assistant, whichever."""
    scores = []
    for row in _spread(rows, MAX_CHANCE_ROWS):
        wanted = row.answer.removeprefix(row.prefix)
        others = [m.content for m in row.messages if m.role == "assistant" and m.content != wanted]
        chosen = _spread(others, MAX_OTHER_TEXTS)
        if chosen:
            scores.append(fmean(grade_mrcr(row.prefix + text, row.answer, row.prefix) for text in chosen))
    return fmean(scores) if scores else 0.0


def aime_chance(rows: Sequence[EvalRow]) -> float:
    """The score of always giving the commonest reference answer."""
    counts = Counter(row.answer for row in rows)
    return max(counts.values()) / len(rows) if rows else 0.0


def _spread(values: Sequence[T], count: int) -> Sequence[T]:
    """At most `count` of the values, evenly spread."""
    return values[:: max(1, -(-len(values) // count))]
