"""Imported by every worker of an engine that starts its ranks itself: model and weights become known there."""

import os

from examples.slice.weights import register_loader
from specialized_path.plugin import register

register()
register_loader()


class WorkerPlace:
    """What a worker of vLLM's own executor is asked beside vLLM's methods."""

    rank: int

    def own_place(self) -> list[int]:
        """Its rank and its process."""
        return [int(self.rank), os.getpid()]
