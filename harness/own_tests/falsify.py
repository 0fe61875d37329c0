"""Other values of the same form: what a call of the subject gave, changed beyond any tolerance.

Shapes, dtypes, devices and types stay as they are. Every element changes, by its own amount and in either direction, so
that orders, signs, sums and relations between two calls change, too.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
MARK = "falsified"
"""What stands where nothing was."""
_MAX_DEPTH = 6


def is_tensor(value: object) -> bool:
    """Whether a value is a PyTorch tensor; PyTorch is not imported for the question."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_module(value: object) -> bool:
    """Whether a value is a PyTorch module, whose attributes are not falsified."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def falsify_array(array: Array, rng: np.random.Generator, limit: float | None = None) -> Array:
    """An array of the same shape and dtype in which every element is another.

    Floats move by 1 to 2 times (their largest magnitude + 1), up or down, and stay finite and within `limit`; integers
    stay between the smallest and the largest, since they may be indices; booleans turn.

    Raises:
        TypeError: the dtype is none of these.
    """
    kind = array.dtype.kind
    if kind == "b":
        return np.logical_not(array)
    if kind in "iu":
        return _integers(array, rng)
    if kind == "c":
        largest = float(np.finfo(array.dtype).max) if limit is None else limit
        real, imag = (_floats(part, rng, largest) for part in (array.real, array.imag))
        return np.asarray(real + 1j * imag, dtype=array.dtype)
    if kind != "f":
        raise TypeError(f"no other values of dtype {array.dtype}")
    largest = float(np.finfo(array.dtype).max) if limit is None else limit
    return _floats(array, rng, largest).astype(array.dtype)


def _floats(array: Array, rng: np.random.Generator, limit: float) -> Array:
    known = np.where(np.isfinite(array), array, 0).astype(np.float64)
    with np.errstate(over="ignore"):
        step = (
            (np.abs(known).max() + 1) * rng.uniform(1, 2, array.shape) * rng.choice([-1.0, 1.0], array.shape)
        )
        moved = known + step
        moved = np.where(np.abs(moved) > limit, known - step, moved)
    return np.clip(moved, -limit, limit)


def _integers(array: Array, rng: np.random.Generator) -> Array:
    low, high = int(array.min()), int(array.max())
    if not 0 < high - low < 2**62:
        return np.asarray(array ^ array.dtype.type(1))
    span = high - low + 1
    turned = (array.astype(np.int64) - low + rng.integers(1, span, array.shape)) % span + low
    return turned.astype(array.dtype)


def falsify_tensor(tensor: Any, rng: np.random.Generator) -> Any:
    """The tensor with other elements, part of the same autograd graph; itself where that cannot be done."""
    torch = sys.modules["torch"]
    plain = tensor.layout is torch.strided and not tensor.is_quantized and tensor.device.type != "meta"
    if not plain or tensor.numel() == 0:
        return tensor
    if tensor.is_complex():
        wide, limit = torch.complex128, torch.finfo(tensor.dtype).max
    elif tensor.is_floating_point():
        wide, limit = torch.float64, torch.finfo(tensor.dtype).max
    else:
        wide, limit = None, None
    values = tensor.detach().to("cpu", wide).contiguous().numpy()
    other = torch.from_numpy(np.array(falsify_array(values, rng, limit))).to(tensor.dtype).to(tensor.device)
    if tensor.requires_grad:
        return tensor + (other - tensor.detach())
    return torch.empty_like(tensor).copy_(other)


class Falsifier:
    """Falsifies one call's results; `tensors_only` leaves every other value as it is."""

    def __init__(self, rng: np.random.Generator, *, tensors_only: bool = False) -> None:
        self._rng = rng
        self._tensors_only = tensors_only

    def result(self, value: Any) -> Any:
        """Another result of the same form; the same object where there is none. Nothing becomes something."""
        if value is None and not self._tensors_only:
            return MARK
        return self.value(value)

    def value(self, value: Any, depth: int = 0) -> Any:
        """Another value of the same form; the same object where there is none."""
        if depth > _MAX_DEPTH:
            return value
        if is_tensor(value):
            return falsify_tensor(value, self._rng)
        if isinstance(value, np.ndarray | np.generic):
            return self._numpy(value)
        if isinstance(value, list | tuple | dict | set | frozenset):
            return self._container(value, depth)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._dataclass(value, depth)
        return value if self._tensors_only else self._scalar(value)

    def _numpy(self, value: Any) -> Any:
        if value.size == 0 or value.dtype.kind not in "biufc":
            return value
        other = falsify_array(np.asarray(value), self._rng)
        return other if isinstance(value, np.ndarray) else other[()]

    def _scalar(self, value: Any) -> Any:
        match value:
            case enum.Enum():
                members = [m for m in type(value) if m is not value]
                return members[0] if members else value
            case bool():
                return not value
            case int():
                return value + 1 if type(value) is int else value
            case float():
                return float(falsify_array(np.array(value, dtype=np.float64), self._rng))
            case complex():
                return value + complex(abs(value) + 1, 1)
            case str():
                return f"{value} {MARK}" if type(value) is str else value
            case bytes():
                return value + MARK.encode()
        return value

    def _container(self, value: Any, depth: int) -> Any:
        """The elements changed; where none can be, one is left out, and an empty one gets one."""
        kind = type(value)
        if isinstance(value, dict):
            if kind is not dict:
                return value
            pairs = {key: self.value(element, depth + 1) for key, element in value.items()}
            if any(pairs[key] is not value[key] for key in pairs) or self._tensors_only:
                return pairs
            return dict(list(value.items())[:-1]) if value else {MARK: MARK}
        if hasattr(kind, "_make"):
            return kind._make(self.value(element, depth + 1) for element in value)
        elements = list(value)
        changed = [self.value(element, depth + 1) for element in elements]
        if not self._tensors_only and all(a is b for a, b in zip(elements, changed, strict=True)):
            changed = elements[:-1] if elements else [MARK]
        if kind in (list, tuple, set, frozenset):
            return kind(changed)
        if kind.__name__ == "Size" and all(isinstance(element, int) for element in changed):
            return kind(changed)
        return value

    def _dataclass(self, value: Any, depth: int) -> Any:
        """A copy with other fields, made without its constructor."""
        names = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
        changed = {name: self.value(getattr(value, name), depth + 1) for name in names}
        if all(changed[name] is getattr(value, name) for name in names):
            return value
        copy = object.__new__(type(value))
        for name, content in (getattr(value, "__dict__", {}) | changed).items():
            object.__setattr__(copy, name, content)
        return copy

    def attributes(self, made: Any) -> None:
        """Changes what a constructor set on its object."""
        if is_module(made):
            return
        for name, content in dict(getattr(made, "__dict__", {})).items():
            object.__setattr__(made, name, self.value(content))
