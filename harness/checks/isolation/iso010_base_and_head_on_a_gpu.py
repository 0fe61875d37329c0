"""ISO010: on a GPU, too, base and head are the same engine with the switch unset, down to their captured kernels."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from harness.checks.isolation.iso007_base_and_head import BaseAndHead, decide_snapshots
from harness.checks.joins.ruling import Ruling
from harness.model.manifest import DispatchSection
from harness.model.probe import EngineSnapshot
from harness.model.words import Outcome, Tier


class BaseAndHeadOnAGpu(BaseAndHead):
    """ISO007's comparison of engines that capture graphs."""

    id = "ISO010"
    title = "Without the switch, base and head are the same engine on a GPU, down to their captured kernels"
    tier = Tier.GPU
    how = (
        "Serves the same models from both commits on a GPU with the switch unset; the kernels of their captured "
        "graphs, by name and number, must be the same, and so must what ISO007 compares."
    )

    def decide(
        self, base: EngineSnapshot, head: EngineSnapshot, dispatch: DispatchSection, own: Collection[str]
    ) -> dict[str, Ruling]:
        """As ISO007, but for answers that differ: see `_decide_differing`."""
        rulings = decide_snapshots(base, head, dispatch, own)
        if rulings["answers"].outcome is Outcome.FAIL:
            rulings["answers"] = _decide_differing(base, head, rulings["answers"])
        return rulings


def _decide_differing(base: EngineSnapshot, head: EngineSnapshot, ruling: Ruling) -> Ruling:
    """Kernels of one program may add in another order each time: an answer counts if the base repeats it bit for bit.

    Of one that it does not repeat the head must have given the tokens of one of its runs. What the base does repeat and
    the head differs in decides nothing: the base was not served often enough to say that it always does.
    """
    runs = [{a.request: a for a in answers} for answers in (base.answers, *base.repeats)]
    restless = {name for name, answer in runs[0].items() if any(run.get(name) != answer for run in runs)}
    tokens = {name: {run[name].token_ids for run in runs if name in run} for name in restless}
    ours = {a.request: a for a in head.answers}
    differing = set(ruling.details)
    known = {name for name in differing & restless if name in ours and ours[name].token_ids in tokens[name]}
    text = ruling.message.removesuffix(".")
    if differing == known and len(restless) < len(runs[0]):
        return Ruling(
            outcome=Outcome.PASS,
            message=f"{len(runs[0]) - len(differing)} of {len(runs[0])} answers are the same bit for bit; the base "
            f"itself does not repeat the others in {len(base.repeats)} more runs, and their tokens are ones it gave.",
            details=tuple(sorted(differing)),
        )
    if base.repeats:
        text += f"; the base repeats {len(differing - restless)} of them in {len(base.repeats)} more runs"
    else:
        text += "; whether the base's own answers repeat is not known"
    return replace(ruling, outcome=Outcome.INCONCLUSIVE, message=f"{text}.")
