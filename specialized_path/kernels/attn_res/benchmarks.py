"""What the attention residuals are timed on: the boundary after attention, blocks and rows rotating through memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from specialized_path.kernels.attn_res.launch import attn_res_after_attention
from specialized_path.kernels.attn_res.variants import HIDDEN
from specialized_path.kernels.benchmark import BenchmarkCell, PreparedCell, num_copies
from specialized_path.reference import attn_res_after_attention as in_pytorch

BATCHES = (1, 2, 4, 8, 16, 32, 64)
NUM_BLOCKS = (1, 4, 8)
EPS = 1e-5
_ROW_BYTES = 2 * HIDDEN


def cells() -> tuple[BenchmarkCell, ...]:
    """All cells of the family."""
    return tuple(
        BenchmarkCell(
            name=f"attn_res blocks={num_blocks} batch={batch}",
            family="attn_res",
            operator="OC-13",
            rank_shape="any",
            batch=batch,
            bytes_moved=bytes_moved(num_blocks, batch),
            prepare=partial(_prepare, num_blocks, batch),
        )
        for num_blocks in NUM_BLOCKS
        for batch in BATCHES
    )


def bytes_moved(num_blocks: int, batch: int) -> int:
    """Blocks, prefix and delta read, prefix and output written, three weights."""
    return (batch * (num_blocks + 4) + 3) * _ROW_BYTES


def _prepare(num_blocks: int, batch: int) -> PreparedCell:
    gen = torch.Generator("cuda").manual_seed(0)
    copies = num_copies(batch * (num_blocks + 4) * _ROW_BYTES)

    def randn(*shape: int) -> Tensor:
        return torch.randn(*shape, HIDDEN, generator=gen, device="cuda").bfloat16()

    weights = (randn(), randn() * HIDDEN**-0.5, randn())
    rows = [(randn(batch), randn(batch, 8), randn(batch)) for _ in range(copies)]
    outs = [(torch.empty_like(prefix), torch.empty_like(prefix)) for prefix, _, _ in rows]
    # A layer behind a block write: the prefix is added to.
    layer_idx = 12 * num_blocks - 11
    candidate = [
        partial(attn_res_after_attention, *row, *weights, layer_idx=layer_idx, out=out, prefix_out=new)
        for row, (out, new) in zip(rows, outs, strict=True)
    ]
    baselines: dict[str, list[Callable[[], object]]] = {
        "torch": [partial(in_pytorch, *row, *weights, layer_idx=layer_idx) for row in rows]
    }
    missing = {}
    try:
        baselines["vllm"] = [_stock(row, weights, num_blocks) for row in rows]
    except ImportError as error:
        missing["vllm"] = f"{type(error).__name__}: {error}"
    candidate[0]()
    torch.cuda.synchronize()
    return PreparedCell(candidate=candidate, baselines=baselines, missing=missing)


def _stock(
    row: tuple[Tensor, Tensor, Tensor], weights: tuple[Tensor, Tensor, Tensor], num_blocks: int
) -> Callable[[], object]:
    """vLLM 0.33.0's kernel as its layers call it; it updates the prefix in place."""
    from vllm.models.kimi_k3.nvidia.ops.attn_res import attn_res

    prefix, blocks, delta = row
    return partial(attn_res, prefix, delta, blocks, *weights, num_blocks, -1, EPS, EPS)
