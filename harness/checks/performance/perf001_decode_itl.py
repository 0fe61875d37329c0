"""PERF001: decode-only inter-token latency is measured fairly on both arms. It claims no speed-up."""

from __future__ import annotations

from collections.abc import Sequence

from harness.checks.joins.ruling import Ruling, finding_of
from harness.checks.performance.cell_rulings import (
    FairCell,
    VoidCell,
    fair_measurements,
    load_lines,
    measure_batch,
)
from harness.model.check import BaseCheck, CheckContext
from harness.model.finding import Finding
from harness.model.words import Outcome, Principle, Tier

MAX_NOISE_HALF_WIDTH = 0.10
"""Of the A/A's interval: a measurement that says less than "within a tenth" is none."""


class DecodeItl(BaseCheck):
    """Paired, interleaved timing of full decode steps at each batch of the manifest."""

    id = "PERF001"
    title = "Decode inter-token latency is measured fairly on both arms at every declared batch"
    principle = Principle.PERFORMANCE
    tier = Tier.CPU
    requires = ("COR005",)
    how = (
        "Interleaved pairs of blocks; time a token from the ledger's full decode steps without prefill; A/A first; "
        "equal token counts; the client's pace as a cross-check. No speed-up is claimed."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """One finding a batch."""
        batches = context.manifest.performance.decode_batches
        if not batches:
            text = "The manifest names no decode batches to time."
            return [
                self.finding(Outcome.NOT_RUN, "decode latency", text, advice="Name them under [performance].")
            ]
        findings = []
        for batch in sorted(set(batches)):
            cell = measure_batch(context, batch, self.tier, max_half_width=MAX_NOISE_HALF_WIDTH)
            ruling = cell.ruling if isinstance(cell, VoidCell) else describe_cell(cell)
            findings.append(finding_of(self, f"batch {batch}", ruling, cell.evidence_ids))
        return findings


def describe_cell(cell: FairCell) -> Ruling:
    """The measured ratio as what it is: a number with its interval on named hardware."""
    ratio, noise = cell.timing.ratio, cell.noise.ratio
    return Ruling(
        outcome=Outcome.PASS,
        message=f"Measured at batch {cell.batch} on {cell.hardware}: candidate {cell.timing.other_itl_ms:.2f} ms a "
        f"token, baseline {cell.timing.reference_itl_ms:.2f} ms, ratio {ratio.estimate:.3f} (interval "
        f"{ratio.ci_low:.3f} to {ratio.ci_high:.3f}, {ratio.n} pairs; A/A {noise.estimate:.3f}). This tier claims no "
        "speed-up.",
        measurements=fair_measurements(cell),
        details=load_lines(cell.timing),
    )
