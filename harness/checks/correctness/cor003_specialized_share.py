"""COR003: inside its scope, the specialised path serves the decode tokens; outside it, what the manifest says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from harness.checks.joins.missing import arm_need, missing_ruling
from harness.checks.joins.ruling import Ruling, combine_rulings, finding_of
from harness.checks.joins.served_share import decide_share
from harness.checks.joins.token_steps import (
    TokenSteps,
    client_items,
    count_token_steps,
    index_token_steps,
    step_in_scope,
)
from harness.model.check import BaseCheck, CheckContext
from harness.model.evaluation import SuiteItem
from harness.model.evidence import EvalSetEvidence, LedgerEvidence
from harness.model.finding import Finding
from harness.model.ledger import LedgerRow, Path, Served, count_served, path_of, served_by_batch
from harness.model.manifest import Manifest
from harness.model.words import Arm, Outcome, Principle, Tier


class SpecializedShare(BaseCheck):
    """Share of decode tokens by path: whole, by suite and by step batch."""

    id = "COR003"
    title = "Inside its declared scope the specialised path serves the decode tokens, and outside it none"
    principle = Principle.CORRECTNESS
    tier = Tier.CPU
    requires = ("COR005",)
    how = (
        "Counts the ledger's decode tokens by the path that served them: whole, by suite, by requests in the step; "
        "a step whose decision and code disagree fails."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """Findings for the whole, each suite and timed cell, each batch of the scope, and what lies outside."""
        ledger = context.evidence.ledger(Arm.CANDIDATE, self.tier)
        if ledger is None:
            ruling = missing_ruling(
                context.evidence, self.tier, "the candidate's ledger", arm_need(Arm.CANDIDATE)
            )
            return [finding_of(self, "decode tokens", ruling)]
        evidence = (ledger.id,)
        scope = context.manifest.scope
        inside = [row for row in ledger.rows if row.is_pure_decode and step_in_scope(row, scope)]
        targets = context.manifest.dispatch.targets
        min_share = context.policy.min_specialized_share
        whole = decide_share(
            count_served(inside, targets), "all requests", min_share, _reasons(inside, context.manifest)
        )
        findings = [finding_of(self, "all decode tokens", whole, evidence)]
        findings += self._by_suite(context, ledger, evidence)
        findings += self._by_batch(context, inside, evidence)
        findings.append(finding_of(self, "outside the scope", decide_outside(context, ledger), evidence))
        return findings

    def _by_suite(
        self, context: CheckContext, ledger: LedgerEvidence, evidence: Sequence[str]
    ) -> list[Finding]:
        """One finding for each suite and each timed cell."""
        sent: dict[str, list[SuiteItem]] = {}
        for name, item in client_items(context.evidence, Arm.CANDIDATE, self.tier):
            sent.setdefault(name, []).append(item)
        ids = (item.request_id for items in sent.values() for item in items)
        steps = index_token_steps(ledger, context.manifest, ids)
        evaluations = {f"suite {r.suite}" for r in context.evidence.of(EvalSetEvidence, tier=self.tier)}
        findings = []
        for name, items in sent.items():
            share = context.policy.min_specialized_share_of(name.removeprefix("suite "))
            rulings = [decide_share(count_token_steps(steps, items), name, share)]
            if name in evaluations:
                rulings.append(decide_batches(name, items, steps, share))
            findings.append(finding_of(self, name, combine_rulings(rulings), evidence))
        return findings

    def _by_batch(
        self, context: CheckContext, inside: Sequence[LedgerRow], evidence: Sequence[str]
    ) -> list[Finding]:
        """One finding for each batch that occurred, and one for those of the scope that did not."""
        served = served_by_batch(inside, context.manifest.dispatch.targets)
        share = context.policy.min_specialized_share
        findings = []
        for batch, counts in served.items():
            rows = [row for row in inside if row.num_reqs == batch]
            what = f"steps of {batch} requests"
            ruling = decide_share(counts, what, share, _reasons(rows, context.manifest))
            findings.append(finding_of(self, f"batch {batch}", ruling, evidence))
        unseen = [b for b in range(1, context.manifest.scope.max_batch + 1) if b not in served]
        if unseen:
            names = ", ".join(map(str, unseen))
            ruling = Ruling(
                outcome=Outcome.INCONCLUSIVE,
                message=f"No decode step held {names} requests, though the scope declares them: nothing is known "
                "of the path there.",
                advice="Send requests of unequal length together, so that every batch of the scope occurs.",
            )
            findings.append(finding_of(self, "batches that never occurred", ruling, evidence))
        return findings


def decide_batches(name: str, items: Iterable[SuiteItem], steps: TokenSteps, min_share: float) -> Ruling:
    """The share at every batch inside the scope in which an evaluation's decode tokens were made."""
    paths: dict[int, Counter[Path]] = {}
    for item in items:
        for step in steps.get(item.request_id, ()):
            if step.row.is_pure_decode and step.in_scope:
                paths.setdefault(step.batch, Counter())[step.path] += 1
    rulings = []
    for batch, counts in sorted(paths.items()):
        served = Served(
            specialized=counts[Path.SPECIALIZED],
            baseline=counts[Path.BASELINE],
            contradictory=counts[Path.CONTRADICTORY],
        )
        rulings.append(decide_share(served, f"{name} in steps of {batch} requests", min_share))
    wrong = [r for r in rulings if r.outcome is not Outcome.PASS]
    batches = ", ".join(map(str, sorted(paths)))
    even = Ruling(
        outcome=Outcome.PASS,
        message=f"At batch {batches or 'none'}: {len(rulings) - len(wrong)} of {len(rulings)} have that share.",
        measurements=tuple(m for r in rulings if r not in wrong for m in r.measurements),
    )
    return combine_rulings([even, *wrong])


def _reasons(rows: Iterable[LedgerRow], manifest: Manifest) -> tuple[str, ...]:
    """Why these steps were not served specialised, in tokens, most frequent first."""
    counts: Counter[str] = Counter()
    for row in rows:
        path = path_of(row, manifest.dispatch.targets)
        if path is not Path.SPECIALIZED:
            reasons = ", ".join(sorted({d.reason or "no reason given" for d in row.decisions}))
            text = f"batch {row.num_reqs}: {path}: {reasons or 'no decision was seen'}"
            counts[text] += sum(r.num_emitted_tokens for r in row.requests)
    return tuple(f"{count} tokens: {text}" for text, count in counts.most_common())


def decide_outside(context: CheckContext, ledger: LedgerEvidence) -> Ruling:
    """Steps beyond the declared batch, drafts or context must be the baseline's; "refuse" allows none at all.

    In prefill and mixed steps, which are nobody's decode tokens, only a contradiction is a fault.
    """
    scope, targets = context.manifest.scope, context.manifest.dispatch.targets
    beyond = {row.step: row for row in ledger.rows if not step_in_scope(row, scope)}
    beyond |= {row.step: row for row in _steps_beyond_context(context, ledger)}
    others = [r for r in ledger.rows if r.num_reqs and not r.is_pure_decode and r.step not in beyond]
    paths = Counter(path_of(row, targets) for row in others)
    wrong = [
        r for r in beyond.values() if scope.outside == "refuse" or path_of(r, targets) is not Path.BASELINE
    ]
    wrong += [row for row in others if path_of(row, targets) is Path.CONTRADICTORY]
    if wrong:
        return Ruling(
            outcome=Outcome.FAIL,
            message=f"{len(wrong)} steps outside the declared scope did not go where the manifest says "
            f"({scope.outside}), or contradict themselves.",
            advice="Make the dispatcher check the scope that the manifest declares, or declare what it serves.",
            details=tuple(_describe(row, context.manifest) for row in wrong),
        )
    return Ruling(
        outcome=Outcome.PASS,
        message=f"{len(beyond)} steps lay outside the declared batch, drafts or context, and the baseline served "
        f"them all. Of {len(others)} prefill and mixed steps, it served {paths[Path.BASELINE]}.",
    )


def _steps_beyond_context(context: CheckContext, ledger: LedgerEvidence) -> list[LedgerRow]:
    """Decode steps that read a longer context than the scope declares."""
    items = [item for _, item in client_items(context.evidence, Arm.CANDIDATE, ledger.tier)]
    steps = index_token_steps(ledger, context.manifest, (item.request_id for item in items))
    limit = context.manifest.scope.max_context
    found: dict[int, LedgerRow] = {}
    for item in items:
        for position, step in enumerate(steps.get(item.request_id, ())):
            if item.num_prompt_tokens + position > limit and step.row.is_pure_decode:
                found[step.row.step] = step.row
    return list(found.values())


def _describe(row: LedgerRow, manifest: Manifest) -> str:
    kind = "decode" if row.is_pure_decode else "prefill or mixed"
    path = path_of(row, manifest.dispatch.targets)
    reasons = ", ".join(sorted({d.reason for d in row.decisions if d.reason})) or "no reason given"
    return f"step {row.step}: {kind}, {row.num_reqs} requests: {path} ({reasons})"
