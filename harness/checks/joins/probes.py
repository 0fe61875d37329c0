"""The records of the scripted runs, or why there are none to judge by."""

from __future__ import annotations

from collections.abc import Iterable

from harness.checks.joins.arm_proof import Problem, find_process_problems
from harness.checks.joins.missing import missing_ruling
from harness.checks.joins.ruling import Ruling
from harness.model.check import CheckContext
from harness.model.evidence import (
    ArmEvidence,
    CapturedPointersEvidence,
    HandoverEvidence,
    ProbeEvidence,
)
from harness.model.judgement import worst
from harness.model.number_format import SINGLE
from harness.model.words import Arm, Outcome, Tier

PROBE = "probe"
"""How gaps name the scripted runs: "probe of candidate"."""
GRAPHS = "captured graphs"
"""How gaps name what was seen of them."""


def find_probe(context: CheckContext, tier: Tier) -> ProbeEvidence | Ruling:
    """The candidate's scripted run, or the ruling that there is none that counts."""
    found = [r for r in context.evidence.of(ProbeEvidence, tier=tier) if r.arm is Arm.CANDIDATE]
    if not found:
        return missing_ruling(context.evidence, tier, "the candidate's scripted run", PROBE)
    return _void([found[-1].process], context) or found[-1]


def find_handover(context: CheckContext, tier: Tier) -> HandoverEvidence | Ruling:
    """The candidate's scripted run beside its twin's, or the ruling that there is none that counts."""
    found = [r for r in context.evidence.of(HandoverEvidence, tier=tier) if r.arm is Arm.CANDIDATE]
    if not found:
        return missing_ruling(context.evidence, tier, "the candidate's scripted run beside its twin's", PROBE)
    return _void([found[-1].twin], context) or found[-1]


def find_graphs(context: CheckContext, tier: Tier) -> CapturedPointersEvidence | Ruling:
    """The candidate's captured graphs, or the ruling that there are none that count."""
    found = [r for r in context.evidence.of(CapturedPointersEvidence, tier=tier) if r.arm is Arm.CANDIDATE]
    if not found:
        need = f"{GRAPHS} of {Arm.CANDIDATE}"
        return missing_ruling(context.evidence, tier, "the candidate's captured graphs", need)
    return _void([found[-1].process], context) or found[-1]


def allowed_difference(context: CheckContext, handover: HandoverEvidence) -> float:
    """How far numbers of the cache may be from the twin's: as declared, and nowhere more than the policy allows in the
    formats that were compared."""
    state = context.manifest.state
    declared = state.max_relative_difference if state is not None else 0.0
    most = [context.policy.max_state_difference_in(name) or 0.0 for name in formats_of(handover)]
    return min([declared, *most])


def formats_of(handover: HandoverEvidence) -> set[str]:
    """The coarsest number format of each engine that was compared."""
    return {handover.formats.get(step.engine, SINGLE) for step in handover.steps}


def _void(processes: Iterable[ArmEvidence], context: CheckContext) -> Ruling | None:
    problems = [(p.arm, found) for p in processes for found in find_process_problems(context, p)]
    if not problems:
        return None
    outcomes: list[Outcome] = [found.outcome for _, found in problems]
    return Ruling(
        outcome=Outcome.ERROR if Outcome.ERROR in outcomes else worst(outcomes),
        message="A scripted run does not count: " + "; ".join(_name(a, p) for a, p in problems) + ".",
        advice="Run the tier again; if it repeats, start with the process's log below.",
        details=tuple(line for _, found in problems for line in found.details),
    )


def _name(arm: Arm, problem: Problem) -> str:
    return f"{arm}: {problem.text}"
