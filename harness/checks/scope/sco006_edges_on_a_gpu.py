"""SCO006: on a GPU, too, every step goes where the declared scope says, also under captured graphs."""

from __future__ import annotations

from harness.checks.scope.sco004_edges import ScopeEdges
from harness.model.words import Tier


class ScopeEdgesOnAGpu(ScopeEdges):
    """SCO004 of the deployment that a GPU serves."""

    id = "SCO006"
    title = "On a GPU, too, every step goes where the declared scope says, also under captured graphs"
    tier = Tier.GPU
    how = (
        "As SCO004, from the scripted run on a GPU with graphs: what was decided and called while a graph was captured "
        "counts for every step that replays it."
    )
