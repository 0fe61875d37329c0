"""Entry points for kernels that others published: CUTLASS's CuTe DSL examples of dependent launch, and quack's GEMM.

Each compiles the published code with fake tensors; `*_without_wait` is the same with the wait compiled to nothing, so
that the audit has to find what it guarded. CUTLASS's files are imported from a clone (`dsl_tutorials` and
`cute/blackwell/tutorial/tutorial_gemm` below `examples/python/CuTeDSL`, commit 7107b055 when this was written), quack
from where it is installed.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Iterator
from unittest import mock

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute import runtime
from cutlass.experimental import primitives

ARCH = os.environ.get("CUTE_DSL_ARCH", "sm_90a")


@contextlib.contextmanager
def no_wait() -> Iterator[None]:
    """The DSL's two spellings of the wait compiled to nothing."""
    real = primitives.griddepcontrol

    def without(action: object, **options: object) -> None:
        if action != primitives.GridDepAction.WAIT:
            real(action, **options)

    with (
        mock.patch.object(cute.arch, "griddepcontrol_wait", lambda: None),
        mock.patch.object(primitives, "griddepcontrol", without),
    ):
        yield


def capability(*_: object) -> tuple[int, int]:
    major, minor = re.fullmatch(r"sm_(\d+)(\d)a?", ARCH).groups()
    return int(major), int(minor)


def matrix(dtype: type, *shape: int) -> object:
    """A row-major tensor without memory."""
    order = tuple(reversed(range(len(shape))))
    return runtime.make_fake_compact_tensor(dtype, shape, stride_order=order, assumed_align=32)


def pdl_add() -> Iterator[str]:
    """Two elementwise additions, the second of which reads the first one's result."""
    example = importlib.import_module("programmatic_dependent_launch")
    tensors = [matrix(cutlass.Float32, 256, 256) for _ in range(3)]
    for is_first in (True, False):
        cute.compile(example.elementwise_add, *tensors, runtime.make_fake_stream(), True, is_first)
        yield "first" if is_first else "second"


def pdl_add_without_wait() -> Iterator[str]:
    """The same without the wait."""
    with no_wait():
        yield from pdl_add()


def gemm6() -> Iterator[str]:
    """A dequantisation, and the Blackwell GEMM that depends on it."""
    example = importlib.import_module("fp16_gemm_6")
    m, n, k = 256, 8192, 128
    tensors = (matrix(example.io_dtype, m, k), matrix(example.quant_dtype, n, k))
    tensors += (matrix(example.io_dtype, n, k), matrix(example.io_dtype, m, n))
    cute.compile(example.host_function, *tensors, 2.33, 74, runtime.make_fake_stream())
    yield "dequantize and gemm"


def gemm6_without_wait() -> Iterator[str]:
    """The same without the wait."""
    with no_wait():
        yield from gemm6()


def quack_gemm() -> Iterator[tuple[str, object]]:
    """quack's default GEMM in two tiles."""
    torch.cuda.get_device_capability = capability
    # The one attribute that the DSL asks the driver for: shared memory of an SM.
    importlib.import_module("cutlass.base_dsl.runtime.cuda").get_device_attribute = lambda *_: 228 * 1024
    gemm = importlib.import_module("quack.gemm")
    nearest = importlib.import_module("quack.rounding").RoundingMode.RN
    build = getattr(gemm._compile_gemm, "__wrapped__", gemm._compile_gemm)
    bf16 = cutlass.BFloat16
    for tile, cluster in (((128, 128), (1, 1, 1)), ((128, 256), (2, 1, 1))):
        layout = (bf16, bf16, bf16, None, "k", "k", "n", None, tile, cluster, False, True, False, None, None)
        options = (0, 0, 0, False, None, False, False, False, False, False, capability(), nearest, 0, None)
        yield f"tile={tile[0]}x{tile[1]}", build(*layout, *options)


def quack_gemm_without_wait() -> Iterator[tuple[str, object]]:
    """The same without the wait."""
    with no_wait():
        yield from quack_gemm()
