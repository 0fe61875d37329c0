"""A bundle of 200 checks and 5,000 suite items: `python -m tests.reports.large` prints what reporting on it costs."""

from __future__ import annotations

import itertools
import tempfile
import time
from pathlib import Path

from bundles.reader import read_bundle
from bundles.writer import EvidenceStore, seal
from harness.model.finding import Finding, Measurement
from harness.model.judgement import CheckSummary, Judgement, decide_verdict, worst
from harness.model.words import Arm, Outcome, Principle, Tier
from reports.html import render_html
from reports.view import build_view
from tests.bundles.examples import CHANGE, MANIFEST_TEXT, POLICY_TEXT, environment, plain_report, suite

NUM_CHECKS, NUM_ITEMS, NUM_FINDINGS = 200, 5000, 2


def write_large(folder: Path) -> None:
    """The bundle; its checks have two findings with a number each, a tenth of them failing."""
    store = EvidenceStore(folder)
    store.add(environment())
    ids = tuple(store.add(suite(which, NUM_ITEMS)) for which in (Arm.BASELINE, Arm.CANDIDATE))
    findings, summaries = [], []
    for i in range(NUM_CHECKS):
        check, principle, tier = f"CHK{i:03d}", list(Principle)[i % 4], list(Tier)[i % 5]
        own = [
            Finding(
                check=check, principle=principle, tier=tier, subject=f"cell {j}", evidence=ids,
                outcome=Outcome.FAIL if i % 10 == 0 else Outcome.PASS,
                message=f"Cell {j} of check {i} was compared item by item between both arms.",
                measurements=(
                    Measurement(name="ratio", unit="", estimate=1.01, ci_low=0.9, ci_high=1.1, margin=1.2, n=40),
                ),
            )
            for j in range(NUM_FINDINGS)
        ]  # fmt: skip
        findings += own
        outcome = worst([f.outcome for f in own])
        summaries.append(
            CheckSummary(
                check=check, title=f"Claim number {i} holds for every item", principle=principle, tier=tier,
                required=i % 2 == 0, outcome=outcome, num_findings=len(own),
            )
        )  # fmt: skip
    verdict, reason = decide_verdict(summaries)
    judgement = Judgement(
        verdict=verdict, reason=reason, change=CHANGE, manifest_sha256="0" * 64, policy_sha256="1" * 64,
        policy_version="x", harness_version="0.1.0", checks=tuple(summaries), findings=tuple(findings),
    )  # fmt: skip
    seal(
        folder, manifest_text=MANIFEST_TEXT, policy_text=POLICY_TEXT, judgement=judgement,
        render_report=plain_report,
    )  # fmt: skip


def main() -> None:
    """Print seconds and bytes."""
    with tempfile.TemporaryDirectory() as folder:
        times = [time.perf_counter()]
        write_large(Path(folder) / "b")
        times.append(time.perf_counter())
        bundle = read_bundle(Path(folder) / "b")
        times.append(time.perf_counter())
        html = render_html(build_view(bundle, {}))
        times.append(time.perf_counter())
    write_s, read_s, render_s = (b - a for a, b in itertools.pairwise(times))
    print(
        f"write {write_s:.2f} s, read {read_s:.2f} s, render {render_s:.2f} s, page {len(html.encode()):,} bytes"
    )


if __name__ == "__main__":
    main()
