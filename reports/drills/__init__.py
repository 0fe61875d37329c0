"""Drill-downs: tables and figures from the evidence, and the reason for each one that cannot be shown."""

from __future__ import annotations

from collections.abc import Sequence

from bundles.contents import Bundle
from reports.checks import CheckCard
from reports.drills.arms import view_arms
from reports.drills.code import view_code
from reports.drills.evaluations import view_evaluations
from reports.drills.kernels import view_kernels
from reports.drills.numerics import view_numerics
from reports.drills.served import view_served
from reports.drills.state import view_state
from reports.drills.tables import Drill
from reports.drills.timing import view_timing


def view_drills(bundle: Bundle, cards: Sequence[CheckCard]) -> tuple[Drill, ...]:
    """Every drill-down, in the order of a reviewer's questions."""
    return (
        view_numerics(cards),
        view_evaluations(cards),
        view_served(bundle, cards),
        view_state(bundle, cards),
        view_timing(bundle, cards),
        view_kernels(bundle, cards),
        view_code(bundle, cards),
        view_arms(bundle, cards),
    )
