"""Evaluations and served features: paired differences with their intervals and margins."""

from __future__ import annotations

from collections.abc import Sequence

from reports.checks import CheckCard
from reports.drills.pivot import missing_check, pivot
from reports.drills.tables import Drill, Missing, Table

SCORE_CHECKS = ("COR007", "COR008", "COR009")
SCORE_QUANTITIES = (
    "score difference",
    "A/A score difference",
    "candidate score",
    "baseline score",
    "score of guessing",
    "answers scored unlike",
    "A/A answers scored unlike",
    "answers wanted for a power of 80 %",
)
WHOLE_CHECKS = ("COR010",)
DEFECTS = ("failed", "truncated", "empty", "ending in a loop", "to a shortened prompt")
WHOLE_QUANTITIES = tuple(
    f"{prefix}extra share of answers {defect}" for defect in DEFECTS for prefix in ("", "A/A ")
)
FEATURE_CHECKS = ("SCO005",)
FEATURE_QUANTITIES = ("expected breaches without it", "specialised share")


def view_evaluations(cards: Sequence[CheckCard]) -> Drill:
    """Scores by suite and class, defects of answers, and features."""
    what = "Scores of both arms"
    parts: list[Table | Missing] = [
        pivot(
            cards,
            SCORE_CHECKS,
            SCORE_QUANTITIES,
            "Paired differences, candidate less baseline, whole and by class; single answers that differ are listed "
            "under their check",
        )
        or missing_check(cards, SCORE_CHECKS, what),
        pivot(
            cards,
            WHOLE_CHECKS,
            WHOLE_QUANTITIES,
            "Answers that are not whole, more of the candidate's than of the baseline's",
            by_finding=True,
        )
        or missing_check(cards, WHOLE_CHECKS, "Answers that are not whole"),
        pivot(
            cards,
            FEATURE_CHECKS,
            FEATURE_QUANTITIES,
            "Served features: how often a path without the feature would have been caught, and which path served",
            by_finding=True,
        )
        or missing_check(cards, FEATURE_CHECKS, "Served features"),
    ]
    return Drill(
        anchor="evaluations",
        title="Evaluations and features",
        question="Does it answer as well, in every class",
        checks=(*SCORE_CHECKS, *WHOLE_CHECKS, *FEATURE_CHECKS),
        parts=tuple(parts),
    )
