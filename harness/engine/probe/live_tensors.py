"""Every tensor that lives in the process outside the engine's cache, and which of them a step wrote or left behind."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator, Mapping, Set
from types import ModuleType
from typing import Any

import torch

MAX_BYTES = 64 * 2**20
"""Larger storages are not copied at every step, and so not watched."""
_MAX_DEPTH = 8
_MODULE_PARTS = ("_parameters", "_buffers", "_modules")


class LiveTensors:
    """Compares the bytes of all live storages before and after a step.

    What was enumerated once is moved out of the garbage collector's sight, so that each step enumerates only what is
    newer.
    """

    def __init__(self, roots: Mapping[str, object], ignored: frozenset[int]) -> None:
        """`roots`: objects whose attributes give tensors a name; `ignored`: addresses of storages to leave out."""
        self._roots = dict(roots)
        self._ignored = ignored
        self._tensors: list[weakref.ref[torch.Tensor]] = []
        self._before: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._too_large: set[int] = set()
        self._returned: frozenset[int] = frozenset()
        """Addresses of what the step before returned."""
        gc.unfreeze()
        gc.collect()

    def look(self) -> dict[int, int]:
        """Copies every storage as it is now; (address: size) of what the step before returned and is still alive."""
        self._tensors += [weakref.ref(tensor) for tensor in _young_tensors()]
        gc.freeze()
        alive = [(reference, reference()) for reference in self._tensors]
        self._tensors = [reference for reference, tensor in alive if tensor is not None]
        live = {_pointer(tensor): tensor for _, tensor in alive if tensor is not None}
        self._before = {
            pointer: (memory, memory.clone())
            for pointer, tensor in live.items()
            if pointer and pointer not in self._ignored and (memory := _bytes_of(tensor)).numel() <= MAX_BYTES
        }
        self._too_large = {pointer for pointer in live if pointer not in self._before}
        kept = {p: live[p].untyped_storage().nbytes() for p in self._returned if p in live}
        self._returned = frozenset()
        return kept

    def take_writes(self, result: Any) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """(address, bytes that differ) of each storage written since `look`, and (address, size) of each that is new.

        `result` is what the step returns; its storages are not counted as left behind, but the next `look` says which
        of them somebody kept.
        """
        written = [
            (pointer, int((now != copy).sum()))
            for pointer, (now, copy) in self._before.items()
            if not torch.equal(now, copy)
        ]
        known = self._before.keys() | self._too_large | self._ignored
        known |= {copy.untyped_storage().data_ptr() for _, copy in self._before.values()}
        returned = frozenset(tensor.untyped_storage().data_ptr() for tensor in _tensors_in(result))
        self._returned = returned - known
        known |= returned
        if self._left_behind(known):
            gc.collect()
        left = self._left_behind(known)
        self._before = {}
        return written, list(left.items())

    @staticmethod
    def _left_behind(known: Set[int]) -> dict[int, int]:
        found = {_pointer(tensor): tensor for tensor in _young_tensors()}
        return {p: t.untyped_storage().nbytes() for p, t in found.items() if p and p not in known}

    def names(self, pointers: Iterable[int]) -> dict[int, str]:
        """An attribute path for each address that the roots lead to."""
        wanted = set(pointers)
        found: dict[int, str] = {}
        for path, tensor in _walk(self._roots):
            pointer = _pointer(tensor)
            if pointer in wanted and pointer not in found:
                found[pointer] = path
                if len(found) == len(wanted):
                    break
        return found


def _young_tensors() -> list[torch.Tensor]:
    """Tensors that the garbage collector knows and that are not frozen."""
    return [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]


def _pointer(tensor: torch.Tensor) -> int:
    """The address of a tensor's storage; 0 for one without memory of its own (meta, fake, empty)."""
    if tensor.device.type == "meta" or tensor.layout is not torch.strided:
        return 0
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):
        return 0


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    storage = tensor.untyped_storage()
    raw = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return raw.set_(storage, 0, (storage.nbytes(),))


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors_in(item)


def _walk(roots: Mapping[str, object]) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors reachable through attributes, items and keys, breadth first, with their paths."""
    queue = [(name, thing, 0) for name, thing in roots.items()]
    seen: set[int] = set()
    while queue:
        following: list[tuple[str, object, int]] = []
        for path, thing, depth in queue:
            if issubclass(type(thing), torch.Tensor):
                yield path, thing
            elif id(thing) not in seen and depth < _MAX_DEPTH:
                seen.add(id(thing))
                following += [(f"{path}{step}", child, depth + 1) for step, child in _children(thing)]
        queue = following


def _children(thing: object) -> Iterator[tuple[str, object]]:
    if isinstance(thing, dict):
        yield from ((f".{key}", value) for key, value in list(thing.items()) if isinstance(key, str | int))
    elif isinstance(thing, list | tuple):
        yield from ((f".{index}", value) for index, value in enumerate(thing))
    elif isinstance(thing, torch.nn.Module):
        parts = (thing._parameters, thing._buffers, thing._modules)
        yield from ((f".{key}", value) for part in parts for key, value in part.items())
        yield from ((f".{key}", v) for key, v in list(vars(thing).items()) if key not in _MODULE_PARTS)
    elif not isinstance(thing, type | ModuleType | Mapping):
        yield from ((f".{key}", value) for key, value in list(getattr(thing, "__dict__", {}).items()))
        yield from _slots_of(thing)


def _slots_of(thing: object) -> Iterator[tuple[str, object]]:
    for kind in type(thing).__mro__:
        names = kind.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if isinstance(name, str) and not name.startswith("__") and hasattr(thing, name):
                yield f".{name}", getattr(thing, name)
