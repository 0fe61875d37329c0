"""SCO005: every served feature that users rely on works on the specialised path, alone and at the scope's limit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.checks.joins.pairing import SuiteArms, find_suite_arms, pair_items
from harness.checks.joins.ruling import Ruling, combine_rulings, finding_of
from harness.checks.joins.served_share import decide_share, fallback_reasons
from harness.checks.joins.token_level import num_not_finite
from harness.checks.joins.token_steps import TokenSteps, count_token_steps, index_parts, index_token_steps
from harness.checks.scope.answer_laws import ANSWER_LAWS
from harness.checks.scope.answers import undeclared
from harness.checks.scope.feature_answers import ArmAnswers, FeatureLaw, Tried, read_answer
from harness.checks.scope.feature_rulings import decide_law
from harness.checks.scope.sampling_laws import SAMPLING_LAWS
from harness.model.check import BaseCheck, CheckContext
from harness.model.evaluation import SuiteItem
from harness.model.evidence import LedgerEvidence, SuiteEvidence
from harness.model.finding import Finding
from harness.model.ledger import StepRequest
from harness.model.words import Arm, Outcome, Principle, Tier

SUITE = "features"
LAWS: tuple[FeatureLaw, ...] = (*SAMPLING_LAWS, *ANSWER_LAWS)
Parts = Mapping[str, Sequence[StepRequest]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The suite on all arms with what the ledgers say of its requests."""

    arms: SuiteArms
    parts: Mapping[Arm, Parts]
    steps: TokenSteps
    """The candidate's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    """One law on one arm's answers."""

    alone: Tried
    together: Tried

    @property
    def total(self) -> Tried:
        """Both."""
        return self.alone + self.together


class ServedFeatures(BaseCheck):
    """Each feature's own law, on every arm, over requests that the specialised path served."""

    id = "SCO005"
    title = "Served features keep their promises on the specialised path, alone and at the scope's limit"
    principle = Principle.SCOPE
    tier = Tier.CPU
    requires = ("COR005",)
    how = (
        "Holds each feature's answers to what the feature promises, worked out from the reported log probabilities; "
        "a law that the baseline breaks decides nothing; the ledger shows which path served them."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """One finding a feature."""
        arms = find_suite_arms(context.evidence, SUITE, self.tier)
        if isinstance(arms, Ruling):
            return [finding_of(self, SUITE, arms)]
        parts = {
            arm: index_requests(context.evidence.ledger(arm, self.tier), items)
            for arm, items in ((suite.arm, suite.items) for suite in arms)
        }
        steps = index_token_steps(
            arms.ledger, context.manifest, (item.request_id for item in arms.candidate.items)
        )
        ledger = context.evidence.ledger(Arm.BASELINE, self.tier)
        evidence = (*arms.evidence_ids, *((ledger.id,) if ledger else ()))
        collected = Collected(arms=arms, parts=parts, steps=steps)
        return [self._judge(context, law, collected, evidence) for law in LAWS]

    def _judge(
        self,
        context: CheckContext,
        law: FeatureLaw,
        collected: Collected,
        evidence: Sequence[str],
    ) -> Finding:
        ruling = combine_rulings(decide_feature(law, collected, context))
        left_out = undeclared(self, context, law.feature)
        if left_out is None or (
            ruling.outcome is Outcome.FAIL and not _is_refused(law, collected.arms.candidate)
        ):
            return finding_of(self, law.feature, ruling, evidence)
        return left_out


def _is_refused(law: FeatureLaw, candidate: SuiteEvidence) -> bool:
    """Whether the candidate refuses every request of the feature, as it should one that it does not have."""
    answers = [item for item in candidate.items if item.item.startswith(f"{law.feature}/")]
    return bool(answers) and all(item.error.startswith("HTTP 4") for item in answers)


def decide_feature(law: FeatureLaw, collected: Collected, context: CheckContext) -> list[Ruling]:
    """All that is to be said of one feature."""
    arms, parts = collected.arms, collected.parts
    chosen = SuiteArms(
        name=f"{law.feature} part of the {arms.name}",
        baseline=_answers_of(law, arms.baseline),
        candidate=_answers_of(law, arms.candidate),
        again=_answers_of(law, arms.again),
        ledger=arms.ledger,
    )
    triples, incomplete = pair_items(chosen)
    rest = [] if incomplete is None else [incomplete]
    items = [t.candidate for t in triples if t.item.startswith(f"{law.feature}/")]
    try:
        missing = [*find_missing(law, items, context.manifest.scope.max_batch)]
        tries = {suite.arm: _tries(law, suite.items, parts[suite.arm]) for suite in chosen}
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        text = f"The records do not say what was asked: {type(error).__name__}: {error}."
        return [*rest, Ruling(outcome=Outcome.ERROR, message=text, advice="Run the suite again.")]
    if missing:
        text = f"The feature was not tried whole: {'; '.join(missing)}."
        rest.append(Ruling(outcome=Outcome.INCONCLUSIVE, message=text))
    if not items:
        return rest
    refused = tuple(f"{i.item}: refused: {i.error}" for i in items if i.error)
    # A grammar's mask leaves no finite value for most tokens, with the switch off as well.
    sick = tuple(
        f"{t.item}: {num_not_finite(t.candidate)} log probabilities are not finite"
        for t in triples
        if num_not_finite(t.candidate) and not num_not_finite(t.baseline)
    )
    off = (tries[Arm.BASELINE].total, tries[Arm.BASELINE_AGAIN].total)
    together, alone = tries[Arm.CANDIDATE].together, tries[Arm.CANDIDATE].alone
    levels = [together] if law.together_only else [together, alone]
    laws = decide_law(
        law, off, with_breaches(tries[Arm.CANDIDATE].total, (*refused, *sick)), levels, context.policy
    )
    share = decide_share(
        count_token_steps(collected.steps, items),
        f"{law.feature} requests",
        context.policy.min_specialized_share,
        fallback_reasons(collected.steps, items),
    )
    return [laws, share, *_same_everywhere(law, chosen), *rest]


def with_breaches(tried: Tried, more: tuple[str, ...]) -> Tried:
    """The tries with further breaches."""
    return replace(tried, breaches=(*more, *tried.breaches))


def find_missing(law: FeatureLaw, items: Sequence[SuiteItem], max_batch: int) -> Iterable[str]:
    """Variants and concurrencies without which the feature was not tried."""
    answers = [read_answer(item) for item in items]
    levels = {False: "together"} if law.together_only else {True: "alone", False: "together"}
    for alone, level in levels.items():
        found = {a.variant for a in answers if a.is_alone == alone}
        if not found:
            yield f"no request was {level}"
        for variant in law.variants:
            if found and variant not in found:
                yield f"no {variant} request was {level}"
    unseeded = sorted({a.variant for a in answers if a.variant in law.seeded and a.item.seed is None})
    for variant in unseeded:
        yield f"{variant} requests bear no seed"
    width = max((a.item.concurrency * int(a.options.get("n", 1)) for a in answers), default=0)
    if width < max_batch:
        yield f"{width} answers at once, the scope declares {max_batch}"


def _answers_of(law: FeatureLaw, suite: SuiteEvidence) -> SuiteEvidence:
    """The feature's answers and those that they are held against."""
    names = (f"{law.feature}/", f"{law.reference}/")
    return suite.model_copy(update={"items": tuple(i for i in suite.items if i.item.startswith(names))})


def _tries(law: FeatureLaw, items: Sequence[SuiteItem], parts: Parts) -> Tries:
    return Tries(alone=_try(law, items, parts, alone=True), together=_try(law, items, parts, alone=False))


def _try(law: FeatureLaw, items: Iterable[SuiteItem], parts: Parts, *, alone: bool) -> Tried:
    answers = [read_answer(item) for item in items if not item.error]
    references = [a for a in answers if a.feature == law.reference]
    # An answer under the same load is preferred, since another batch rounds differently.
    references.sort(key=lambda a: a.is_alone == alone)
    return law.holds(
        ArmAnswers(
            answers=tuple(a for a in answers if a.feature == law.feature and a.is_alone == alone),
            plain={a.prompt: a for a in references},
            parts=parts,
        )
    )


def _same_everywhere(law: FeatureLaw, arms: SuiteArms) -> list[Ruling]:
    """What must be the same on both arms to the last token."""
    if law.same_on_every_arm is None:
        return []
    seen: dict[str, list[object]] = {}
    for suite in arms:
        for item in suite.items:
            answer = read_answer(item)
            if answer.feature == law.feature:
                seen.setdefault(answer.name, []).append(law.same_on_every_arm(answer))
    whole = {name: values for name, values in seen.items() if len(values) == len(Arm)}
    unlike = [name for name, (baseline, candidate, _) in whole.items() if baseline != candidate]
    restless = [name for name, (baseline, _, again) in whole.items() if baseline != again]
    if restless:
        text = f"{len(restless)} prompts differ between two runs of the baseline."
        return [Ruling(outcome=Outcome.INCONCLUSIVE, message=text, details=tuple(restless))]
    if unlike:
        text = f"{len(unlike)} of {len(whole)} prompts are others than on the baseline."
        return [Ruling(outcome=Outcome.FAIL, message=text, details=tuple(unlike))]
    return [
        Ruling(outcome=Outcome.PASS, message=f"{len(whole)} prompts are the baseline's to the last token.")
    ]


def index_requests(ledger: LedgerEvidence | None, items: Iterable[SuiteItem]) -> Parts:
    """What each step computed of each client request, in the order of the steps."""
    ids = [item.request_id for item in items]
    if ledger is None:
        return dict.fromkeys(ids, ())
    return {
        client: [ledger.steps[place].requests[number] for place, number, _ in parts]
        for client, parts in index_parts(ledger, ids).items()
    }
