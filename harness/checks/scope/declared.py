"""Whether a change claims a served feature; one that the policy requires cannot be left out."""

from __future__ import annotations

from harness.model.check import BaseCheck, CheckContext
from harness.model.finding import Finding
from harness.model.manifest import Feature
from harness.model.words import Outcome


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
