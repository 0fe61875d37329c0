"""One rank of a timed arm of several: a process that vLLM's executor starts.

vLLM imports this module in each of them before it chooses a device and makes the model.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

from harness.engine.block_server import PLAN
from harness.engine.probe.block_driver import graphs_followed
from harness.engine.probe.drawn_weights import WeightsDrawer, describe_weights, offer_weights
from harness.engine.tracer import active
from harness.engine.worker_extension import FasttrackWorkerExtension

_for_life = ExitStack()


def prepare_rank() -> WeightsDrawer | None:
    """Lets the rank's graphs count in its ledger, and its weights be drawn; raises RuntimeError without a tracer."""
    tracer = active()
    if tracer is None:
        raise RuntimeError("a rank of a timed arm has no tracer")
    tracer.before_runner = lambda: _for_life.enter_context(graphs_followed(tracer))
    plan = json.loads((tracer.settings.ledger_dir / PLAN).read_bytes())
    return offer_weights(plan["weights"])


_drawer = prepare_rank()


class RankWorker(FasttrackWorkerExtension):
    """Mixed into vLLM's worker class."""

    vllm_config: Any

    def fasttrack_weights(self) -> dict[str, Any]:
        """What the rank's weights are; None where a checkpoint holds them."""
        found = _drawer.describe(self) if _drawer is not None else describe_weights(self)
        return {"weights": found.model_dump() if found is not None else None}
