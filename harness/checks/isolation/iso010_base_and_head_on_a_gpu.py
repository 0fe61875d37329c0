"""ISO010: on a GPU, too, base and head are the same engine with the switch unset, down to their captured kernels."""

from __future__ import annotations

from dataclasses import replace

from harness.checks.isolation.iso007_base_and_head import BaseAndHead, decide_snapshots
from harness.checks.joins.ruling import Ruling
from harness.model.manifest import Manifest
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

    def decide(self, base: EngineSnapshot, head: EngineSnapshot, manifest: Manifest) -> dict[str, Ruling]:
        """As ISO007, but answers that differ decide nothing: kernels of one program may add in another order."""
        rulings = decide_snapshots(base, head, manifest)
        answers = rulings["answers"]
        if answers.outcome is Outcome.FAIL:
            text = f"{answers.message.removesuffix('.')}; whether the base's own answers repeat is not known."
            rulings["answers"] = replace(answers, outcome=Outcome.INCONCLUSIVE, message=text)
        return rulings
