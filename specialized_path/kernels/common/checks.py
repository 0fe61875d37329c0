"""What host wrappers require of tensors: shape, type, place and strides, said in one form."""

from __future__ import annotations

import torch
from torch import Tensor

_VECTOR = 8
"""BF16 elements of one 16-byte access."""


def require(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype = torch.bfloat16) -> None:
    """Raises ValueError unless a contiguous CUDA tensor of this shape and type."""
    got = f"{name}: got {tuple(tensor.shape)} {tensor.dtype} on {tensor.device.type}"
    if tuple(tensor.shape) != shape or tensor.dtype != dtype or not tensor.is_cuda:
        raise ValueError(f"{got}, expected {shape} {dtype} on cuda")
    if not tensor.is_contiguous():
        raise ValueError(f"{name}: got strides {tensor.stride()}, expected contiguous")


def require_rows(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    """Raises ValueError unless a BF16 CUDA tensor of this shape whose last dimension is contiguous and whose other
    strides keep 16-byte accesses aligned."""
    got = f"{name}: got {tuple(tensor.shape)} {tensor.dtype} on {tensor.device.type}"
    if tuple(tensor.shape) != shape or tensor.dtype != torch.bfloat16 or not tensor.is_cuda:
        raise ValueError(f"{got}, expected {shape} torch.bfloat16 on cuda")
    *outer, inner = tensor.stride()
    if inner != 1 or any(stride % _VECTOR for stride in outer):
        raise ValueError(
            f"{name}: got strides {tensor.stride()}, expected 1 in the last dimension, "
            f"multiples of {_VECTOR} elsewhere"
        )


def require_batch(num_rows: int, largest: int) -> None:
    """Raises ValueError unless 1 <= num_rows <= largest."""
    if not 1 <= num_rows <= largest:
        raise ValueError(f"rows: got {num_rows}, expected 1 ... {largest}")
