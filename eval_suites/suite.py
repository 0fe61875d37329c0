"""A suite is a named list of requests, in parts that run at one concurrency each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from harness.model.completion import Completer, CompletionRequest
from harness.model.evaluation import SuiteItem

Progress = Callable[[int, int], None]
"""Called with (requests answered, requests in all)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuitePart:
    """Requests that are sent with `concurrency` of them in flight."""

    concurrency: int
    requests: tuple[CompletionRequest, ...]
    together: bool = False
    """Each `concurrency` of them start in one step of the engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """What one arm is asked; the same for every arm, so that answers can be paired by item name."""

    name: str
    parts: tuple[SuitePart, ...]
    seed: int

    def __post_init__(self) -> None:
        names = [r.item for part in self.parts for r in part.requests]
        if len(set(names)) != len(names):
            raise ValueError(f"suite {self.name}: item names repeat")

    @property
    def num_requests(self) -> int:
        """Requests over all parts."""
        return sum(len(part.requests) for part in self.parts)


def _slices(part: SuitePart) -> Iterator[tuple[CompletionRequest, ...]]:
    """Slices keep the progress moving: a whole number of full waves each, and what is left over with the last."""
    step = part.concurrency * (1 if part.together else max(1, 16 // part.concurrency))
    start = 0
    while start < len(part.requests):
        rest = len(part.requests) - start
        end = start + (rest if rest < step + part.concurrency and not part.together else step)
        yield part.requests[start:end]
        start = end


def run_suite(suite: Suite, completer: Completer, progress: Progress | None = None) -> tuple[SuiteItem, ...]:
    """The arm's answers, in the order of the suite. Raises `EngineError` when the server dies."""
    items: list[SuiteItem] = []
    for part in suite.parts:
        for chunk in _slices(part):
            items.extend(
                completer.complete_many(
                    chunk, concurrency=part.concurrency, suite=suite.name, together=part.together
                )
            )
            if progress is not None:
                progress(len(items), suite.num_requests)
    return tuple(items)
