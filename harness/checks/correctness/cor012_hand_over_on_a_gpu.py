"""COR012: on a GPU, too, what the specialised path hands over is what the baseline would have handed over."""

from __future__ import annotations

from harness.checks.correctness.cor006_hand_over import HandOver
from harness.model.words import Tier


class HandOverOnAGpu(HandOver):
    """COR006 of the deployment that a GPU serves."""

    id = "COR012"
    title = "On a GPU, too, whichever path a request leaves, the other continues it from the same state"
    tier = Tier.GPU
    how = (
        "As COR006, from the scripted run on a GPU with graphs: every page that a request holds when a step begins, "
        "beside a twin that runs the same deployment with the switch unset."
    )
    twinned = frozenset({"handover"})
