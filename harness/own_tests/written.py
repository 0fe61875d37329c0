"""What a call wrote into tensors that it was given, found by comparing them before and after."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .falsify import falsify_tensor, is_tensor

_MAX_DEPTH = 5
_MAX_BYTES = 64 << 20
"""Kept of one call's arguments; tensors beyond are not followed."""


def tensors_of(value: Any, is_own: Callable[[type], bool], *, depth: int = 0) -> Iterator[Any]:
    """Tensors in a value, through containers, dataclasses and objects of the subject's own classes."""
    if is_tensor(value):
        yield value
        return
    if depth >= _MAX_DEPTH:
        return
    below: Sequence[Any] = ()
    if isinstance(value, list | tuple | set | frozenset):
        below = list(value)
    elif isinstance(value, dict):
        below = list(value.values())
    elif (dataclasses.is_dataclass(value) and not isinstance(value, type)) or is_own(type(value)):
        below = list(getattr(value, "__dict__", {}).values())
    for element in below:
        yield from tensors_of(element, is_own, depth=depth + 1)


class Written:
    """The tensors among a call's arguments, as they were before it."""

    def __init__(self, arguments: Any, is_own: Callable[[type], bool]) -> None:
        self._before: list[tuple[Any, Any]] = []
        kept = 0
        for tensor in {id(t): t for t in tensors_of(arguments, is_own)}.values():
            size = tensor.numel() * tensor.element_size()
            if tensor.device.type != "meta" and kept + size <= _MAX_BYTES:
                kept += size
                self._before.append((tensor, tensor.detach().clone()))

    def masks(self) -> list[tuple[Any, Any]]:
        """Each tensor that was written, with where."""
        found = []
        for tensor, before in self._before:
            now = tensor.detach()
            if now.shape != before.shape or now.dtype != before.dtype:
                continue
            wide = now.double() if now.is_floating_point() else now
            old = before.double() if now.is_floating_point() else before
            mask = (wide != old) & ~((wide != wide) & (old != old))
            if bool(mask.any()):
                found.append((tensor, mask))
        return found


def falsify_written(masks: Sequence[tuple[Any, Any]], rng: np.random.Generator) -> None:
    """Changes the elements of tensors that a call wrote, in place."""
    for tensor, mask in masks:
        torch = sys.modules["torch"]
        with torch.inference_mode():
            tensor.copy_(torch.where(mask, falsify_tensor(tensor.detach(), rng), tensor))
