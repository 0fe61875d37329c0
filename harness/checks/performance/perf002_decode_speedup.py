"""PERF002: on the GPU, decode is not slower in any required cell, and every stated speed-up is measured."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

from harness.checks.joins.arm_proof import ONE_PROCESS, find_problems, shared_between_arms
from harness.checks.joins.missing import missing_ruling
from harness.checks.joins.ruling import Ruling, finding_of
from harness.checks.joins.token_steps import timing_cells
from harness.checks.performance.cell_rulings import (
    FairCell,
    VoidCell,
    fair_measurements,
    load_lines,
    measure_batch,
)
from harness.model.check import BaseCheck, CheckContext
from harness.model.finding import Finding, Measurement
from harness.model.manifest import Claim
from harness.model.policy import Policy
from harness.model.words import Arm, Outcome, Principle, Tier
from harness.stats.margins import decide_above, decide_below
from harness.stats.paired_ratio import needed_pairs, sign_flip_p


class DecodeSpeedup(BaseCheck):
    """Non-inferiority in every required cell, and the manifest's claims against the measured speed-up."""

    id = "PERF002"
    title = "On the GPU, decode is slower at no declared batch, and every stated speed-up is measured"
    principle = Principle.PERFORMANCE
    tier = Tier.GPU
    # COR005 judges the arms of the cpu tier; those of this one are held to its bars below.
    requires = ()
    how = (
        "Paired blocks as in PERF001, on a GPU; each batch must be non-inferior by the policy's margin (Student's "
        "bound and an exact sign-flip test); a claim needs the lower bound of the speed-up."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """One finding a batch and one a claim; `not_run` without timings of the gpu tier."""
        performance = context.manifest.performance
        subject = "decode speed-up"
        if not timing_cells(context.evidence, self.tier):
            ruling = missing_ruling(
                context.evidence, self.tier, "decode timed on a GPU: needs the gpu tier", "timing"
            )
            return [finding_of(self, subject, ruling)]
        void = self._void_arms(context)
        if void:
            return void
        if not performance.decode_batches:
            text = "The manifest names no decode batches to time."
            return [self.finding(Outcome.NOT_RUN, subject, text, advice="Name them under [performance].")]
        cells = {
            batch: measure_batch(context, batch, self.tier, max_half_width=context.policy.itl_margin)
            for batch in performance.batches
        }
        findings = []
        for batch, cell in cells.items():
            ruling = cell.ruling if isinstance(cell, VoidCell) else decide_not_slower(cell, context.policy)
            findings.append(finding_of(self, f"batch {batch}", ruling, cell.evidence_ids))
        for claim in performance.claims:
            cell = cells[claim.batch]
            subject = f"claim: {claim.value:g}x at batch {claim.batch} on {claim.hardware}"
            findings.append(
                finding_of(self, subject, decide_claim(claim, cell, context.policy), cell.evidence_ids)
            )
        return findings

    def _void_arms(self, context: CheckContext) -> list[Finding]:
        """Records of this tier's arms that do not count, judged as COR005 judges those of the cpu tier."""
        findings = []
        shared = shared_between_arms(context.evidence, list(Arm), self.tier)
        for arm in Arm:
            if context.evidence.arm(arm, self.tier) is None:
                ruling = missing_ruling(context.evidence, self.tier, f"the {arm} arm on a GPU", f"arm {arm}")
                findings.append(finding_of(self, f"arm {arm}", ruling))
                continue
            problems = [(p.text, p.details) for p in find_problems(context, arm, self.tier)]
            if arm in shared:
                problems.insert(0, (ONE_PROCESS, shared[arm]))
            if problems:
                text = "The arm's records do not count: " + "; ".join(text for text, _ in problems) + "."
                details = [line for _, lines in problems for line in lines]
                findings.append(self.finding(Outcome.ERROR, f"arm {arm}", text, details=details))
        arms = [found for arm in Arm if (found := context.evidence.arm(arm, self.tier)) is not None]
        if len({found.weights for found in arms}) > 1:
            text = "The timed arms were not given the same weights."
            told = [
                f"{f.arm}: {f.weights.digest or f.weights.by if f.weights else 'none told'}" for f in arms
            ]
            findings.append(self.finding(Outcome.INCONCLUSIVE, "weights of the arms", text, details=told))
        return findings


def decide_not_slower(cell: FairCell, policy: Policy) -> Ruling:
    """Whether the candidate takes at most the margin more time a token than the baseline."""
    ratio, limit = cell.timing.ratio, 1 + policy.itl_margin
    outcome = decide_below(ratio.ci_low, ratio.ci_high, limit)
    p = sign_flip_p([r - log(limit) for r in ratio.log_ratios])
    if outcome is Outcome.PASS and p > policy.alpha:
        outcome = Outcome.INCONCLUSIVE
    advice = ""
    if outcome is Outcome.FAIL:
        advice = (
            "The path is slower than the baseline at this batch: correct it, or leave the batch out of scope."
        )
    elif outcome is Outcome.INCONCLUSIVE:
        distance = max(abs(log(limit) - log(ratio.estimate)), 1e-4)
        wanted = max(needed_pairs(ratio.sd, distance, alpha=policy.alpha), ratio.n + 1)
        advice = f"Collect about {wanted} pairs instead of {ratio.n}."
    return Ruling(
        outcome=outcome,
        message=f"Batch {cell.batch} on {cell.hardware}: candidate / baseline {ratio.estimate:.4f} (interval "
        f"{ratio.ci_low:.4f} to {ratio.ci_high:.4f}, {ratio.n} pairs), limit {limit:.2f}; exact sign-flip p {p:.3f}.",
        advice=advice,
        measurements=fair_measurements(cell, limit),
        details=load_lines(cell.timing),
    )


def decide_claim(claim: Claim, cell: FairCell | VoidCell, policy: Policy) -> Ruling:
    """Whether the measured speed-up reaches the claimed figure, less the margin of measurement.

    The lower bound of baseline / candidate must reach that bar, which for a claim above 1 is never below 1, and the
    claimed figure itself must lie below the upper bound.
    """
    if isinstance(cell, VoidCell):
        return Ruling(
            outcome=Outcome.INCONCLUSIVE if cell.ruling.outcome is Outcome.FAIL else cell.ruling.outcome,
            message=f"The claim has no fair measurement to rest on. {cell.ruling.message}",
            advice=cell.ruling.advice,
        )
    if claim.hardware.casefold() not in cell.hardware.casefold():
        return Ruling(
            outcome=Outcome.NOT_RUN,
            message=f"The claim is about {claim.hardware}; the cell was timed on {cell.hardware}.",
            advice=f"Time the cell on {claim.hardware}, or state the claim for what was timed.",
        )
    ratio = cell.timing.ratio
    estimate, low, high = 1 / ratio.estimate, 1 / ratio.ci_high, 1 / ratio.ci_low
    bar = claim.value * (1 - policy.itl_margin)
    if claim.value > 1:
        bar = max(bar, 1.0)
    outcome = decide_above(low, high, bar)
    if outcome is Outcome.PASS and high < claim.value:
        outcome = Outcome.INCONCLUSIVE
    return Ruling(
        outcome=outcome,
        message=f"Claimed {claim.value:g}x at batch {claim.batch}; measured {estimate:.3f}x (interval {low:.3f} to "
        f"{high:.3f}, {ratio.n} pairs) on {cell.hardware}, bar {bar:.3f}.",
        advice=""
        if outcome is Outcome.PASS
        else "State the figure that the evidence shows, or collect more pairs.",
        measurements=(
            Measurement(
                name=f"decode ITL speed-up, batch {claim.batch}",
                unit="ratio",
                estimate=estimate,
                ci_low=low,
                ci_high=high,
                margin=bar,
                n=ratio.n,
                hardware=cell.hardware,
            ),
        ),
    )
