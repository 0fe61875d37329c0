"""PERF002: on the GPU, decode is not slower in any required cell, and every stated speed-up is measured."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import log

from harness.checks.joins.arm_proof import ONE_PROCESS, find_problems, shared_between_arms
from harness.checks.joins.missing import missing_ruling
from harness.checks.joins.probes import find_graphs
from harness.checks.joins.ruling import Ruling, combine_rulings, finding_of
from harness.checks.joins.token_steps import timing_cells
from harness.checks.performance.cell_rulings import (
    FairCell,
    VoidCell,
    fair_measurements,
    interval_words,
    is_biased,
    load_lines,
    measure_batch,
)
from harness.checks.performance.graph_kernels import hold_to_graphs
from harness.model.check import BaseCheck, CheckContext
from harness.model.finding import Finding, Measurement
from harness.model.manifest import Claim
from harness.model.policy import Policy
from harness.model.words import Arm, Outcome, Principle, Tier
from harness.stats.margins import decide_above, decide_below
from harness.stats.paired_ratio import needed_pairs, sign_flip_p

SLOWER = "The path is slower than the baseline at this batch: correct it, or leave the batch out of scope."


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
        "bound and an exact sign-flip test) in the GPU's busy time a token, and in wall time where its A/A is quiet; "
        "a claim needs the lower bound of the speed-up in wall time."
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
        measure = partial(measure_batch, context, tier=self.tier, max_half_width=context.policy.itl_margin)
        cells = {batch: measure(batch) for batch in performance.batches}
        found = find_graphs(context, self.tier)
        graphs = None if isinstance(found, Ruling) else found
        findings = []
        for batch, cell in cells.items():
            busy = hold_to_graphs(measure(batch, is_profiled=True), graphs)
            ruling = decide_batch(cell, busy, context.policy)
            ids = tuple(dict.fromkeys((*cell.evidence_ids, *busy.evidence_ids)))
            findings.append(finding_of(self, f"batch {batch}", ruling, ids))
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


def decide_batch(wall: FairCell | VoidCell, busy: FairCell | VoidCell, policy: Policy) -> Ruling:
    """The GPU's busy time decides, and the wall time is held to what it can show; a fault of its cells voids both."""
    if isinstance(wall, VoidCell) and wall.noisy is None:
        return wall.ruling
    by_wall = decide_noisy(wall, policy) if isinstance(wall, VoidCell) else decide_not_slower(wall, policy)
    by_busy = busy.ruling if isinstance(busy, VoidCell) else decide_not_slower(busy, policy)
    return combine_rulings([by_busy, by_wall])


def decide_noisy(cell: VoidCell, policy: Policy) -> Ruling:
    """Wall time beside an A/A that is not quiet: it shows nothing but a candidate that is slower all the same.

    Where two baselines differ by more than the margin, the bar is as much higher as they can differ, either way.
    """
    assert cell.noisy is not None
    ratio, noise = cell.noisy.timing.ratio, cell.noisy.noise.ratio
    limit = 1 + policy.itl_margin
    if is_biased(noise, policy.itl_margin):
        limit *= max(noise.ci_high, 1 / noise.ci_low)
    is_slower = ratio.ci_low > limit
    shows = f"lies beyond {limit:.3f} all the same" if is_slower else "is told and decides nothing"
    return Ruling(
        outcome=Outcome.FAIL if is_slower else Outcome.NOT_APPLICABLE,
        message=f"Wall time: candidate / baseline {interval_words(ratio)} {shows}: {cell.ruling.message}",
        advice=SLOWER if is_slower else "",
        measurements=fair_measurements(cell.noisy),
        details=(*load_lines(cell.noisy.timing), *cell.ruling.details),
    )


def decide_not_slower(cell: FairCell, policy: Policy) -> Ruling:
    """Whether the candidate takes at most the margin more time a token than the baseline, of whichever clock."""
    ratio, limit = cell.timing.ratio, 1 + policy.itl_margin
    outcome = decide_below(ratio.ci_low, ratio.ci_high, limit)
    p = sign_flip_p([r - log(limit) for r in ratio.log_ratios])
    if outcome is Outcome.PASS and p > policy.alpha:
        outcome = Outcome.INCONCLUSIVE
    what = "The GPU's busy time a token" if cell.timing.is_profiled else "Wall time"
    advice = ""
    if outcome is Outcome.FAIL:
        advice = SLOWER
    elif outcome is Outcome.INCONCLUSIVE:
        distance = max(abs(log(limit) - log(ratio.estimate)), 1e-4)
        wanted = max(needed_pairs(ratio.sd, distance, alpha=policy.alpha), ratio.n + 1)
        advice = f"Collect about {wanted} pairs instead of {ratio.n}."
    return Ruling(
        outcome=outcome,
        message=f"{what} at batch {cell.batch} on {cell.hardware}: candidate / baseline {ratio.estimate:.4f} (interval "
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
