"""What the projections are timed on: every weight shape at every fitted batch, weights rotating through memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from specialized_path.kernels.benchmark import BenchmarkCell, PreparedCell, num_copies
from specialized_path.kernels.projection.launch import project
from specialized_path.kernels.projection.variants import BATCHES, SHAPES, WeightShape


def cells() -> tuple[BenchmarkCell, ...]:
    """All cells of the family."""
    return tuple(
        BenchmarkCell(
            name=f"projection {shape.name} batch={batch}",
            family="projection",
            operator=shape.operator,
            rank_shape=shape.rank_shape,
            batch=batch,
            bytes_moved=shape.num_bytes + 2 * batch * (shape.num_inputs + shape.num_outputs),
            prepare=partial(_prepare, shape, batch),
        )
        for shape in SHAPES
        for batch in BATCHES
    )


def draw(shape: WeightShape, batch: int) -> tuple[Tensor, list[Tensor]]:
    """Activations of about one, and copies of weights that keep them so, on the current GPU."""
    gen = torch.Generator("cuda").manual_seed(0)
    size = (shape.num_outputs, shape.num_inputs)
    x = torch.randn(batch, shape.num_inputs, generator=gen, device="cuda").bfloat16()
    scale = shape.num_inputs**-0.5
    return x, [
        (torch.randn(*size, generator=gen, device="cuda") * scale).bfloat16()
        for _ in range(num_copies(shape.num_bytes))
    ]


def _prepare(shape: WeightShape, batch: int) -> PreparedCell:
    x, weights = draw(shape, batch)
    out = torch.empty(batch, shape.num_outputs, dtype=x.dtype, device="cuda")
    baselines: dict[str, list[Callable[[], object]]] = {
        "torch": [partial(torch.mm, x, w.T, out=out.clone()) for w in weights]
    }
    missing = {}
    try:
        stock = _stock()
        baselines["vllm"] = [partial(stock, x, w) for w in weights]
    except ImportError as error:
        missing["vllm"] = f"{type(error).__name__}: {error}"
    candidate = [partial(project, x, w, out=out) for w in weights]
    candidate[0]()
    torch.cuda.synchronize()
    return PreparedCell(candidate=candidate, baselines=baselines, missing=missing)


def _stock() -> Callable[[Tensor, Tensor], Any]:
    """vLLM 0.33.0's kernel for a shape and batch; it raises NotImplementedError where vLLM would call cuBLAS."""
    from vllm.models.kimi_k3.nvidia.low_latency_gemm import try_low_latency_gemm

    def run(x: Tensor, weight: Tensor) -> Any:
        found = try_low_latency_gemm(x, weight)
        if found is None:
            raise NotImplementedError("vLLM runs no kernel of its own here and calls cuBLAS")
        return found

    return run
