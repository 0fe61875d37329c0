"""The answers that a served feature is judged by, or why there is nothing to judge."""

from __future__ import annotations

from dataclasses import dataclass

from harness.checks.joins.pairing import SuiteArms, Triple, find_suite_arms, pair_items
from harness.checks.joins.ruling import Ruling, finding_of
from harness.model.check import BaseCheck, CheckContext
from harness.model.features import Feature
from harness.model.finding import Finding
from harness.model.words import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureAnswers:
    """A feature's suite on all three arms."""

    arms: SuiteArms
    triples: tuple[Triple, ...]
    findings: tuple[Finding, ...]
    """What is wrong with the pairing; without triples nothing else can be said."""


def read_answers(
    check: BaseCheck, context: CheckContext, *, feature: Feature, suite: str, subject: str
) -> FeatureAnswers | Finding:
    """The feature's answers, or the finding that says that it is not claimed or not collected.

    Args:
        check: The check that asks.
        context: Evidence, manifest and policy.
        feature: The feature.
        suite: The suite that tries it.
        subject: What a finding about requests that cannot be paired is called.
    """
    if left_out := undeclared(check, context, feature):
        return left_out
    arms = find_suite_arms(context.evidence, suite, check.tier)
    if isinstance(arms, Ruling):
        return finding_of(check, feature, arms)
    triples, incomplete = pair_items(arms)
    findings = (finding_of(check, subject, incomplete, arms.evidence_ids),) if incomplete else ()
    return FeatureAnswers(arms=arms, triples=triples, findings=findings)


def undeclared(check: BaseCheck, context: CheckContext, feature: Feature) -> Finding | None:
    """The finding for a feature that the manifest leaves out; None when it is declared.

    Leaving out is the change's own choice, so it lets nothing through that the policy asks for.
    """
    if feature in context.manifest.features:
        return None
    text = f"The manifest does not claim {feature} for this path"
    if check.id in context.policy.required_checks:
        return check.finding(
            Outcome.INCONCLUSIVE,
            feature,
            f"{text}, and the policy requires it.",
            advice=f"Add {feature} to `features` in the manifest, or a policy without {check.id}.",
        )
    return check.finding(Outcome.NOT_APPLICABLE, feature, f"{text}, and the policy does not require it.")
