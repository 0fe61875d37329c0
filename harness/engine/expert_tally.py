"""Counts which experts the tokens of a served model go to, from what its own routing functions return.

Imports torch only once it counts: the tracer must not import it before the engine does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class ExpertTally:
    """Counts while it is on; the n-th call in a step stands for the n-th layer with experts."""

    def __init__(self) -> None:
        self.is_on = False
        self._call = 0
        self._counts: list[Any] = []
        """A layer: a tensor with a count an expert."""
        self._problem = ""

    def wrapper(self, function: Callable[..., Any], target: str) -> Callable[..., Any]:
        """The function, its result counted while the tally is on."""

        @functools.wraps(function)
        def routed(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            if self.is_on:
                try:
                    self._add(result)
                except (TypeError, ValueError, RuntimeError) as error:
                    self._problem = f"{target}: {error}"
            return result

        return routed

    def begin_step(self) -> None:
        """The next call is the first layer's."""
        self._call = 0

    def start(self) -> None:
        """Counts from nothing."""
        self.is_on, self._counts, self._problem = True, [], ""

    def stop(self) -> dict[str, Any]:
        """Counts no more; `layers` has a list of counts by expert each, `problem` says what could not be counted."""
        self.is_on = False
        return {"layers": [counts.tolist() for counts in self._counts], "problem": self._problem}

    def _add(self, result: Any) -> None:
        import torch

        counts = counts_of(result)
        if self._call == len(self._counts):
            self._counts.append(counts)
        else:
            before = self._counts[self._call]
            size = max(len(before), len(counts))
            self._counts[self._call] = sum(
                torch.nn.functional.pad(part, (0, size - len(part))) for part in (before, counts)
            )
        self._call += 1


def counts_of(result: Any) -> Any:
    """How many tokens each expert gets, by what a routing function returns.

    That is a tensor of expert ids (whole numbers), alone or among others; or one of weights [tokens, experts], 0 for
    each expert that is not chosen.

    Raises:
        TypeError: it is neither.
    """
    import torch

    parts = result if isinstance(result, tuple | list) else (result,)
    tensors = [part for part in parts if isinstance(part, torch.Tensor)]
    for tensor in tensors:
        if not tensor.is_floating_point():
            return torch.bincount(tensor.flatten().long().cpu())
    if len(tensors) == 1 and tensors[0].dim() == 2:
        return (tensors[0] != 0).sum(0).cpu()
    raise TypeError("the result says nothing of experts: no ids, and no weight a token and expert")
