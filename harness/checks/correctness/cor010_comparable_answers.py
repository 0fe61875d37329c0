"""COR010: the arms' answers to the evaluations are whole answers alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Self

from harness.checks.joins.answer_defects import BY_SUITE, NOT_FINITE, Defect
from harness.checks.joins.eval_scores import find_eval_set, find_row_faults
from harness.checks.joins.missing import missing_ruling
from harness.checks.joins.pairing import SuiteArms, Triple, find_suite_arms
from harness.checks.joins.ruling import Ruling, combine_rulings, finding_of
from harness.model.check import BaseCheck, CheckContext
from harness.model.evaluation import EvalRow
from harness.model.evidence import EvalSetEvidence
from harness.model.finding import Finding, Measurement
from harness.model.policy import Policy
from harness.model.words import Arm, Outcome, Principle, Tier
from harness.stats.exact_tests import sign_test_p


class ComparableAnswers(BaseCheck):
    """Shares of answers that no score should be read from, candidate against baseline."""

    id = "COR010"
    title = "The evaluations' answers are whole: no more cut, empty, unreadable or looping ones than the baseline's"
    principle = Principle.CORRECTNESS
    tier = Tier.CPU
    requires = ("COR005",)
    how = (
        "Compares, request by request, the shares of failed, truncated, empty, looping, unreadable and shortened "
        "answers with the policy's limit; log probabilities that are no numbers fail."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """One finding a suite."""
        findings = []
        for suite, defects in BY_SUITE.items():
            arms = find_suite_arms(context.evidence, suite, self.tier)
            eval_set = find_eval_set(context.evidence, suite, self.tier)
            if isinstance(arms, Ruling):
                findings.append(finding_of(self, suite, arms))
            elif eval_set is None:
                what = f"the questions of {suite}"
                ruling = missing_ruling(context.evidence, self.tier, what, f"suite {suite}", "suites")
                findings.append(finding_of(self, suite, ruling))
            else:
                ruling = decide_answers(arms, eval_set, defects, context.policy)
                findings.append(finding_of(self, suite, ruling, (*arms.evidence_ids, eval_set.id)))
        return findings


def decide_answers(
    arms: SuiteArms, eval_set: EvalSetEvidence, defects: dict[str, Defect], policy: Policy
) -> Ruling:
    """All defects of one suite."""
    triples, problems = match_answers(arms)
    fault = find_row_faults(eval_set, [t.candidate for t in triples])
    if fault is not None or not triples:
        return combine_rulings([*problems, *([fault] if fault else [])])
    rows = {row.row: row for row in eval_set.rows}
    rulings = [*problems, decide_not_finite(arms.name, triples, rows), *_too_few(len(triples), policy)]
    found = {name: DefectCounts.of(triples, rows, defect) for name, defect in defects.items()}
    rulings += [
        decide_defect(name, counts, policy, arms.candidate.hardware) for name, counts in found.items()
    ]
    return combine_rulings(rulings)


def _too_few(n: int, policy: Policy) -> list[Ruling]:
    """Of so few answers that one alone is more than the limit, none with a defect is no share that was measured."""
    needed = ceil(1 / policy.evals.max_gate_difference)
    if n >= needed:
        return []
    text = f"{n} answers tell no share of {policy.evals.max_gate_difference:.0%}; {needed} are needed."
    return [Ruling(outcome=Outcome.INCONCLUSIVE, message=text, advice="Ask more questions.")]


def match_answers(arms: SuiteArms) -> tuple[tuple[Triple, ...], list[Ruling]]:
    """The answers by request, failed ones and ones to another prompt included, and what keeps them from being all."""
    by_arm = {suite.arm: {item.item: item for item in suite.items} for suite in arms}
    if any(len(by_arm[suite.arm]) < len(suite.items) for suite in arms):
        text = f"The {arms.name} suite holds requests twice, so answers cannot be paired."
        return (), [Ruling(outcome=Outcome.ERROR, message=text)]
    names = list(dict.fromkeys(item.item for suite in arms for item in suite.items))
    everywhere = [name for name in names if all(name in items for items in by_arm.values())]
    problems = []
    if not everywhere or len(everywhere) < len(names):
        text = (
            f"{len(everywhere)} of {len(names)} requests of the {arms.name} suite were answered by every arm."
        )
        problems.append(Ruling(outcome=Outcome.INCONCLUSIVE, message=text, advice="Run the suite again."))
    triples = tuple(
        Triple(
            item=name,
            baseline=by_arm[Arm.BASELINE][name],
            candidate=by_arm[Arm.CANDIDATE][name],
            again=by_arm[Arm.BASELINE_AGAIN][name],
        )
        for name in everywhere
    )
    return triples, problems


@dataclass(frozen=True, slots=True, kw_only=True)
class DefectCounts:
    """How many answers have a defect, by arm and on one arm of a pair alone."""

    n: int
    baseline: int
    candidate: int
    again: int
    only_candidate: int
    only_baseline: int
    items: tuple[str, ...]
    """Requests that only the candidate answers so."""

    @classmethod
    def of(cls, triples: Sequence[Triple], rows: dict[str, EvalRow], defect: Defect) -> Self:
        """Counts over all requests."""
        found = [
            tuple(defect(t, answer, rows[t.candidate.row]) for answer in (t.baseline, t.candidate, t.again))
            for t in triples
        ]
        only = [t.item for t, (base, cand, _) in zip(triples, found, strict=True) if cand and not base]
        return cls(
            n=len(found),
            baseline=sum(base for base, _, _ in found),
            candidate=sum(cand for _, cand, _ in found),
            again=sum(again for _, _, again in found),
            only_candidate=len(only),
            only_baseline=sum(base and not cand for base, cand, _ in found),
            items=tuple(only),
        )


def decide_defect(what: str, counts: DefectCounts, policy: Policy, hardware: str) -> Ruling:
    """Whether the shares differ by no more than the limit; the exact sign test tells a fault from bad luck."""
    limit, n = policy.evals.max_gate_difference, counts.n
    extra, noise = (counts.candidate - counts.baseline) / n, (counts.again - counts.baseline) / n
    outcome, advice = Outcome.PASS, ""
    if abs(noise) > limit or abs(extra) > limit:
        outcome, advice = (
            Outcome.INCONCLUSIVE,
            "Scores of answers that are not alike whole say little: ask more questions.",
        )
    if extra > limit and sign_test_p(counts.only_candidate, counts.only_baseline) <= policy.alpha:
        outcome, advice = (
            Outcome.FAIL,
            "Read the candidate's answers: it ends, fills or leaves them where the baseline does not.",
        )
    return Ruling(
        outcome=outcome,
        message=f"{counts.candidate} of {n} {what} (baseline {counts.baseline}, again {counts.again}).",
        advice=advice,
        measurements=(
            Measurement(
                name=f"extra share of answers {what}",
                unit="share",
                estimate=extra,
                margin=limit,
                n=n,
                hardware=hardware,
            ),
            Measurement(
                name=f"A/A extra share of answers {what}",
                unit="share",
                estimate=noise,
                n=n,
                hardware=hardware,
            ),
        ),
        details=tuple(f"{item}: {what}" for item in counts.items) if outcome is not Outcome.PASS else (),
    )


def decide_not_finite(name: str, triples: Sequence[Triple], rows: dict[str, EvalRow]) -> Ruling:
    """A candidate with log probabilities that are no numbers fails, unless the baseline has them, too."""
    broken = [t.item for t in triples if NOT_FINITE(t, t.candidate, rows[t.candidate.row])]
    off = [t.item for t in triples if NOT_FINITE(t, t.baseline, rows[t.baseline.row])]
    what = f"{name} answers have log probabilities that are not finite"
    if broken:
        outcome = Outcome.INCONCLUSIVE if off else Outcome.FAIL
        text = f"{len(broken)} of {len(triples)} {what}, {len(off)} of the baseline's."
        return Ruling(outcome=outcome, message=text, details=tuple(broken))
    return Ruling(outcome=Outcome.PASS, message=f"None of {len(triples)} {what}.")
