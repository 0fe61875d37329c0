"""COR006: what the specialised path hands over is what the baseline would have handed over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from harness.checks.joins.probes import find_handover, find_probe, formats_of
from harness.checks.joins.ruling import Ruling, finding_of
from harness.model.check import BaseCheck, CheckContext
from harness.model.evidence import HandoverEvidence, ProbeEvidence
from harness.model.finding import Finding, Measurement
from harness.model.ledger import LedgerRow, Path, path_of
from harness.model.manifest import Manifest, ScopeSection
from harness.model.policy import Policy
from harness.model.probe import DUMMY_LOADER, HandoverStep
from harness.model.step_kind import StepKind, kind_of
from harness.model.words import Outcome, Principle, Tier

MIN_TIE_NATS = 1e-3
"""Two tokens closer than this are a tie in single precision; a coarser declared class widens it in proportion."""
TIE_PER_DIFFERENCE = 100.0
MAX_TIE_NATS = 0.5


class HandOver(BaseCheck):
    """States and cache rows at the start of every step, against a twin that never took the path."""

    id = "COR006"
    title = "Whichever path a request leaves, the other continues it from the same state"
    principle = Principle.CORRECTNESS
    tier = Tier.CPU
    how = (
        "Runs the same script on the candidate and on a twin with the switch unset, and compares what every step "
        "starts from: states, convolution windows, cache rows, and the tokens sampled."
    )

    twinned: frozenset[str] | None = None
    """Engines that a twin runs, too; None: all."""

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """One finding a scenario, and one for each kind of hand-over that must occur."""
        probe, handover = find_probe(context, self.tier), find_handover(context, self.tier)
        for missing in (probe, handover):
            if isinstance(missing, Ruling):
                return [finding_of(self, "hand-overs", missing)]
        assert not isinstance(probe, Ruling) and not isinstance(handover, Ruling)
        evidence = (probe.id, handover.id)
        state = context.manifest.state
        limit = state.max_relative_difference if state is not None else 0.0
        refused = decide_limit(limit, formats_of(handover), context.policy)
        if refused is not None:
            return [finding_of(self, "declared difference", refused, evidence)]
        unlike = decide_weights(probe, handover)
        if unlike is not None:
            return [finding_of(self, "weights", unlike, evidence)]
        rows = {(s.engine, s.scenario, s.position): s.row for s in probe.steps}
        findings = []
        for (engine, scenario), steps in groupby(handover.steps, key=lambda s: (s.engine, s.scenario)):
            walk = _walk(list(steps), rows, context.manifest)
            findings.append(finding_of(self, f"{engine}, {scenario}", decide_scenario(walk, limit), evidence))
        compared = {(step.engine, step.scenario) for step in handover.steps}
        for engine, scenario in sorted(self._expected(probe) - compared):
            findings.append(finding_of(self, f"{engine}, {scenario}", _NO_TWIN, evidence))
        causes = set(found_causes(handover.steps, rows, context.manifest))
        is_seen = any(_is_fast(w) for w in _walk(handover.steps, rows, context.manifest) if w.step.same_work)
        ruling = decide_causes(causes, context.manifest.scope) if is_seen else _NOTHING_FAST
        return [*findings, finding_of(self, "fast, standard, fast", ruling, evidence)]

    def _expected(self, probe: ProbeEvidence) -> set[tuple[str, str]]:
        """Engine and scenario of what the twin is to run."""
        twinned = self.twinned
        return {(s.engine, s.scenario) for s in probe.steps if twinned is None or s.engine in twinned}


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkedStep:
    """A step with the path that the candidate took."""

    step: HandoverStep
    path: Path | None
    """None when the ledger has no such step."""


_NO_TWIN = Ruling(
    outcome=Outcome.INCONCLUSIVE,
    message="The twin did not run this script, so nothing can be compared.",
    advice="Run the tier again; both must run every script.",
)
_NOTHING_FAST = Ruling(
    outcome=Outcome.INCONCLUSIVE,
    message="No compared step was specialised, so the path handed nothing over.",
    advice="The scripted runs must reach the path on the candidate.",
)


def _is_fast(walked: WalkedStep) -> bool:
    """Whether specialised code ran in a step."""
    return walked.path not in (None, Path.BASELINE)


def decide_weights(probe: ProbeEvidence, handover: HandoverEvidence) -> Ruling | None:
    """Weights that let nothing be compared: other ones on the two sides, or the engine's dummy ones."""
    compared = {step.engine for step in handover.steps}
    ours, theirs = (
        {e.name: e.weights for e in engines if e.name in compared}
        for engines in (probe.engines, handover.twin_engines)
    )
    drawn = [w for found in (ours, theirs) for w in found.values() if w is not None]
    if any(weights.by == DUMMY_LOADER for weights in drawn):
        return Ruling(
            outcome=Outcome.INCONCLUSIVE,
            message="The engine's dummy loader drew the weights: copies that weight loaders keep for the engine's own "
            "kernels, and what is packed in whole numbers, are whatever memory held, so the twin is no baseline.",
            advice="Name a function under [models.slice] weights that sets all that the loaders would.",
        )
    if drawn and ours != theirs:
        return Ruling(
            outcome=Outcome.INCONCLUSIVE,
            message=f"{drawn[0].by} did not give the candidate and its twin the same weights.",
            advice="Draw from a seed, and leave nothing as memory was.",
            details=tuple(
                f"{name}: {side} {'from a checkpoint or not told' if w is None else w.digest}"
                for side, found in (("candidate", ours), ("twin", theirs))
                for name, w in sorted(found.items())
            ),
        )
    return None


def decide_limit(limit: float, formats: Iterable[str], policy: Policy) -> Ruling | None:
    """A manifest that asks for more than the policy allows in one of the formats; None when it does not."""
    for name in sorted(formats):
        most = policy.max_state_difference_in(name)
        if most is None:
            return Ruling(
                outcome=Outcome.INCONCLUSIVE,
                message=f"States pass through {name}, whose rounding no bound here tells from a wrong state.",
                advice="Compare a deployment that computes and caches in bfloat16, float16 or float32.",
            )
        if limit > most:
            return Ruling(
                outcome=Outcome.FAIL,
                message=f"The manifest declares a state difference of {limit:g}; "
                f"the policy allows at most {most:g} in {name}.",
                advice="Declare a smaller [state] max_relative_difference.",
            )
    return None


def decide_scenario(walk: Sequence[WalkedStep], limit: float) -> Ruling:
    """Whether every step of a scenario started from the twin's state, within the declared difference."""
    compared = [w for w in walk if w.step.same_work]
    far = [w for w in compared if _largest(w.step) > limit]
    others = [w for w in compared if w.step.other_token]
    tie = min(MAX_TIE_NATS, max(MIN_TIE_NATS, TIE_PER_DIFFERENCE * limit))
    wrong = [w for w in others if w.step.top_gap is None or w.step.top_gap > tie]
    starts = sum(w.step.num_starts for w in compared)
    largest = max((_largest(w.step) for w in compared), default=0.0)
    measurement = Measurement(
        name="largest state difference, relative", unit="ratio", estimate=largest, margin=limit, n=starts
    )
    lost = len(walk) - len(compared)
    if far or wrong:
        outcome = Outcome.FAIL
        text = (
            f"{len(far)} of {len(compared)} steps start from other states or cache rows than the twin's "
            f"(up to {largest:.1e} of the largest magnitude, {limit:g} declared); "
            f"{len(wrong)} sampled another token without a tie."
        )
    elif not starts or not any(w.step.states.num_words or w.step.caches.num_words for w in compared):
        outcome, text = Outcome.INCONCLUSIVE, "No step continued from a state, so nothing was handed over."
    elif any(w.path is None for w in walk):
        outcome = Outcome.INCONCLUSIVE
        text = "The candidate's ledger does not hold every step, so which path handed over is not known."
    elif not any(_is_fast(w) for w in compared):
        outcome = Outcome.NOT_APPLICABLE
        text = f"None of {len(compared)} compared steps was specialised, so the path handed nothing over."
    elif lost:
        outcome = Outcome.INCONCLUSIVE
        text = f"After a tie or another schedule {lost} of {len(walk)} steps could not be compared any more."
    else:
        outcome = Outcome.PASS
        text = (
            f"{starts} continuations over {len(compared)} steps start from the twin's states and cache rows, "
            f"within {largest:.1e} of the largest magnitude ({limit:g} declared), and sample its tokens"
            + (f", but for {len(others)} ties." if others else ".")
        )
    return Ruling(
        outcome=outcome,
        message=text,
        advice="Compare the first step below with the one before it: that one left the state."
        if outcome is Outcome.FAIL
        else "",
        measurements=(measurement,),
        details=tuple(_describe(walk, w) for w in (*far, *(o for o in others if o not in far))),
    )


def _largest(step: HandoverStep) -> float:
    return max(step.states.largest, step.caches.largest)


def _describe(walk: Sequence[WalkedStep], found: WalkedStep) -> str:
    step = found.step
    before = walk[walk.index(found) - 1].path if walk.index(found) else None
    parts = [f"step {step.position} ({found.path}, after {before or 'nothing'}):"]
    for name, distance in (("state", step.states), ("cache", step.caches)):
        if distance.num_differing:
            parts.append(
                f"{name}: {distance.num_differing} of {distance.num_words} numbers, "
                f"{distance.largest:.1e} at {distance.worst};"
            )
    if step.other_token:
        gap = "unknown" if step.top_gap is None else f"{step.top_gap:.1e} nats"
        parts.append(f"{step.other_token} sampled another token, the twin's two best are {gap} apart")
    return " ".join(parts)


def _walk(
    steps: Sequence[HandoverStep], rows: Mapping[tuple[str, str, int], LedgerRow], manifest: Manifest
) -> list[WalkedStep]:
    found = []
    for step in steps:
        row = rows.get((step.engine, step.scenario, step.position))
        path = None if row is None else path_of(row, manifest.dispatch.targets)
        found.append(WalkedStep(step=step, path=path))
    return found


def found_causes(
    steps: Sequence[HandoverStep], rows: Mapping[tuple[str, str, int], LedgerRow], manifest: Manifest
) -> Iterator[str]:
    """Why the standard path ran between two specialised steps of one scenario, as compared steps show it."""
    for _, group in groupby(steps, key=lambda s: (s.engine, s.scenario)):
        between: list[str] | None = None
        for step in group:
            row = rows.get((step.engine, step.scenario, step.position))
            if row is None or not step.same_work:
                between = None
                continue
            path = path_of(row, manifest.dispatch.targets)
            if path is Path.SPECIALIZED:
                yield from between or ()
                between = []
            elif between is not None:
                between += _causes(row, manifest.scope)


def _causes(row: LedgerRow, scope: ScopeSection) -> Iterator[str]:
    kind = kind_of(row)
    if kind is not None and kind not in scope.steps:
        yield str(kind)
    elif row.num_reqs > scope.max_batch:
        yield "batch"


def decide_causes(found: set[str], scope: ScopeSection) -> Ruling:
    """Whether the path was left and entered again at every edge at which the scope makes it happen."""
    wanted = {str(kind) for kind in (StepKind.MIXED, StepKind.RAGGED_VERIFY) if kind not in scope.steps}
    if not scope.max_draft_tokens:
        wanted.discard(str(StepKind.RAGGED_VERIFY))
    if scope.outside == "fall back":
        wanted.add("batch")
    unseen = sorted(wanted - found)
    return Ruling(
        outcome=Outcome.INCONCLUSIVE if unseen else Outcome.PASS,
        message=f"The path was left and entered again because of: {', '.join(sorted(found)) or 'nothing'}."
        + (f" It never was because of: {', '.join(unseen)}." if unseen else ""),
        advice="The scripted runs must reach these edges on the candidate." if unseen else "",
    )
