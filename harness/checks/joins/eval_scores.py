"""The answers to an evaluation suite, graded again from their text, with the proof of which path made each."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from harness.checks.joins.eval_grades import is_gradable
from harness.checks.joins.missing import missing_ruling
from harness.checks.joins.pairing import SuiteArms, Triple, find_suite_arms, pair_items
from harness.checks.joins.ruling import Ruling
from harness.checks.joins.token_steps import TokenSteps, count_token_steps, index_token_steps
from harness.model.check import CheckContext
from harness.model.evals import AimeSection, EvalsSection, MrcrSection
from harness.model.evaluation import EvalRow, SuiteItem
from harness.model.evidence import EvalSetEvidence, EvidenceSet
from harness.model.words import Outcome, Tier

Grade = Callable[[SuiteItem, EvalRow], float]
"""The score of an answer, from 0 to 1; a failed request scores 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredItem:
    """One request with its scores on all arms."""

    item: str
    row: EvalRow
    cluster: str
    """What it shares with others: the document, or the very same question."""
    sample: int
    trial: tuple[str, int | None]
    """Question and seed: asking the same again shows nothing new. Without a seed where seeds change no answer."""
    concurrency: int
    baseline: float
    candidate: float
    again: float
    counts: bool
    """Whether the specialised path made its decode tokens, or the candidate failed to answer: only ever against it."""

    @property
    def loss(self) -> float:
        """How much worse the candidate did."""
        return self.baseline - self.candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteScores:
    """A suite with its questions and graded answers."""

    arms: SuiteArms
    eval_set: EvalSetEvidence
    steps: TokenSteps
    """Of the candidate's requests."""
    max_batch: int
    """The scope's."""
    max_context: int
    """The scope's, in tokens."""
    items: tuple[ScoredItem, ...]
    problems: tuple[Ruling, ...]
    """What keeps the suite from passing whatever the scores are."""

    @property
    def name(self) -> str:
        """The suite's name."""
        return self.eval_set.suite

    @property
    def counted(self) -> tuple[ScoredItem, ...]:
        """The items that are evidence for the candidate."""
        return tuple(item for item in self.items if item.counts)

    @property
    def evidence_ids(self) -> tuple[str, ...]:
        """Ids of all records involved."""
        return (*self.arms.evidence_ids, self.eval_set.id)


def find_eval_set(evidence: EvidenceSet, suite: str, tier: Tier) -> EvalSetEvidence | None:
    """The latest questions of a suite."""
    found = [r for r in evidence.of(EvalSetEvidence, tier=tier) if r.suite == suite]
    return found[-1] if found else None


def score_suite(context: CheckContext, suite: str, grade: Grade, tier: Tier) -> SuiteScores | Ruling:
    """The suite graded on all arms, or the ruling that says why there is nothing to grade."""
    arms = find_suite_arms(context.evidence, suite, tier)
    if isinstance(arms, Ruling):
        return arms
    eval_set = find_eval_set(context.evidence, suite, tier)
    if eval_set is None:
        return missing_ruling(context.evidence, tier, f"the questions of {suite}", f"suite {suite}", "suites")
    triples, incomplete = pair_items(arms)
    asked = [t.candidate for t in triples]
    faults = find_row_faults(eval_set, asked) or find_other_terms(context.manifest.evals, eval_set, asked)
    if faults:
        return faults
    steps = index_token_steps(arms.ledger, context.manifest, (t.candidate.request_id for t in triples))
    rows = {row.row: row for row in eval_set.rows}
    clusters = cluster_rows(eval_set.rows)
    share = context.policy.min_specialized_share_of(suite)
    seeds_matter = _seeds_matter([t.baseline for t in triples], rows)
    items = tuple(
        _score(t, rows[t.candidate.row], clusters, grade, is_served(t.candidate, steps, share), seeds_matter)
        for t in triples
    )
    unasked = _unasked_rows(eval_set, triples)
    return SuiteScores(
        arms=arms,
        eval_set=eval_set,
        steps=steps,
        max_batch=context.manifest.scope.max_batch,
        max_context=context.manifest.scope.max_context,
        items=items,
        problems=tuple(r for r in (incomplete, unasked) if r is not None),
    )


def find_row_faults(eval_set: EvalSetEvidence, items: Sequence[SuiteItem]) -> Ruling | None:
    """Why the answers are not answers to these questions, each once a sample."""
    doubled = [row for row, count in Counter(row.row for row in eval_set.rows).items() if count > 1]
    known = {row.row for row in eval_set.rows}
    strange = [item.item for item in items if item.row not in known]
    asked = Counter((item.row, item.sample) for item in items)
    unusable = [row.row for row in eval_set.rows if not is_gradable(eval_set.suite, row)]
    repeated = [f"{row}, sample {sample}" for (row, sample), count in asked.items() if count > 1]
    for lines, text in (
        (doubled, "questions of {} share a name"),
        (unusable, "questions of {} lack messages or a reference that an answer can be graded by"),
        (strange, "answers of {} belong to no question of the recorded set"),
        (repeated, "samples of {} occur more than once"),
    ):
        if lines:
            message = f"{len(lines)} {text.format(eval_set.suite)}: nothing can be graded."
            return Ruling(outcome=Outcome.ERROR, message=message, details=tuple(lines))
    return None


def find_other_terms(
    evals: EvalsSection, eval_set: EvalSetEvidence, items: Sequence[SuiteItem]
) -> Ruling | None:
    """Why the suite is not the one that the manifest describes: another data set, or another temperature."""
    section: MrcrSection | AimeSection = evals.mrcr if eval_set.suite == "mrcr" else evals.aime
    if not section.is_generated and eval_set.source != section.name:
        message = (
            f"The questions of {eval_set.suite} are of {eval_set.source}, the manifest names {section.name}."
        )
        return Ruling(outcome=Outcome.ERROR, message=message, advice="Collect the suite again.")
    other = tuple(
        f"{item.item}: {item.temperature:g}" for item in items if item.temperature != section.temperature
    )
    if not other:
        return None
    return Ruling(
        outcome=Outcome.ERROR,
        message=f"{len(other)} answers of {eval_set.suite} were asked for at another temperature than the "
        f"{section.temperature:g} of the manifest.",
        advice="Collect the suite again.",
        details=other,
    )


def is_served(item: SuiteItem, steps: TokenSteps, min_share: float) -> bool:
    """Whether the ledger shows that the specialised path made the item's decode tokens inside the scope."""
    served = count_token_steps(steps, [item])
    return served.contradictory == 0 and served.share is not None and served.share >= min_share


def cluster_rows(rows: Sequence[EvalRow]) -> dict[str, str]:
    """By row: its document; rows that ask the very same thing are one cluster whatever they say of themselves."""
    by_question: dict[str, str] = {}
    return {row.row: by_question.setdefault(question_of(row), row.cluster or row.row) for row in rows}


def question_of(row: EvalRow) -> str:
    """The sha256 of the conversation, the same for rows that ask the same."""
    digest = hashlib.sha256()
    for message in row.messages:
        digest.update(f"{message.role}\0{message.content}\0".encode())
    return digest.hexdigest()


def mean_score(items: Sequence[ScoredItem], arm: str) -> float:
    """The mean score of "baseline", "candidate" or "again"."""
    return fmean(getattr(item, arm) for item in items)


def _seeds_matter(answers: Sequence[SuiteItem], rows: Mapping[str, EvalRow]) -> bool:
    """Whether seeds can change an answer: sampled at a temperature, and at least one question answered in two ways."""
    found: dict[str, set[tuple[int, ...]]] = {}
    for answer in answers:
        if answer.temperature > 0:
            found.setdefault(question_of(rows[answer.row]), set()).add(answer.token_ids)
    return any(len(ways) > 1 for ways in found.values())


def _score(
    triple: Triple,
    row: EvalRow,
    clusters: dict[str, str],
    grade: Grade,
    served: bool,
    seeds_matter: bool,
) -> ScoredItem:
    candidate = triple.candidate
    baseline, other, again = (0.0 if a.error else grade(a, row) for a in triple.answers)
    return ScoredItem(
        item=triple.item,
        row=row,
        cluster=clusters[row.row],
        sample=candidate.sample,
        trial=(question_of(row), candidate.seed if seeds_matter else None),
        concurrency=candidate.concurrency,
        baseline=baseline,
        candidate=other,
        again=again,
        counts=served or bool(candidate.error),
    )


def _unasked_rows(eval_set: EvalSetEvidence, triples: Sequence[Triple]) -> Ruling | None:
    """Questions that no arm was asked: a part does not speak for all."""
    if not eval_set.rows:
        return Ruling(
            outcome=Outcome.INCONCLUSIVE,
            message=f"The {eval_set.suite} suite has no question: {eval_set.num_left_out} rows of its source were "
            "left out.",
            advice="Choose a source with rows that fit the served context.",
        )
    asked = {triple.candidate.row for triple in triples}
    unasked = tuple(row.row for row in eval_set.rows if row.row not in asked)
    if not unasked:
        return None
    return Ruling(
        outcome=Outcome.INCONCLUSIVE,
        message=f"{len(unasked)} of {len(eval_set.rows)} questions of {eval_set.suite} were answered by no arm.",
        details=unasked,
    )
