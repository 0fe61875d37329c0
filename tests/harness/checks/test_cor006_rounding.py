"""COR006 in bfloat16: rounding by other kernels passes at the policy's bound, and a wrong hand-over does not."""

from __future__ import annotations

from functools import cache

import pytest

from harness.checks.correctness.cor006_hand_over import HandOver
from harness.engine.probe.cache_layout import largest_difference
from harness.model.policy import Policy
from harness.model.probe import HandoverStep
from harness.model.words import Outcome
from tests.harness.checks.evidence_builder import POLICY
from tests.harness.checks.made_rounding import LAYERS, STEPS, Numbers, Served, serve, to_bfloat16, unrounded
from tests.harness.checks.probe_builder import PROBED, STATE, handover, probe, probed_context

BOUND = 4 * 2.0**-7


@cache
def served(request: int, rounds: bool) -> Served:
    return serve(request=request, within=to_bfloat16 if rounds else unrounded)


def twin(request: int = 1) -> Served:
    return served(request, True)


def fast(request: int = 1) -> Served:
    """By kernels that round less."""
    return served(request, False)


def apart(ours: Numbers, theirs: Numbers) -> float:
    """As the probe tells it of one step: the largest of all layers."""
    return max(largest_difference(ours[layer].ravel(), theirs[layer].ravel())[1] for layer in range(LAYERS))


def outcome_of(
    largest: float, *, number_format: str = "bfloat16", declared: float = BOUND, policy: Policy = POLICY
) -> Outcome:
    """Of the check, when every engine computes in that format and one step starts as far away as that."""

    def change(step: HandoverStep) -> HandoverStep:
        far = step.states.model_copy(update={"largest": largest})
        return step.model_copy(update={"states": far} if step.position == 1 else {})

    beside = handover(change=change).model_copy(
        update={"formats": {"plain": number_format, "verify": number_format}}
    )
    state = STATE.model_copy(update={"max_relative_difference": declared})
    context = probed_context(
        probe(), beside, manifest=PROBED.model_copy(update={"state": state}), policy=policy
    )
    return HandOver().run(context)[0].outcome


def test_what_other_kernels_round_otherwise_passes() -> None:
    states = [apart(fast().states[step], twin().states[step]) for step in range(STEPS)]
    rows = [apart(fast().rows[step], twin().rows[step]) for step in range(STEPS)]
    assert max(*states, *rows) > POLICY.max_state_difference, "the bound of single precision would do"
    assert outcome_of(max(*states, *rows)) is Outcome.PASS


WRONG = {
    "one step late": min(apart(fast().states[t - 1], twin().states[t]) for t in range(1, STEPS)),
    "not written since the first step": apart(fast().states[0], twin().states[-1]),
    "another request's slot": min(apart(fast(2).states[t], twin().states[t]) for t in range(STEPS)),
    "a row of the token before": min(apart(fast().rows[t - 1], twin().rows[t]) for t in range(1, STEPS)),
    "another request's row": min(apart(fast(2).rows[t], twin().rows[t]) for t in range(STEPS)),
}
"""By fault, how far the nearest of all steps is from the twin's."""


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_hand_over_is_no_rounding(fault: str) -> None:
    assert outcome_of(WRONG[fault]) is Outcome.FAIL


@pytest.mark.parametrize(
    ("number_format", "declared", "outcome"),
    [
        ("float32", 1e-3, Outcome.PASS),
        ("float32", BOUND, Outcome.FAIL),
        ("float16", 4 * 2.0**-10, Outcome.PASS),
        ("float16", BOUND, Outcome.FAIL),
        ("bfloat16", BOUND, Outcome.PASS),
        ("bfloat16", 1.01 * BOUND, Outcome.FAIL),
        ("float8_e4m3fn", 1e-3, Outcome.INCONCLUSIVE),
    ],
)
def test_a_manifest_may_declare_as_much_as_the_format_rounds(
    number_format: str, declared: float, outcome: Outcome
) -> None:
    assert outcome_of(1e-5, number_format=number_format, declared=declared) is outcome


def test_an_engine_of_unknown_format_is_held_to_single_precision() -> None:
    beside = handover()
    state = STATE.model_copy(update={"max_relative_difference": BOUND})
    manifest = PROBED.model_copy(update={"state": state})
    (finding,) = HandOver().run(probed_context(probe(), beside, manifest=manifest))
    assert finding.outcome is Outcome.FAIL
