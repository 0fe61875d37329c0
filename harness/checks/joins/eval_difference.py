"""Whether an evaluation's scores are not worse, and whether the suite could have told."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from harness.checks.joins.eval_scores import ScoredItem, SuiteScores, mean_score
from harness.checks.joins.ruling import Ruling
from harness.checks.joins.token_steps import count_token_steps
from harness.model.finding import ItemScores, Measurement
from harness.model.ledger import Path
from harness.model.words import Outcome
from harness.stats.clustered_difference import (
    ClusteredDifference,
    clustered_difference,
    needed_rows,
)
from harness.stats.margins import decide_above

MAX_ITEMS = 20
"""Items that a finding names, the largest losses first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of a group of items."""

    what: str
    """"all rows of mrcr"."""
    margin: float
    alpha: float
    hardware: str

    def measured(
        self,
        name: str,
        estimate: float,
        n: int,
        *,
        unit: str = "score",
        interval: ClusteredDifference | None = None,
        margin: float | None = None,
    ) -> Measurement:
        """A number about the group."""
        return Measurement(
            name=f"{name}, {self.what}",
            unit=unit,
            estimate=estimate,
            ci_low=interval.ci_low if interval else None,
            ci_high=interval.ci_high if interval else None,
            margin=margin,
            n=n,
            hardware=self.hardware,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Candidate against baseline and baseline again against baseline, on the same items."""

    items: tuple[ScoredItem, ...]
    clusters: tuple[Hashable, ...]
    candidate: ClusteredDifference
    again: ClusteredDifference


def compare(items: Sequence[ScoredItem], clusters: Sequence[Hashable], alpha: float) -> Comparison:
    """Both differences, with intervals over whole clusters. Needs at least one item."""
    return Comparison(
        items=tuple(items),
        clusters=tuple(clusters),
        candidate=clustered_difference([i.candidate - i.baseline for i in items], clusters, alpha=alpha),
        again=clustered_difference([i.again - i.baseline for i in items], clusters, alpha=alpha),
    )


def decide_difference(found: Comparison, question: Question) -> Ruling:
    """Not worse by the margin, worse by it, or neither; a second baseline that is worse or better judges nothing."""
    candidate, again, margin = found.candidate, found.again, question.margin
    outcome = decide_above(candidate.ci_low, candidate.ci_high, -margin)
    message = (
        f"{question.what}: the candidate scores {mean_score(found.items, 'candidate'):.3f}, the baseline "
        f"{mean_score(found.items, 'baseline'):.3f} over {candidate.n} answers: difference "
        f"{candidate.estimate:+.3f}, interval {candidate.ci_low:+.3f} to {candidate.ci_high:+.3f}, margin "
        f"-{margin:g}; A/A {again.estimate:+.3f}, {again.ci_low:+.3f} to {again.ci_high:+.3f}."
    )
    wanted = rows_wanted(found, question)
    more = max(wanted, candidate.n + 1)
    advice = ""
    if again.ci_high < -margin or again.ci_low > margin:
        outcome = Outcome.INCONCLUSIVE
        message += (
            " The baseline differs from itself by more than the margin: nothing can be judged against it."
        )
        advice = "Make the baseline repeatable first: fixed seeds, one batch composition, a quiet machine."
    elif outcome is Outcome.INCONCLUSIVE:
        advice = (
            f"Collect about {more} answers instead of {candidate.n}, "
            f"{more / candidate.n:.1f} times the time of this suite."
        )
    elif outcome is Outcome.FAIL:
        advice = "Read the items that lost most; COR001 says at which batch the distributions part."
    return Ruling(
        outcome=outcome,
        message=message,
        advice=advice,
        measurements=(
            question.measured(
                "score difference", candidate.estimate, candidate.n, interval=candidate, margin=-margin
            ),
            question.measured("A/A score difference", again.estimate, again.n, interval=again),
            question.measured("baseline score", mean_score(found.items, "baseline"), candidate.n),
            question.measured("candidate score", mean_score(found.items, "candidate"), candidate.n),
            question.measured("answers scored unlike", _unlike(found, "candidate"), candidate.n, unit="share"),
            question.measured("A/A answers scored unlike", _unlike(found, "again"), candidate.n, unit="share"),
            question.measured("answers wanted for a power of 80 %", wanted, candidate.n, unit="answers"),
        ),
        items=worst_items(found.items),
    )  # fmt: skip


def rows_wanted(found: Comparison, question: Question) -> int:
    """Answers that would show non-inferiority with the noise of the candidate or of the A/A, the larger."""
    noise = ([i.candidate - i.baseline for i in found.items], [i.again - i.baseline for i in found.items])
    return max(needed_rows(d, found.clusters, question.margin, alpha=question.alpha) for d in noise)


def worst_items(items: Sequence[ScoredItem]) -> tuple[ItemScores, ...]:
    """The items that the arms score differently, the largest losses of the candidate first."""
    unlike = [i for i in items if i.loss]
    return tuple(
        ItemScores(item=i.item, baseline=i.baseline, candidate=i.candidate, baseline_again=i.again)
        for i in sorted(unlike, key=lambda i: (-i.loss, i.item))[:MAX_ITEMS]
    )


def decide_range(
    items: Sequence[ScoredItem], chance: float, question: Question, *, above: float, ceiling: float
) -> Ruling:
    """Whether the suite could show harm: the baseline neither guesses nor makes next to no mistake."""
    score = mean_score(items, "baseline")
    least = chance + max(above, question.margin)
    measurements = (question.measured("score of guessing", chance, len(items)),)
    if least <= score <= ceiling:
        return Ruling(
            outcome=Outcome.PASS, message=f"Guessing would score {chance:.3f}.", measurements=measurements
        )
    reason = (
        f"only {score:.3f} where guessing scores {chance:.3f} and {least:.3f} is required: it has no room to fall"
        if score < least
        else f"{score:.3f}, above the ceiling of {ceiling:g}: the questions are too easy to show harm"
    )
    return Ruling(
        outcome=Outcome.INCONCLUSIVE,
        message=f"The baseline scores {reason}.",
        advice="Choose questions that the model answers some of the time.",
        measurements=measurements,
    )  # fmt: skip


def decide_counted(scores: SuiteScores, question: Question) -> Ruling:
    """How many answers count, and the specialised share of their decode tokens by the batch of the step."""
    items = {item.item for item in scores.counted}
    answers = [a for a in scores.arms.candidate.items if a.item in items]
    by_batch: dict[int, list[bool]] = {}
    for answer in answers:
        for step in scores.steps.get(answer.request_id, ()):
            if step.row.is_pure_decode and step.in_scope:
                by_batch.setdefault(step.batch, []).append(step.path is Path.SPECIALIZED)
    whole = count_token_steps(scores.steps, answers)
    text = (
        f"{len(items)} of {len(scores.items)} answers count: the specialised path made {whole.specialized} of their "
        f"{whole.total} decode tokens inside the scope."
    )
    measurements = tuple(
        question.measured(
            f"specialised share at batch {batch}", sum(tokens) / len(tokens), len(tokens), unit="share"
        )
        for batch, tokens in sorted(by_batch.items())
    )  # fmt: skip
    outcome, advice = Outcome.PASS, ""
    untried = sorted({1, scores.max_batch} - {a.concurrency for a in answers})
    if not items:
        outcome = Outcome.INCONCLUSIVE
        advice = "Read COR003 for the reasons of falling back; very short answers have no decode step of their own."
    elif untried:
        outcome = Outcome.INCONCLUSIVE
        text += f" None of them was asked at concurrency {' or '.join(map(str, untried))}, which the scope declares."
        advice = "Ask the suite alone and at the scope's largest batch, with rows enough for both."
    return Ruling(outcome=outcome, message=text, advice=advice, measurements=measurements)


def decide_length(scores: SuiteScores) -> Ruling:
    """Whether an answer that counts was read from a prompt of at least half of the declared context."""
    items = {item.item for item in scores.counted}
    longest = max((a.num_prompt_tokens for a in scores.arms.candidate.items if a.item in items), default=0)
    text = f"The longest prompt has {longest} tokens, the declared context {scores.max_context}."
    if 2 * longest >= scores.max_context:
        return Ruling(outcome=Outcome.PASS, message=text)
    return Ruling(
        outcome=Outcome.INCONCLUSIVE,
        message=f"{text} Nothing is known of the longer half.",
        advice="Ask longer rows, serve them whole, or declare a smaller max_context.",
    )


def cell_measurements(scores: SuiteScores, question: Question) -> tuple[Measurement, ...]:
    """The difference in every bin, and in every cell of bin, concurrency and needles, shown without gating."""
    order = list(dict.fromkeys(row.bin for row in scores.eval_set.rows))
    items = sorted(
        scores.counted, key=lambda i: (order.index(i.row.bin), i.concurrency, i.row.num_needles, i.item)
    )
    bins: dict[str, list[ScoredItem]] = {}
    cells: dict[str, list[float]] = {}
    for item in items:
        name = item.row.bin or "no bin"
        bins.setdefault(name, []).append(item)
        needles = f", {item.row.num_needles} needles" if item.row.num_needles else ""
        cells.setdefault(f"{name}, concurrency {item.concurrency}{needles}", []).append(-item.loss)
    found = []
    for name, group in bins.items() if len(bins) > 1 else ():
        both = compare(group, [item.cluster for item in group], question.alpha)
        asked = replace(question, what=name)
        found += [
            asked.measured(
                "score difference",
                both.candidate.estimate,
                len(group),
                interval=both.candidate,
                margin=-question.margin,
            ),
            asked.measured("A/A score difference", both.again.estimate, len(group), interval=both.again),
        ]
    found += [
        replace(question, what=name).measured("score difference", sum(values) / len(values), len(values))
        for name, values in cells.items()
    ]
    return tuple(found)


def _unlike(found: Comparison, arm: str) -> float:
    return sum(bool(getattr(i, arm) != i.baseline) for i in found.items) / len(found.items)
