"""SCO003: the path serves up to the last token of the context that it declares."""

from __future__ import annotations

from collections.abc import Sequence

from harness.checks.joins.pairing import Triple
from harness.checks.joins.ruling import Ruling, combine_rulings, finding_of
from harness.checks.joins.served_share import decide_share, fallback_reasons
from harness.checks.joins.token_level import compare_tokens, find_faults, tie_gap
from harness.checks.joins.token_limits import decide_token_level
from harness.checks.joins.token_steps import TokenSteps, count_token_steps, index_token_steps
from harness.checks.scope.answers import read_answers
from harness.model.check import BaseCheck, CheckContext
from harness.model.evaluation import SuiteItem
from harness.model.features import Feature
from harness.model.finding import Finding, Measurement
from harness.model.policy import Policy
from harness.model.words import Outcome, Principle, Tier

FEATURE: Feature = "full_context"
SUITE = "full_context"
MIN_PROMPTS = 2
"""Prompts that must reach the end of the context: one alone can be luck of its content."""


class FullContext(BaseCheck):
    """Prompts that end, with their output, exactly at the declared context."""

    id = "SCO003"
    title = "The whole declared context works on the specialised path, to its last token"
    principle = Principle.SCOPE
    tier = Tier.CPU
    requires = ("COR005",)
    how = (
        "Decodes up to exactly the declared context along the baseline's continuation; distributions within the "
        "token-level limits; the ledger shows which path served the tokens."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """Findings for the reach, the path and the distributions."""
        answers = read_answers(self, context, feature=FEATURE, suite=SUITE, subject="answers")
        if isinstance(answers, Finding):
            return [answers]
        arms, triples, findings = answers.arms, answers.triples, list(answers.findings)
        evidence = arms.evidence_ids
        if not triples:
            return findings
        items = [t.candidate for t in triples]
        steps = index_token_steps(arms.ledger, context.manifest, (item.request_id for item in items))
        share = decide_share(
            count_token_steps(steps, items),
            "requests at full context",
            context.policy.min_specialized_share,
            fallback_reasons(steps, items),
        )
        rulings = {
            "reach": decide_reach(triples, context.manifest.scope.max_context, steps),
            "served by the specialised path": share,
            "next-token distributions": decide_distance(triples, steps, context.policy),
        }
        return findings + [finding_of(self, subject, r, evidence) for subject, r in rulings.items()]


def total_tokens(item: SuiteItem) -> int:
    """Prompt and output together."""
    return item.num_prompt_tokens + item.num_completion_tokens


def decide_reach(triples: Sequence[Triple], max_context: int, steps: TokenSteps) -> Ruling:
    """Whether the candidate's requests end exactly where the declared context does, on the specialised path."""
    asked = [t for t in triples if total_tokens(t.baseline) == max_context]
    short = [t for t in asked if t.candidate.error or total_tokens(t.candidate) != max_context]
    last = [
        t
        for t in asked
        if t not in short and (s := steps.get(t.candidate.request_id)) and s[-1].is_specialized
    ]
    measurement = Measurement(
        name="longest context served",
        unit="tokens",
        estimate=float(max((total_tokens(t.candidate) for t in triples if not t.candidate.error), default=0)),
        margin=float(max_context),
        n=len(triples),
    )
    details = tuple(
        f"{t.item}: {total_tokens(t.candidate)} tokens, baseline {total_tokens(t.baseline)} {t.candidate.error}".strip()
        for t in triples
        if t in short or t not in asked
    )
    if short:
        outcome, advice = (
            Outcome.FAIL,
            "Serve the whole declared context, or declare a smaller one under [scope].",
        )
    elif len(last) < MIN_PROMPTS:
        outcome = Outcome.INCONCLUSIVE
        advice = (
            f"{MIN_PROMPTS - len(last)} more prompts must end at {max_context} tokens in a specialised step."
        )
    else:
        outcome, advice = Outcome.PASS, ""
    return Ruling(
        outcome=outcome,
        message=f"{len(asked) - len(short)} of {len(asked)} prompts that reach exactly {max_context} tokens on the "
        f"baseline reach them on the candidate; {len(last)} of them end in a specialised step.",
        advice=advice,
        measurements=(measurement,),
        details=details,
    )


def decide_distance(triples: Sequence[Triple], steps: TokenSteps, policy: Policy) -> Ruling:
    """The token-level limits over the specialised tokens, and how many of those there must be."""
    problem = find_faults(triples)
    if problem is not None:
        return problem
    tokens = [t for t in compare_tokens(triples, steps) if t.step is not None and t.step.is_specialized]
    needed = policy.token_level.min_tokens_per_batch
    rulings = []
    if tokens:
        tie = tie_gap([t.noise_gap_shift for t in tokens], policy.token_level)
        rulings.append(decide_token_level(tokens, "full context", policy, tie))
    if len(tokens) < needed:
        rulings.append(
            Ruling(
                outcome=Outcome.INCONCLUSIVE,
                message=f"Only {len(tokens)} tokens at full context came from specialised decode steps; "
                f"{needed - len(tokens)} more are needed.",
                advice="Add prompts, or tokens to decode at the end of each.",
            )
        )
    return combine_rulings(rulings)
