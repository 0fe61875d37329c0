"""How far the arms' numbers are apart: heat tables over batches and contexts."""

from __future__ import annotations

from collections.abc import Sequence

from harness.model.words import Outcome
from reports.checks import CheckCard
from reports.drills.pivot import missing_check, pivot
from reports.drills.tables import Drill, Missing, Table

TOKEN_CHECKS = ("COR001", "SCO003")
TOKEN_QUANTITIES = ("mean KL", "p99.9 of KL", "confident flips")
ANSWER_CHECKS = ("ISO002", "COR002", "SCO001")
ANSWER_QUANTITIES = ("agreement difference", "largest log-probability difference")


def view_numerics(cards: Sequence[CheckCard]) -> Drill:
    """Next-token distributions by batch, answers by concurrency, and what nothing here compares."""
    by_batch = pivot(
        cards,
        TOKEN_CHECKS,
        TOKEN_QUANTITIES,
        "Next-token distributions against the baseline's, by the batch that made them and at full context; the "
        "shade says how much of its limit a number uses up",
        by_finding=True,
        heat=True,
    )
    answers = pivot(cards, ANSWER_CHECKS, ANSWER_QUANTITIES, "Whole answers against the baseline's")
    parts: tuple[Table | Missing, ...] = (
        by_batch or missing_check(cards, TOKEN_CHECKS, "Next-token distributions by batch and context"),
        answers or missing_check(cards, ANSWER_CHECKS, "Whole answers against the baseline's"),
        Missing(
            what="Distributions by context length below the full context",
            outcome=Outcome.NOT_RUN,
            reason=("no check splits them so; batches are split, and the full context is a row of its own.",),
        ),
        Missing(
            what="Each kernel against its reference, by shape and type",
            outcome=Outcome.NOT_RUN,
            reason=(
                "no record of kernel tests is in a bundle yet; the change's own tests compare them on a GPU.",
            ),
        ),
    )
    return Drill(
        anchor="numerics",
        title="Numerics",
        question="How far the numbers are apart, and where",
        checks=(*TOKEN_CHECKS, *ANSWER_CHECKS),
        parts=parts,
    )
