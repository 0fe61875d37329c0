"""Arguments of a launch: addresses, scalars and the stream, real ones and the fake ones that a compilation takes."""

from __future__ import annotations

from typing import Any

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass.cute.runtime import make_fake_stream, make_ptr
from torch import Tensor

ALIGNMENT_BYTES = 16
"""What every tensor argument is aligned to: one vector access."""

_TYPES = {
    torch.bfloat16: cutlass.BFloat16,
    torch.float32: cutlass.Float32,
    torch.int32: cutlass.Int32,
    torch.int64: cutlass.Int64,
    torch.uint8: cutlass.Uint8,
    torch.float8_e4m3fn: cutlass.Uint8,
}


def pointer(
    tensor: Tensor | None, dtype: torch.dtype = torch.bfloat16, *, alignment: int = ALIGNMENT_BYTES
) -> Any:
    """The address of a tensor as a kernel takes it; None is a null address of `dtype`.

    Raises:
        ValueError: the address is not a multiple of `alignment` bytes.
    """
    if tensor is None:
        return make_ptr(_TYPES[dtype], 0, cutlass.AddressSpace.gmem, assumed_align=alignment)
    address = tensor.data_ptr()
    if address % alignment:
        raise ValueError(f"address: got {address:#x}, expected a multiple of {alignment}")
    return make_ptr(_TYPES[tensor.dtype], address, cutlass.AddressSpace.gmem, assumed_align=alignment)


def fake_pointer(dtype: torch.dtype = torch.bfloat16, *, alignment: int = ALIGNMENT_BYTES) -> Any:
    """An address argument to compile with."""
    return make_ptr(_TYPES[dtype], ALIGNMENT_BYTES, cutlass.AddressSpace.gmem, assumed_align=alignment)


def fake_stream() -> Any:
    """A stream argument to compile with."""
    return make_fake_stream()


def current_stream(device: torch.device) -> Any:
    """PyTorch's current stream of `device`, also while it captures a graph."""
    return cuda.CUstream(torch.cuda.current_stream(device).cuda_stream)
