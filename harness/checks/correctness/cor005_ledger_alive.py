"""COR005: the ledger is alive, complete, and concerns the code of this change."""

from __future__ import annotations

from collections.abc import Sequence

from harness.checks.joins.arm_proof import ONE_PROCESS, Problem, find_problems, shared_between_arms
from harness.checks.joins.missing import arm_need, missing_ruling
from harness.checks.joins.ruling import Ruling, finding_of
from harness.checks.joins.token_steps import client_items
from harness.model.check import BaseCheck, CheckContext
from harness.model.evidence import SubjectEvidence
from harness.model.finding import Finding
from harness.model.judgement import worst
from harness.model.words import Arm, Outcome, Principle, Tier


class LedgerAlive(BaseCheck):
    """What every other check on a running engine rests on."""

    id = "COR005"
    title = "The records of every arm come from a living tracer and concern the code of the head commit"
    principle = Principle.CORRECTNESS
    tier = Tier.CPU
    requires = ()
    how = (
        "Nonce, planted call and hooks of each arm's tracer; ledger tokens = server usage = client tokens for every "
        "request; digests of imported files = the head commit's."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """One finding an arm; the A/A arm only if it was started, or answers bear its name."""
        evidence = context.evidence
        present = [arm for arm in Arm if evidence.arm(arm, self.tier) is not None]
        shared = shared_between_arms(evidence, present, self.tier)
        findings = []
        for arm in Arm:
            if arm in present:
                ruling = self._decide_arm(context, arm, shared.get(arm, ()))
            elif arm is Arm.BASELINE_AGAIN and not client_items(evidence, arm, self.tier):
                continue
            else:
                ruling = missing_ruling(evidence, self.tier, f"the {arm} arm", arm_need(arm))
            findings.append(finding_of(self, f"arm {arm}", ruling, self._evidence_of(context, arm)))
        return findings

    def _decide_arm(self, context: CheckContext, arm: Arm, shared: Sequence[str]) -> Ruling:
        problems = list(find_problems(context, arm, self.tier))
        if shared:
            problems.insert(0, Problem(outcome=Outcome.ERROR, text=ONE_PROCESS, details=tuple(shared)))
        if problems:
            return _ruling_of(problems)
        ledger = context.evidence.ledger(arm, self.tier)
        record = context.evidence.arm(arm, self.tier)
        items = [item for _, item in client_items(context.evidence, arm, self.tier)]
        num_rows = len(ledger.rows) if ledger else 0
        return Ruling(
            outcome=Outcome.PASS,
            message=f"{num_rows} steps account for {sum(i.num_completion_tokens for i in items)} tokens of "
            f"{len(items)} requests, as the server and the client count them; "
            f"{len(record.imported) if record else 0} imported files are those of the head commit.",
            details=record.ledger_notes if record else (),
        )

    def _evidence_of(self, context: CheckContext, arm: Arm) -> tuple[str, ...]:
        evidence = context.evidence
        records = [
            evidence.arm(arm, self.tier),
            evidence.ledger(arm, self.tier),
            *evidence.of(SubjectEvidence)[-1:],
        ]
        return tuple(record.id for record in records if record is not None)


def _ruling_of(problems: Sequence[Problem]) -> Ruling:
    """`error` as soon as one problem is the harness's: what a broken record says of the change is void."""
    outcomes = {p.outcome for p in problems}
    return Ruling(
        outcome=Outcome.ERROR if Outcome.ERROR in outcomes else worst(list(outcomes)),
        message="The arm's records do not count: " + "; ".join(p.text for p in problems) + ".",
        advice="Run the tier again; if it repeats, start with the tracer's record and the server's log below.",
        details=tuple(line for p in problems for line in p.details),
    )
