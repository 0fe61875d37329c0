"""COR008: problems with integer answers are solved as often as by the baseline (AIME, avg@k)."""

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
    decide_range,
)
from harness.checks.joins.eval_grades import aime_chance, grade_aime_item
from harness.checks.joins.eval_scores import ScoredItem, SuiteScores, score_suite
from harness.checks.joins.ruling import Ruling, combine_rulings, finding_of
from harness.model.check import BaseCheck, CheckContext
from harness.model.finding import Finding, Measurement
from harness.model.words import Principle, Tier
from harness.stats.repeated_sampling import needed_samples, pass_all, within_item_se

SUITE = "aime"


class Reasoning(BaseCheck):
    """Paired difference of avg@k over questions and seeds; the error over questions beside it."""

    id = "COR008"
    title = "Sampled reasoning (AIME, avg@k) solves as many problems as the baseline"
    principle = Principle.CORRECTNESS
    tier = Tier.CPU
    requires = ("COR005",)
    how = (
        "Grades every sample again from its text; paired score test over questions and seeds against the margin, a "
        "second baseline beside it; only answers that the specialised path made count."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """One finding over all problems."""
        scores = score_suite(context, SUITE, grade_aime_item, self.tier)
        if isinstance(scores, Ruling):
            return [finding_of(self, "AIME", scores)]
        control = find_control(context, SUITE, self.tier)
        evidence = scores.evidence_ids
        if not isinstance(control, Ruling):
            evidence = (*evidence, control.record.id)
            control = decide_control(context, control, grade_aime_item, context.policy.evals.aime_margin)
        void = void_without_control(control, SUITE)
        return [finding_of(self, "all problems", decide_problems(context, scores, void), evidence)]


def decide_problems(context: CheckContext, scores: SuiteScores, void: Ruling | None) -> Ruling:
    """avg@k over all samples; the problems are taken as fixed, only the sampling as random."""
    policy = context.policy
    question = Question(
        what=f"all samples of {SUITE}",
        margin=policy.evals.aime_margin,
        alpha=policy.alpha,
        hardware=scores.arms.candidate.hardware,
    )
    items = scores.counted
    rulings = []
    if items:
        by_trial = compare(items, [item.trial for item in items], question.alpha)
        chance = aime_chance(scores.eval_set.rows)
        ceiling = policy.evals.max_baseline_score
        rulings = [
            decide_difference(by_trial, question),
            decide_range(items, chance, question, above=policy.evals.min_above_chance, ceiling=ceiling),
        ]
    rulings += [*scores.problems, decide_counted(scores, question), *([void] if void else [])]
    whole = combine_rulings(rulings)
    further = (*repeated_measurements(items, question), *cell_measurements(scores, question)) if items else ()
    return replace(whole, measurements=(*whole.measurements, *further))


def repeated_measurements(items: Sequence[ScoredItem], question: Question) -> tuple[Measurement, ...]:
    """The errors inside and over problems, pass^k of each arm, and the flips of the candidate and of the A/A."""
    by_problem: dict[str, list[ScoredItem]] = {}
    for item in items:
        by_problem.setdefault(item.cluster, []).append(item)
    groups = list(by_problem.values())
    over = compare(items, [item.cluster for item in items], question.alpha).candidate
    inside = within_item_se([[-i.loss for i in group] for group in groups])
    found = [
        question.measured(
            "score difference, problems taken as a sample", over.estimate, len(groups), interval=over
        ),
        question.measured("standard error over problems", over.se, len(groups)),
    ]
    if inside is not None:
        k = round(len(items) / len(groups))
        wanted = needed_samples(inside, k, len(groups), question.margin, alpha=question.alpha)
        found += [
            question.measured("standard error inside problems", inside, len(items)),
            question.measured("samples a problem wanted for a power of 80 %", wanted, k, unit="samples"),
        ]
    found += [
        question.measured(
            f"problems of which every sample is right, {arm}",
            pass_all([[getattr(i, arm) == 1 for i in group] for group in groups]),
            len(groups),
            unit="share",
        )
        for arm in ("baseline", "candidate")
    ]
    return tuple(found)
