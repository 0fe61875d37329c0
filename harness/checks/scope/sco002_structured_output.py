"""SCO002: answers obey the JSON schema that the request gave, alone and several at once."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.checks.joins.pairing import SuiteArms, Triple
from harness.checks.joins.ruling import Ruling, combine_rulings, finding_of
from harness.checks.joins.served_share import decide_share, fallback_reasons
from harness.checks.joins.token_steps import count_token_steps, index_token_steps
from harness.checks.scope.answers import read_answers
from harness.model.check import BaseCheck, CheckContext
from harness.model.evaluation import SuiteItem
from harness.model.features import Feature
from harness.model.finding import Finding, Measurement
from harness.model.policy import Policy
from harness.model.words import Outcome, Principle, Tier
from harness.stats.exact_tests import sign_test_p

FEATURE: Feature = "structured_output"
SUITE = "structured"
MIN_ANSWERS = 8
"""Answers that obey the schema on the baseline, at each concurrency, without which the suite says too little: if
none of them is broken on the candidate, fewer than 32 % of all are (95 % confidence)."""
MAX_LENGTH_SHIFT = 0.05
"""Mean relative change of the answers' length that is still no change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One request with what is wrong with each arm's answer; empty when nothing is."""

    triple: Triple
    baseline: str
    candidate: str


class StructuredOutput(BaseCheck):
    """Validity of constrained answers by concurrency, against the baseline's answers to the same requests."""

    id = "SCO002"
    title = "Answers constrained by a JSON schema obey it on the specialised path, at every concurrency"
    principle = Principle.SCOPE
    tier = Tier.CPU
    requires = ("COR005",)
    how = (
        "Validates each answer against its schema by concurrency; counts errors, unfinished answers and lengths "
        "against the baseline's; the ledger shows which path served them."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """One finding a concurrency."""
        answers = read_answers(self, context, feature=FEATURE, suite=SUITE, subject="structured answers")
        if isinstance(answers, Finding):
            return [answers]
        arms, triples, findings = answers.arms, answers.triples, list(answers.findings)
        evidence = arms.evidence_ids
        steps = index_token_steps(arms.ledger, context.manifest, (t.candidate.request_id for t in triples))
        levels = sorted({t.baseline.concurrency for t in triples})
        for level in levels:
            group = [t for t in triples if t.baseline.concurrency == level]
            items = [t.candidate for t in group]
            share = decide_share(
                count_token_steps(steps, items),
                f"structured requests at concurrency {level}",
                context.policy.min_specialized_share,
                fallback_reasons(steps, items),
            )
            rulings = [
                decide_answers(group, level, context.policy),
                decide_lengths(group, context.policy),
                share,
            ]
            findings.append(finding_of(self, f"concurrency {level}", combine_rulings(rulings), evidence))
        return [*findings, *self._missing_levels(arms, levels, evidence)]

    def _missing_levels(
        self, arms: SuiteArms, levels: Sequence[int], evidence: Sequence[str]
    ) -> list[Finding]:
        """A claim about load needs requests alone and requests together."""
        absent = [
            name
            for name, there in (("alone", 1 in levels), ("together", max(levels, default=0) > 1))
            if not there
        ]
        if not absent or not arms.baseline.items:
            return []
        text = f"No structured requests ran {' or '.join(absent)}: nothing is known of that load."
        return [self.finding(Outcome.INCONCLUSIVE, "concurrency", text, evidence=evidence)]


def decide_answers(triples: Sequence[Triple], level: int, policy: Policy) -> Ruling:
    """Whether answers that obey the schema on the baseline do so on the candidate.

    A finished answer that breaks its schema, or a refusal, is a fault however rare; an unfinished one may be the
    model's choice and is counted against the baseline.
    """
    unjudgeable = [t.item for t in triples if find_schema_error(t.baseline.schema_text)]
    if unjudgeable:
        return Ruling(
            outcome=Outcome.ERROR,
            message=f"{len(unjudgeable)} requests at concurrency {level} carry no usable JSON schema.",
            details=tuple(unjudgeable),
        )
    judged = [
        Judged(triple=t, baseline=find_fault(t.baseline), candidate=find_fault(t.candidate)) for t in triples
    ]
    sound = [j for j in judged if not j.baseline]
    broken = [j for j in sound if j.candidate and not j.candidate.startswith(UNFINISHED)]
    unfinished = [j for j in sound if j.candidate.startswith(UNFINISHED)]
    newly_sound = sum(not j.candidate for j in judged if j.baseline)
    if broken or (unfinished and sign_test_p(len(unfinished), newly_sound) <= policy.alpha):
        outcome, advice = (
            Outcome.FAIL,
            "The grammar's mask must reach the sampler in every step, whatever the batch.",
        )
    elif unfinished or len(sound) < MIN_ANSWERS:
        outcome = Outcome.INCONCLUSIVE
        advice = f"Collect {MIN_ANSWERS} or more requests that the baseline answers within the token limit."
    else:
        outcome, advice = Outcome.PASS, ""
    num_good = len(sound) - len(broken) - len(unfinished)
    return Ruling(
        outcome=outcome,
        message=f"{num_good} of the {len(sound)} answers at concurrency {level} that obey their schema on the "
        f"baseline do so on the candidate; {len(broken)} are broken or refused, {len(unfinished)} unfinished "
        f"({len(judged) - len(sound)} requests do not count, since the baseline's answer is not sound).",
        advice=advice,
        measurements=_validity(num_good, len(sound), level, policy.alpha),
        details=tuple(f"{j.triple.item}: {j.candidate}" for j in (*broken, *unfinished)),
    )


def _validity(num_good: int, n: int, level: int, alpha: float) -> tuple[Measurement, ...]:
    """The share of good answers with its exact lower bound (Clopper and Pearson 1934)."""
    if n == 0:
        return ()
    from scipy import special

    low = float(special.betaincinv(num_good, n - num_good + 1, alpha)) if num_good else 0.0
    name = f"answers that obey the schema, concurrency {level}"
    return (Measurement(name=name, unit="share", estimate=num_good / n, ci_low=low, n=n),)


UNFINISHED = "unfinished"


def find_fault(item: SuiteItem) -> str:
    """What is wrong with one constrained answer; empty when it is finished and obeys its schema."""
    if item.error:
        return f"refused: {item.error}"
    if item.finish_reason == "length":
        return f"{UNFINISHED} after {item.num_completion_tokens} tokens"
    if item.finish_reason != "stop":
        return f'ended with "{item.finish_reason}"'
    try:
        value = json.loads(item.text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        return f"not JSON: {error}"
    return find_violation(value, json.loads(item.schema_text))


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def find_violation(value: Any, schema: Any) -> str:
    """How a JSON value breaks a schema; empty when it obeys."""
    from jsonschema.exceptions import best_match
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    # An empty registry: a schema in evidence must not make the judge fetch what it refers to.
    validator = validator_for(schema)(schema, registry=Registry())
    try:
        error = best_match(validator.iter_errors(value))
    except (Unresolvable, re.error, RecursionError) as problem:
        return f"its schema cannot be applied: {problem}"
    return "" if error is None else f"breaks the schema at {error.json_path}: {error.message}"


def find_schema_error(schema_text: str) -> str:
    """Why a text is no usable JSON schema; empty when it is one."""
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    try:
        schema = json.loads(schema_text)
        validator_for(schema).check_schema(schema)
    except (ValueError, RecursionError, SchemaError) as error:
        return str(error) or "not a schema"
    return "" if isinstance(schema, dict) else "not an object"


def decide_lengths(triples: Sequence[Triple], policy: Policy) -> Ruling:
    """Whether answers got shorter or longer than the baseline's, more than between two baseline runs."""
    both = [t for t in triples if not t.candidate.error and t.baseline.num_completion_tokens]
    if not both:
        return Ruling(outcome=Outcome.INCONCLUSIVE, message="No answers have a length to compare.")
    shifts = [t.candidate.num_completion_tokens / t.baseline.num_completion_tokens - 1 for t in both]
    mean = sum(shifts) / len(shifts)
    base = [t.baseline.num_completion_tokens for t in both]
    moved = [t.candidate.num_completion_tokens != n for t, n in zip(both, base, strict=True)]
    noise = [t.again.num_completion_tokens != n for t, n in zip(both, base, strict=True)]
    worse = sum(m and not a for m, a in zip(moved, noise, strict=True))
    better = sum(a and not m for m, a in zip(moved, noise, strict=True))
    if abs(mean) <= MAX_LENGTH_SHIFT:
        outcome = Outcome.PASS
    else:
        outcome = Outcome.FAIL if sign_test_p(worse, better) <= policy.alpha else Outcome.INCONCLUSIVE
    return Ruling(
        outcome=outcome,
        message=f"Lengths change by {mean:+.1%} on average; {sum(moved)} of {len(both)} differ (A/A {sum(noise)}).",
        advice=""
        if outcome is Outcome.PASS
        else "Answers that shrink under load without an error hide lost steps.",
        measurements=(
            Measurement(
                name="length of constrained answers, change",
                unit="share",
                estimate=mean,
                margin=MAX_LENGTH_SHIFT,
                n=len(both),
            ),
        ),
    )
