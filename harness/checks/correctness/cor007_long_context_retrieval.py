"""COR007: texts are retrieved from long conversations as well as by the baseline (MRCR)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.checks.joins.eval_control import decide_control, find_control, void_without_control
from harness.checks.joins.eval_difference import (
    Question,
    cell_measurements,
    compare,
    decide_counted,
    decide_difference,
    decide_length,
    decide_range,
)
from harness.checks.joins.eval_grades import grade_mrcr_item, mrcr_chance
from harness.checks.joins.eval_scores import ScoredItem, SuiteScores, score_suite
from harness.checks.joins.ruling import Ruling, combine_rulings, finding_of
from harness.model.check import BaseCheck, CheckContext
from harness.model.finding import Finding
from harness.model.words import Outcome, Principle, Tier

SUITE = "mrcr"


class LongContextRetrieval(BaseCheck):
    """Paired difference of the MRCR score, clustered by conversation: whole, and by length bin."""

    id = "COR007"
    title = "Long-context retrieval (MRCR) scores no worse than the baseline's, in all and by length"
    principle = Principle.CORRECTNESS
    tier = Tier.CPU
    requires = ("COR005",)
    how = (
        "Grades every answer again from its text; paired score test over whole conversations against the margin, a "
        "second baseline beside it; only answers that the specialised path made count."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """One finding for all rows, and one for each length bin that gates or is clearly worse."""
        scores = score_suite(context, SUITE, grade_mrcr_item, self.tier)
        if isinstance(scores, Ruling):
            return [finding_of(self, "MRCR", scores)]
        control = find_control(context, SUITE, self.tier)
        evidence = scores.evidence_ids
        if not isinstance(control, Ruling):
            evidence = (*evidence, control.record.id)
            control = decide_control(context, control, grade_mrcr_item, context.policy.evals.mrcr_margin)
        void = void_without_control(control, SUITE)
        whole = decide_all_rows(context, scores, void)
        bins = decide_bins(context, scores, void)
        return [
            finding_of(self, "all rows", whole, evidence),
            *(finding_of(self, f"rows of {name}", ruling, evidence) for name, ruling in bins.items()),
        ]


def decide_all_rows(context: CheckContext, scores: SuiteScores, void: Ruling | None) -> Ruling:
    """All rows together, needles and lengths pooled."""
    question = question_of(context, scores, f"all rows of {SUITE}")
    rulings = [decide_group(context, scores, scores.counted, question)] if scores.counted else []
    rulings += [*scores.problems, decide_counted(scores, question), decide_length(scores)]
    if void is not None:
        rulings.append(void)
    whole = combine_rulings(rulings)
    return replace(whole, measurements=(*whole.measurements, *cell_measurements(scores, question)))


def decide_bins(context: CheckContext, scores: SuiteScores, void: Ruling | None) -> dict[str, Ruling]:
    """By length bin: those with enough rows gate; a smaller one is heard when it is worse, at alpha over all bins."""
    by_bin: dict[str, list[ScoredItem]] = {}
    for item in scores.items:
        by_bin.setdefault(item.row.bin or "no bin", []).append(item)
    found: dict[str, Ruling] = {}
    for name, items in by_bin.items() if len(by_bin) > 1 else ():
        counted = [item for item in items if item.counts]
        question = question_of(context, scores, f"rows of {name}")
        if not counted:
            message = f"None of the {len(items)} answers of {name} was made by the specialised path."
            found[name] = Ruling(outcome=Outcome.INCONCLUSIVE, message=message)
        elif len(counted) >= context.policy.evals.min_gating_rows:
            ruling = decide_group(context, scores, counted, question)
            found[name] = ruling if void is None else combine_rulings([ruling, void])
        else:
            strict = replace(question, alpha=question.alpha / len(by_bin))
            ruling = decide_group(context, scores, counted, strict)
            if ruling.outcome is Outcome.FAIL:
                found[name] = ruling
    return found


def decide_group(
    context: CheckContext, scores: SuiteScores, items: Sequence[ScoredItem], question: Question
) -> Ruling:
    """The difference of a group, void where its baseline guesses or makes no mistakes."""
    policy = context.policy.evals
    chosen = {item.row.row for item in items}
    rows = [row for row in scores.eval_set.rows if row.row in chosen]
    difference = decide_difference(compare(items, [i.cluster for i in items], question.alpha), question)
    range_ = decide_range(
        items, mrcr_chance(rows), question, above=policy.min_above_chance, ceiling=policy.max_baseline_score
    )
    return combine_rulings([difference, range_])


def question_of(context: CheckContext, scores: SuiteScores, what: str) -> Question:
    """What is asked of a group of MRCR rows."""
    return Question(
        what=what,
        margin=context.policy.evals.mrcr_margin,
        alpha=context.policy.alpha,
        hardware=scores.arms.candidate.hardware,
    )
