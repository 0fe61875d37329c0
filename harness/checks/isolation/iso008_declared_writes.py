"""ISO008: a specialised step writes what the manifest declares, in the slots of its own requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

from harness.checks.joins.probes import allowed_difference, find_handover, find_probe
from harness.checks.joins.ruling import Ruling, finding_of
from harness.model.check import BaseCheck, CheckContext
from harness.model.evidence import HandoverEvidence, ProbeEvidence
from harness.model.finding import Finding
from harness.model.ledger import CodeTargets, Path, path_of
from harness.model.manifest import StateSection
from harness.model.probe import HandoverStep, Place, ProbeStep, Write
from harness.model.words import Outcome, Principle, Tier

FOREIGN = (Place.OTHER_SLOT, Place.OTHER_REQUEST, Place.FREE_SLOT)
OUTSIDE_CACHE = (Place.BUFFER, Place.NEW_BUFFER)
_ROWS, _BETWEEN = "rows of its own tokens", "between forward calls"
_NO_NAME = "\0"
"""What nothing is called."""


class DeclaredWrites(BaseCheck):
    """Every word that differs after a specialised step, by whose memory it is."""

    id = "ISO008"
    title = "A specialised step writes only what the manifest declares, in the slots of its own requests"
    principle = Principle.ISOLATION
    tier = Tier.CPU
    how = (
        "Compares the engine's cache and every other live tensor before and after each specialised step of the "
        "scripted runs; each difference must be under [state] and in a slot that the engine gave the step."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """Findings for foreign slots, undeclared layers, other memory, rows beyond the step's tokens, other times."""
        subject = "specialised steps"
        probe = find_probe(context, self.tier)
        if isinstance(probe, Ruling):
            return [finding_of(self, subject, probe)]
        state = context.manifest.state
        if state is None:
            ruling = Ruling(
                outcome=Outcome.NOT_RUN,
                message="The manifest has no [state]: it does not say what a specialised step may write.",
                advice="Declare caches, states, mailboxes and workspaces.",
            )
            return [finding_of(self, subject, ruling, [probe.id])]
        steps = specialised_steps(probe, context.manifest.dispatch.targets)
        silent = silent_steps(steps)
        dead = decide_observed(steps)
        if dead is not None:
            return [finding_of(self, subject, dead, [probe.id])]
        handover = find_handover(context, self.tier)
        steps = tuple(s for s in steps if s.writes)
        rulings = {
            "slots": (decide_slots(steps), probe.id),
            "declared layers": (decide_layers(steps, state), probe.id),
            "memory outside the cache": (decide_buffers(steps, state), probe.id),
        }
        if isinstance(handover, Ruling):
            rulings |= dict.fromkeys((_ROWS, _BETWEEN), (handover, ""))
        else:
            limit = allowed_difference(context, handover)
            rulings[_ROWS] = (decide_rows(handover, steps, limit), handover.id)
            rulings[_BETWEEN] = (decide_between(handover, steps), handover.id)
        if silent:
            rulings["steps without a write"] = (decide_silent(silent), probe.id)
        return [
            finding_of(self, name, ruling, [evidence] if evidence else [])
            for name, (ruling, evidence) in rulings.items()
        ]


def specialised_steps(probe: ProbeEvidence, targets: CodeTargets) -> tuple[ProbeStep, ...]:
    """The steps in which specialised code ran, whatever was decided."""
    return tuple(s for s in probe.steps if path_of(s.row, targets) is not Path.BASELINE)


def decide_observed(steps: Sequence[ProbeStep]) -> Ruling | None:
    """A ruling when nothing can be said: no specialised step, or steps that are not seen to write their own slots."""
    if not steps:
        return Ruling(
            outcome=Outcome.INCONCLUSIVE,
            message="No step of the scripted runs was specialised, so nothing shows what such a step writes.",
        )
    silent = [s for s in steps if not any(w.place is Place.OWN_SLOT for w in s.writes)]
    if len(silent) == len(steps):
        return Ruling(
            outcome=Outcome.INCONCLUSIVE,
            message=f"Not one of {len(steps)} specialised steps was seen to write a slot of its own, "
            "so what it wrote elsewhere would not be seen either.",
        )
    return None


def silent_steps(steps: Sequence[ProbeStep]) -> tuple[ProbeStep, ...]:
    """Steps without any write, on engines on which others have some; an engine without any is not watched."""
    watched = {s.engine for s in steps if s.writes}
    return tuple(s for s in steps if not s.writes and s.engine in watched)


def decide_silent(silent: Sequence[ProbeStep]) -> Ruling:
    """A step that writes nothing was not seen: each token leaves a state and a cache row."""
    return Ruling(
        outcome=Outcome.INCONCLUSIVE,
        message=f"{len(silent)} specialised steps were not seen to write anything, so what they wrote elsewhere would "
        "not be seen either.",
        advice="Write what the step is given in the step, or declare the function that does as specialised code.",
        details=tuple(f"{s.engine}, {s.scenario}, step {s.position}" for s in silent),
    )


def decide_slots(steps: Sequence[ProbeStep]) -> Ruling:
    """No write in a slot that the engine did not give the step."""
    return _decide(
        steps,
        lambda write: write.place in FOREIGN,
        clean=f"All cache writes of {len(steps)} specialised steps lay in slots that the engine gave the step.",
        faulty="wrote slots that the engine did not give them",
        advice="Write only the slots in the step's metadata; padded rows write none.",
    )


def decide_layers(steps: Sequence[ProbeStep], state: StateSection) -> Ruling:
    """Every layer whose cache was written is declared, and nothing but its own bytes of a slot was."""
    globs = (*state.caches, *state.states)
    layers = sorted({w.buffer for s in steps for w in s.writes if w.place is Place.OWN_SLOT})
    wide = [glob for glob in globs if any(takes_in_all(glob, layer) for layer in layers)]
    ruling = _decide(
        steps,
        lambda write: (
            write.place is Place.BEYOND_TOKENS
            or (write.place is Place.OWN_SLOT and not _is_declared(write.buffer, globs))
        ),
        clean=f"The caches of {len(layers)} layers were written, all declared: {', '.join(layers)}.",
        faulty="wrote layers that [state] does not declare, or parts of a slot that no layer uses",
        advice="Declare the layer under caches or states, or do not write it.",
    )
    return _unless_wide(ruling, wide, "Write out what the layers are called below their number.")


def decide_buffers(steps: Sequence[ProbeStep], state: StateSection) -> Ruling:
    """Every other tensor that was written, or left behind, is a declared mailbox or workspace."""
    globs = (*state.mailboxes, *state.workspaces)
    layers = {w.buffer for s in steps for w in s.writes if w.place is Place.OWN_SLOT and w.buffer}
    wide = [g for g in globs if any(fnmatchcase(name, g) or takes_in_all(g, name) for name in layers)]
    ruling = _decide(
        steps,
        lambda write: write.place in OUTSIDE_CACHE and not _is_declared(write.buffer, globs),
        clean=f"{len(steps)} specialised steps wrote no tensor outside the cache but declared ones"
        f" ({', '.join(globs) or 'none is declared'}), and left none behind.",
        faulty="wrote, or left behind, tensors that [state] does not declare",
        advice="Declare the tensor under workspaces or mailboxes, or do not keep it.",
    )
    return _unless_wide(ruling, wide, "Write out the attributes that lead to the tensor.")


def takes_in_all(glob: str, layer: str) -> bool:
    """Whether a glob that matches a layer leaves open both which layer of the model it is and what is in it."""
    parts = layer.split(".")
    numbers = [index for index, part in enumerate(parts) if part.isdigit()]
    first = numbers[0] if numbers and numbers[0] < len(parts) - 1 else None
    other = [*parts[:first], "0" * 9, _NO_NAME] if first is not None else [_NO_NAME]
    return fnmatchcase(".".join(other), glob)


def _unless_wide(ruling: Ruling, wide: Sequence[str], advice: str) -> Ruling:
    """A pass counts only where something could have been undeclared."""
    if not wide or ruling.outcome is not Outcome.PASS:
        return ruling
    return Ruling(
        outcome=Outcome.INCONCLUSIVE,
        message=f"[state] declares {', '.join(wide)}, which is as wide as the model: nothing would be undeclared.",
        advice=advice,
    )


def decide_rows(handover: HandoverEvidence, steps: Sequence[ProbeStep], limit: float) -> Ruling:
    """In its own cache blocks a specialised step writes no byte that the baseline's step does not write.

    A word that the twin's step leaves alone may come to hold what the twin holds there, to within `limit` of the
    largest in its row: the twin's step writes it, too, and happens to write what was there.
    """
    keys = {_key(step) for step in steps}
    seen = [s for s in handover.steps if s.same_work and _key(s) in keys]
    beyond = [
        (s, layer, size)
        for s in seen
        for layer, size in s.num_bytes_beyond.items()
        if s.largest_beyond.get(layer, float("inf")) > limit
    ]
    if beyond:
        return Ruling(
            outcome=Outcome.FAIL,
            message=f"{len({_key(s) for s, _, _ in beyond})} of {len(seen)} specialised steps wrote bytes of their own "
            "cache blocks that the baseline's step does not write.",
            advice="Write the rows of the step's own tokens and nothing behind them.",
            details=tuple(
                f"{s.engine}, {s.scenario}, step {s.position}: {size} bytes of {layer}"
                + _how_far(s.largest_beyond.get(layer))
                for s, layer, size in beyond
            ),
        )
    alike = sum(size for s in seen for size in s.num_bytes_beyond.values())
    return _not_compared(seen, steps) or Ruling(
        outcome=Outcome.PASS,
        message=f"{len(seen)} of {len(steps)} specialised steps were computed by the twin, too: they wrote no byte of "
        "a cache block that the baseline's step does not write"
        + (
            f", but for {alike} that came to hold the twin's numbers, within {limit:g} of the row's largest."
            if alike
            else "."
        ),
    )


def _how_far(largest: float | None) -> str:
    return "" if largest is None else f", {largest:.1e} of the row's largest from what the twin holds there"


def decide_between(handover: HandoverEvidence, steps: Sequence[ProbeStep]) -> Ruling:
    """Between its forward calls the candidate's cache changes only in pages in which the twin's does."""
    seen = [s for s in handover.steps if s.same_work]
    late = [s for s in seen if s.num_bytes_between]
    if late:
        return Ruling(
            outcome=Outcome.FAIL,
            message=f"Before {len(late)} of {len(seen)} steps, but after the step before, cache pages had changed that "
            "the engine leaves alone with the switch unset.",
            advice="Write inside the step's forward call.",
            details=tuple(
                f"before {s.engine}, {s.scenario}, step {s.position}: {size} bytes of {buffer}"
                for s in late
                for buffer, size in s.num_bytes_between.items()
            ),
        )
    return _not_compared(seen, steps) or Ruling(
        outcome=Outcome.PASS,
        message=f"Between {len(seen)} steps the cache changed only where it does with the switch unset.",
    )


def _not_compared(seen: Sequence[HandoverStep], steps: Sequence[ProbeStep]) -> Ruling | None:
    """The ruling when an engine that took specialised steps has none that was compared."""
    engines = sorted({s.engine for s in steps} - {s.engine for s in seen})
    if not engines:
        return None
    return Ruling(
        outcome=Outcome.INCONCLUSIVE,
        message=f"No step of the twin computed the same as the candidate's on: {', '.join(engines)}.",
        advice="Run the tier again; both must run every script.",
    )


def _key(step: ProbeStep | HandoverStep) -> tuple[str, str, int]:
    return step.engine, step.scenario, step.position


def _decide(
    steps: Sequence[ProbeStep], is_wrong: Callable[[Write], bool], *, clean: str, faulty: str, advice: str
) -> Ruling:
    wrong = [(step, write) for step in steps for write in step.writes if is_wrong(write)]
    if not wrong:
        return Ruling(outcome=Outcome.PASS, message=clean)
    count = len({(s.engine, s.scenario, s.position) for s, _ in wrong})
    return Ruling(
        outcome=Outcome.FAIL,
        message=f"{count} of {len(steps)} specialised steps {faulty}: {_summary(w for _, w in wrong)}.",
        advice=advice,
        details=tuple(
            f"{s.engine}, {s.scenario}, step {s.position}: {_describe(w)}, {w.num_bytes} bytes"
            for s, w in wrong
        ),
    )


def _summary(writes: Iterable[Write]) -> str:
    counts = Counter(_describe(w) for w in writes)
    text = "; ".join(name for name, _ in counts.most_common(3))
    return text + (f" and {len(counts) - 3} more" if len(counts) > 3 else "")


def _describe(write: Write) -> str:
    owner = f" of request {write.owner}" if write.owner else ""
    return f"{write.place}{owner}: {write.buffer or 'a tensor that no attribute of the model leads to'}"


def _is_declared(buffer: str, globs: Sequence[str]) -> bool:
    return bool(buffer) and any(fnmatchcase(buffer, glob) for glob in globs)
