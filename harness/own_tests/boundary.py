"""Where a test enters the subject: what each entry gave, and its falsification."""

from __future__ import annotations

import threading
import types
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .falsify import Falsifier, is_module, is_tensor
from .watch import SubjectWatch
from .written import Written, falsify_written, tensors_of

CONSTRUCTORS = frozenset({"__init__", "__post_init__"})
TENSORS, VALUES, OBJECTS, ERRORS = "tensors", "values", "objects", "errors"
"""What is falsified in a run, and what a call gave that such a run could falsify."""
NOTHING, OTHER = "nothing", "other"
"""What else a call may have given: None, and what has no other form."""


class Scope:
    """A test, or a fixture that may serve several: the calls of the subject that it made."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: dict[str, set[str]] = {}
        self.num_calls = 0

    def generator(self) -> np.random.Generator:
        """Other random numbers for every call, the same in every run."""
        self.num_calls += 1
        return np.random.default_rng(zlib.crc32(f"{self.name}\0{self.num_calls}".encode("utf-8", "replace")))


class Boundary:
    """Every call of the subject that does not come from the subject itself.

    Args:
        files: Absolute paths of the subject's Python files.
        falsified: What is falsified: `TENSORS`, `VALUES`, `OBJECTS` or `ERRORS`; empty: nothing.
    """

    def __init__(self, files: list[str], falsified: str = "") -> None:
        self._falsified = falsified
        self._local = threading.local()
        self._scopes: list[Scope] = []
        self.escaped: list[BaseException] = []
        """Errors that came out of the subject since the last test began."""
        self.num_outside = 0
        """Calls made while no test ran: when test modules are imported."""
        self.watch = SubjectWatch(files, self.enter, self.inside)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Within the block this thread is in the subject."""
        self._local.depth = getattr(self._local, "depth", 0) + 1
        try:
            yield
        finally:
            self._local.depth -= 1

    @contextmanager
    def scope(self, name: str) -> Iterator[Scope]:
        """Calls within the block belong to the scope."""
        scope = Scope(name)
        self._scopes.append(scope)
        try:
            yield scope
        finally:
            self._scopes.remove(scope)

    def enter(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a function of the subject; from outside of it, notes and falsifies what it gives."""
        if getattr(self._local, "depth", 0):
            return function(*args, **kwargs)
        if not self._scopes:
            self.num_outside += 1
            with self.inside():
                return function(*args, **kwargs)
        scope = self._scopes[-1]
        kinds = scope.calls.setdefault(f"{function.__module__}:{function.__qualname__}", set())
        with self.inside():
            written = Written((args, kwargs), self.watch.is_own)
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                return self._raised(error, kinds, function.__name__)
            if function.__name__ in CONSTRUCTORS:
                kinds.add(OTHER if is_module(args[0]) else OBJECTS)
                if self._falsified == OBJECTS:
                    Falsifier(scope.generator()).attributes(args[0])
                return result
            masks = written.masks()
            kinds.add(self._kind_of(result, bool(masks)))
            self.watch.watch(result)
            return self._falsify(result, masks, scope)

    def _raised(self, error: BaseException, kinds: set[str], name: str) -> None:
        kinds.add(ERRORS)
        if self._falsified == ERRORS and isinstance(error, Exception) and name not in CONSTRUCTORS:
            return
        self.escaped.append(error)
        raise error

    def _kind_of(self, result: Any, has_written: bool) -> str:
        """What the falsifications of a call could change, found by trying."""
        if has_written or any(tensor.numel() for tensor in tensors_of(result, self.watch.is_own)):
            return TENSORS
        if result is None:
            return NOTHING
        is_lazy = isinstance(result, types.GeneratorType)
        return VALUES if not is_lazy and _has_other(result) else OTHER

    def _falsify(self, result: Any, masks: list[tuple[Any, Any]], scope: Scope) -> Any:
        if self._falsified not in (TENSORS, VALUES):
            return result
        rng = scope.generator()
        falsify_written(masks, rng)
        is_written = is_tensor(result) and any(result is tensor for tensor, _ in masks)
        if is_written or isinstance(result, types.GeneratorType):
            return result
        return Falsifier(rng, tensors_only=self._falsified == TENSORS).result(result)


def _has_other(result: Any) -> bool:
    return Falsifier(np.random.default_rng(0)).value(result) is not result
