"""COR001: token by token, the candidate's distribution is as close to the baseline's as a rerun's is."""

from __future__ import annotations

from collections.abc import Sequence

from harness.checks.joins.pairing import SuiteArms, find_suite_arms, pair_items
from harness.checks.joins.ruling import Ruling, combine_rulings, finding_of
from harness.checks.joins.token_level import TokenComparison, compare_tokens, find_faults, tie_gap
from harness.checks.joins.token_limits import decide_token_level
from harness.checks.joins.token_steps import index_token_steps
from harness.model.check import BaseCheck, CheckContext
from harness.model.finding import Finding
from harness.model.policy import Policy
from harness.model.words import Outcome, Principle, Tier

SUITE = "teacher_forced"


class TokenLevel(BaseCheck):
    """Teacher-forced comparison of next-token distributions, by the batch of the step that made them."""

    id = "COR001"
    title = "At every batch, the specialised path predicts the baseline's next-token distributions"
    principle = Principle.CORRECTNESS
    tier = Tier.CPU
    requires = ("COR005",)
    how = (
        "Walks the baseline's continuations on all arms, step by step; KL over the top 20 and a tail, by actual step "
        "batch, against the policy's limits and a second baseline run."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """One finding a batch, and one for each group of tokens that no batch alone answers for."""
        arms = find_suite_arms(context.evidence, SUITE, self.tier)
        if isinstance(arms, Ruling):
            return [finding_of(self, "teacher-forced tokens", arms)]
        evidence = arms.evidence_ids
        triples, incomplete = pair_items(arms)
        problem = find_faults(triples)
        rulings = [r for r in (incomplete, problem) if r is not None]
        findings = (
            [finding_of(self, "teacher-forced answers", combine_rulings(rulings), evidence)]
            if rulings
            else []
        )
        if problem is not None or not triples:
            return findings
        steps = index_token_steps(arms.ledger, context.manifest, (t.candidate.request_id for t in triples))
        tokens = compare_tokens(triples, steps)
        tie = tie_gap([t.noise_gap_shift for t in tokens], context.policy.token_level)
        groups = group_tokens(tokens)
        must = required_batches(arms, context.manifest.scope.max_batch)
        for batch in sorted(must | {key for key in groups if isinstance(key, int)}):
            ruling = decide_batch(
                groups.get(batch, ()), batch, context.policy, tie, is_required=batch in must
            )
            findings.append(finding_of(self, f"batch {batch}", ruling, evidence))
        for key in (AFTER_LARGER, OTHER_STEPS):
            if groups.get(key):
                ruling = decide_token_level(groups[key], key, context.policy, tie)
                findings.append(finding_of(self, key, ruling, evidence))
        return findings


AFTER_LARGER = "smaller batches after a larger one"
OTHER_STEPS = "prefill, mixed and plain steps"


def group_tokens(
    tokens: Sequence[TokenComparison],
) -> dict[int | str, tuple[TokenComparison, ...]]:
    """Every token in one group, so that a fault shows under the batch that made it.

    A specialised token belongs to its step's number of requests, unless its request has been through a larger step
    before: what that did to its state would be blamed on the smaller one.
    """
    groups: dict[int | str, list[TokenComparison]] = {}
    largest: dict[str, int] = {}
    for token in tokens:
        key: int | str = OTHER_STEPS
        if token.step is not None and token.step.is_specialized:
            batch = token.step.batch
            key = batch if batch >= largest.get(token.item, 0) else AFTER_LARGER
            largest[token.item] = max(batch, largest.get(token.item, 0))
        groups.setdefault(key, []).append(token)
    return {key: tuple(group) for key, group in groups.items()}


def required_batches(arms: SuiteArms, max_batch: int) -> set[int]:
    """1, the scope's largest batch, and every concurrency of the suite inside the scope."""
    tried = {item.concurrency for item in arms.baseline.items}
    return {1, max_batch} | {c for c in tried if c <= max_batch}


def decide_batch(
    tokens: Sequence[TokenComparison], batch: int, policy: Policy, tie: float, *, is_required: bool
) -> Ruling:
    """The limits, and at a required batch the number of specialised tokens without which they say too little."""
    needed = policy.token_level.min_tokens_per_batch if is_required else 1
    rulings = []
    if tokens:
        rulings.append(decide_token_level(tokens, f"batch {batch}", policy, tie))
    if len(tokens) < needed:
        rulings.append(
            Ruling(
                outcome=Outcome.INCONCLUSIVE,
                message=f"The specialised path made {len(tokens)} teacher-forced tokens in decode steps of {batch} "
                f"requests; {needed - len(tokens)} more are needed.",
                advice="Add prompts at this concurrency; if the ledger shows fallbacks, see COR003.",
            )
        )
    return combine_rulings(rulings)
