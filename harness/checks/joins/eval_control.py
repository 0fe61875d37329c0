"""The negative control of a suite: whether it notices a candidate that was made wrong on purpose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from harness.checks.joins.eval_scores import Grade, cluster_rows, find_eval_set, find_row_faults, is_served
from harness.checks.joins.missing import arm_need, missing_ruling
from harness.checks.joins.ruling import Ruling
from harness.checks.joins.token_steps import TokenSteps, index_token_steps
from harness.model.check import CheckContext
from harness.model.evaluation import EvalRow, SuiteItem
from harness.model.evidence import EvalSetEvidence, LedgerEvidence, SuiteEvidence
from harness.model.finding import Measurement
from harness.model.words import Arm, Outcome, Tier
from harness.stats.clustered_difference import clustered_difference

SUFFIX = "_control"
MIN_UNMOVED = 20
"""Answers that must all have stayed the same, token for token, before the result is said not to matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A control with the records that it is held against."""

    suite: str
    record: SuiteEvidence
    candidate: SuiteEvidence
    eval_set: EvalSetEvidence
    ledger: LedgerEvidence

    @property
    def evidence_ids(self) -> tuple[str, ...]:
        """Ids of all records involved."""
        return (self.record.id, self.candidate.id, self.eval_set.id, self.ledger.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPair:
    """One request as the candidate answered it, and as it did while it was made wrong."""

    row: EvalRow
    candidate: SuiteItem
    control: SuiteItem


def find_control(context: CheckContext, suite: str, tier: Tier) -> Control | Ruling:
    """The control of a suite, or the ruling that says what is missing."""
    evidence = context.evidence
    record = evidence.suite(f"{suite}{SUFFIX}", Arm.CANDIDATE, tier)
    candidate = evidence.suite(suite, Arm.CANDIDATE, tier)
    eval_set, ledger = find_eval_set(evidence, suite, tier), evidence.ledger(Arm.CANDIDATE, tier)
    if candidate is not None and candidate.perturbation:
        text = f"The {suite} suite on the candidate was itself asked while it was made wrong on purpose."
        return Ruling(outcome=Outcome.ERROR, message=text, advice="Run the suite again.")
    if record is not None and candidate is not None and eval_set is not None and ledger is not None:
        return Control(suite=suite, record=record, candidate=candidate, eval_set=eval_set, ledger=ledger)
    needs = (
        f"suite {suite}{SUFFIX}",
        f"suite {suite}",
        f"suite {suite} on {Arm.CANDIDATE}",
        arm_need(Arm.CANDIDATE),
    )
    return missing_ruling(evidence, tier, f"a control of {suite}", *needs, "suites")


def decide_control(context: CheckContext, found: Control, grade: Grade, margin: float) -> Ruling:
    """Pass when the wrong candidate is shown to score worse by more than the margin.

    Otherwise the suite is void. An unmoved control fails: what the specialised code returns reaches no answer.
    """
    fault = _find_fault(found)
    if fault is not None:
        return fault
    steps = index_token_steps(found.ledger, context.manifest, (i.request_id for i in found.record.items))
    share = context.policy.min_specialized_share_of(found.suite)
    pairs = [
        pair for pair in _pairs(found) if not pair.control.error and is_served(pair.control, steps, share)
    ]
    num_steps = _num_specialized_steps([pair.control for pair in pairs], steps)
    num_calls = found.record.num_perturbed_calls
    if not pairs or num_calls < num_steps:
        return _void(
            f"{len(pairs)} of {len(found.record.items)} answers of the {found.suite} control were served by the "
            f"specialised path, in {num_steps} steps; {num_calls} of its calls were made wrong. That controls nothing.",
            "A specialised code that returns no tensor, or runs in a captured graph, cannot be made wrong this way.",
        )
    if len(pairs) >= MIN_UNMOVED and all(_is_unmoved(pair) for pair in pairs):
        return Ruling(
            outcome=Outcome.FAIL,
            message=f"{num_calls} results of the specialised code were made wrong ({found.record.perturbation}), and "
            f"all {len(pairs)} answers are the same, token for token: what it returns reaches no answer.",
            advice="Find where its result is thrown away, or name under [dispatch] the code whose result is used.",
        )
    return _decide_noticed(found, pairs, grade, margin, context.policy.alpha)


def _find_fault(found: Control) -> Ruling | None:
    """What keeps the record from being a control of this suite."""
    record = found.record
    if not record.perturbation or record.num_perturbed_calls < 1:
        return _void(
            f"The {found.suite} control does not show that the candidate was made wrong: "
            f"{record.num_perturbed_calls} calls of its specialised code were.",
            "The specialised code must return the tensor that its step computes.",
        )
    if not record.items:
        return _void(f"The {found.suite} control has no answers.", "Collect it again.")
    faults = find_row_faults(found.eval_set, record.items)
    if faults is not None:
        return faults
    known = {item.item: item for item in found.candidate.items}
    counts = Counter(item.item for item in record.items)
    foreign = [
        item.item
        for item in record.items
        if counts[item.item] > 1
        or item.item not in known
        or (not item.error and not known[item.item].error and _asked(item) != _asked(known[item.item]))
    ]
    ids = {item.request_id for item in found.candidate.items}
    foreign += [
        f"{item.item}: an answer of the suite itself" for item in record.items if item.request_id in ids
    ]
    foreign += [
        f"{item.item}: cut after {len(item.token_ids)} tokens"
        for item in record.items
        if item.finish_reason == "length"
        and item.item in known
        and len(item.token_ids) < len(known[item.item].token_ids)
    ]
    if foreign:
        return Ruling(
            outcome=Outcome.ERROR,
            message=f"{len(foreign)} answers of the {found.suite} control are not to requests of the suite, once each.",
            details=tuple(foreign),
        )
    return None


def _asked(item: SuiteItem) -> tuple[object, ...]:
    return (
        item.row,
        item.sample,
        item.concurrency,
        item.seed,
        item.temperature,
        item.num_prompt_tokens,
        item.options_text,
    )


def _pairs(found: Control) -> list[ControlPair]:
    rows = {row.row: row for row in found.eval_set.rows}
    known = {item.item: item for item in found.candidate.items}
    return [
        ControlPair(row=rows[item.row], candidate=known[item.item], control=item)
        for item in found.record.items
    ]


def _is_unmoved(pair: ControlPair) -> bool:
    return (pair.control.token_ids, pair.control.text) == (pair.candidate.token_ids, pair.candidate.text)


def _num_specialized_steps(items: Sequence[SuiteItem], steps: TokenSteps) -> int:
    found = (step for item in items for step in steps.get(item.request_id, ()))
    return len({step.row.step for step in found if step.is_specialized})


def _decide_noticed(
    found: Control, pairs: Sequence[ControlPair], grade: Grade, margin: float, alpha: float
) -> Ruling:
    clusters = cluster_rows(found.eval_set.rows)
    right = [0.0 if p.candidate.error else grade(p.candidate, p.row) for p in pairs]
    wrong = [grade(p.control, p.row) for p in pairs]
    difference = clustered_difference(
        [w - r for w, r in zip(wrong, right, strict=True)], [clusters[p.row.row] for p in pairs], alpha=alpha
    )
    measurement = Measurement(
        name=f"score difference, {found.suite}, candidate made wrong",
        unit="score",
        estimate=difference.estimate,
        ci_low=difference.ci_low,
        ci_high=difference.ci_high,
        margin=-margin,
        n=difference.n,
        hardware=found.record.hardware,
    )
    text = (
        f"With {found.record.num_perturbed_calls} results of the specialised code made wrong "
        f"({found.record.perturbation}), {found.suite} scores {sum(wrong) / len(wrong):.3f} instead of "
        f"{sum(right) / len(right):.3f} over {difference.n} answers: difference {difference.estimate:+.3f}, interval "
        f"{difference.ci_low:+.3f} to {difference.ci_high:+.3f}"
    )
    if difference.ci_high < -margin:
        return Ruling(
            outcome=Outcome.PASS,
            message=f"{text}, below -{margin:g}: it notices.",
            measurements=(measurement,),
        )
    return Ruling(
        outcome=Outcome.INCONCLUSIVE,
        message=f"{text}, not shown to be below -{margin:g}: the suite does not notice, and is void.",
        advice="Ask more questions, or such that the candidate answers more of them.",
        measurements=(measurement,),
    )


def _void(message: str, advice: str) -> Ruling:
    return Ruling(outcome=Outcome.INCONCLUSIVE, message=message, advice=advice)


def void_without_control(control: Ruling, suite: str) -> Ruling | None:
    """What an evaluation says of itself when its control did not pass."""
    if control.outcome is Outcome.PASS:
        return None
    return Ruling(
        outcome=Outcome.INCONCLUSIVE,
        message=f"{suite} is void: nothing shows that it would notice a broken candidate (COR009: {control.outcome}).",
        advice="See COR009.",
    )
