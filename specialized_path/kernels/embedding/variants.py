"""Variants of the embedding: by width of the ids."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import torch

from specialized_path.kernels.variant import KernelVariant

MAX_TOKENS = 64
ROLES = {"0": "activation", "1": "static", "2": "output"}


def build(dtype: torch.dtype) -> Any:
    """Compiles the kernel for ids of a type."""
    import cutlass
    import cutlass.cute as cute

    from specialized_path.kernels.common.host import fake_pointer, fake_stream
    from specialized_path.kernels.embedding.kernel import EmbeddingKernel

    sizes = [cutlass.Int32(1), cutlass.Int64(0), cutlass.Int64(1), cutlass.Int32(1)]
    addresses = [fake_pointer(dtype), fake_pointer(), fake_pointer()]
    return cute.compile(EmbeddingKernel(id_bytes=dtype.itemsize), *addresses, *sizes, fake_stream())


@cache
def variant_of(dtype: torch.dtype) -> KernelVariant:
    """The variant for ids of a type, int32 or int64."""
    return KernelVariant(
        name=f"embedding int{8 * dtype.itemsize}",
        operator="OC-1",
        family="embedding",
        rank_shape="any",
        batches=(1, MAX_TOKENS),
        roles=ROLES,
        build=partial(build, dtype),
    )


def variants() -> tuple[KernelVariant, ...]:
    """All variants of the family."""
    return variant_of(torch.int32), variant_of(torch.int64)
