"""The judge's own A/A: clean changes are simulated, and what the checks of the cpu tier say of them is counted.

    python tools/simulate_clean.py 200 [FIRST_SEED]

A made engine (`tests/harness/checks/evidence_builder.py`) serves three arms that compute the same up to rounding noise
and take the same time up to timing noise; every seed is another draw of both. docs/selftest.md says what was found.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.model.words import Outcome
from harness.stats.binomial import clopper_pearson
from tests.harness.checks.evidence_builder import World, build_evidence, context_of
from tests.harness.checks.test_clean_evidence import CPU_CHECKS, outcome_of

NOISES = (0.0, 1e-5, 1e-4, 1e-3)
"""Nats on the logits of every arm: none, rounding in single precision, and more."""
TIMING_NOISES = (0.005, 0.01, 0.02)
"""Standard deviation of the log time of a block."""


def clean_world(seed: int) -> World:
    """A candidate that is a second baseline in all but name and path."""
    noise = NOISES[seed % len(NOISES)]
    timing_noise = TIMING_NOISES[seed % len(TIMING_NOISES)]
    return World(
        seed=seed,
        noise=noise,
        noise_again=noise,
        noise_baseline=noise,
        speed=1.0,
        timing_noise=timing_noise,
    )


def main(arguments: Sequence[str]) -> int:
    """Prints the counts; 1 when a clean change was rejected."""
    number, first = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 0
    rejected = undecided = 0
    by_check = Counter[tuple[str, str]]()
    for seed in range(first, first + number):
        context = context_of(build_evidence(clean_world(seed)))
        open_checks = {
            check.id: outcome
            for check in CPU_CHECKS
            if (outcome := outcome_of(check, context)) is not Outcome.PASS
        }
        by_check.update((check, str(outcome)) for check, outcome in open_checks.items())
        rejected += Outcome.FAIL in open_checks.values()
        undecided += bool(open_checks) and Outcome.FAIL not in open_checks.values()
    for what, count in (("rejected", rejected), ("undecided", undecided)):
        low, high = clopper_pearson(count, number, alpha=0.05)
        print(f"{what}: {count} of {number} clean changes ({low:.1%} to {high:.1%}, 95% exact interval)")
    for (check, outcome), count in sorted(by_check.items()):
        print(f"  {check} {outcome}: {count}")
    return int(rejected > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
