"""A change cannot let itself off a feature that the policy requires."""

from __future__ import annotations

import pytest

from harness.checks.registry import all_checks
from harness.model.words import Outcome, Tier
from tests.harness.checks.evidence_builder import MANIFEST, POLICY, context_of

SCOPE_CHECKS = ("SCO001", "SCO002", "SCO003")


@pytest.mark.parametrize("check_id", SCOPE_CHECKS)
def test_leaving_out_a_feature_that_the_policy_requires_lets_nothing_through(check_id: str) -> None:
    check = next(c for c in all_checks() if c.id == check_id)
    manifest = MANIFEST.model_copy(update={"features": ()})
    policy = POLICY.model_copy(update={"required": {Tier.CPU: SCOPE_CHECKS}})
    (finding,) = check.run(context_of((), manifest, policy))
    assert finding.outcome is Outcome.INCONCLUSIVE
