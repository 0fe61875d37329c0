"""Room for reading code that is nested as deeply as Python itself parses it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
PARSER_LIMIT = 1000
"""The recursion limit that files are parsed under, Python's own: their trees are at most three times as deep."""
_READING_LIMIT = 100_000
"""Frames for reading such a tree: a dozen and more for each of its levels."""
_STACK_BYTES = 256 * 1024 * 1024
"""Address space of the thread's stack; only what is used takes memory."""


def on_deep_stack(function: Callable[P, R]) -> Callable[P, R]:
    """The function, run in a thread of its own with room for deep recursion; what it raises is raised."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        results: list[R] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                results.append(function(*args, **kwargs))
            except BaseException as error:
                errors.append(error)

        limit, size = sys.getrecursionlimit(), threading.stack_size(_STACK_BYTES)
        sys.setrecursionlimit(max(limit, _READING_LIMIT))
        try:
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            threading.stack_size(size)
            thread.join()
        finally:
            threading.stack_size(size)
            sys.setrecursionlimit(limit)
        if errors:
            raise errors[0]
        return results[0]

    return run
