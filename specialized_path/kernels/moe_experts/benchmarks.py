"""What the experts are timed on: every step chooses experts of its own, so that their weights come from memory."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from specialized_path.kernels.benchmark import ROTATED_BYTES, BenchmarkCell, PreparedCell, num_copies
from specialized_path.kernels.moe_experts.cases import random_step
from specialized_path.kernels.moe_experts.launch import routed_experts
from specialized_path.kernels.moe_experts.packing import MarlinExperts
from specialized_path.kernels.moe_experts.shape import GROUP_K, SHAPES, STEP_K, ExpertShape
from specialized_path.kernels.moe_experts.shared_launch import (
    PackedSharedExperts,
    pack_shared_experts,
    shared_experts,
)
from specialized_path.kernels.moe_experts.shared_variants import HIDDEN, INTERMEDIATE
from specialized_path.kernels.moe_experts.stock import marlin

BATCHES = (1, 2, 4, 8, 16, 32, 64)


def cells() -> tuple[BenchmarkCell, ...]:
    """Routed experts, then shared experts, at every batch."""
    routed = tuple(
        BenchmarkCell(
            name=f"moe routed {shape.name} batch={batch}",
            family="moe_experts",
            operator="OC-16, OC-17",
            rank_shape=shape.name.split()[0],
            batch=batch,
            bytes_moved=routed_bytes(shape, batch),
            prepare=partial(_prepare_routed, shape, batch),
        )
        for shape in SHAPES
        for batch in BATCHES
    )
    return routed + tuple(
        BenchmarkCell(
            name=f"moe shared {rank_shape} batch={batch}",
            family="moe_experts",
            operator="OC-18",
            rank_shape=rank_shape,
            batch=batch,
            bytes_moved=6 * size * HIDDEN + 4 * batch * (HIDDEN + size),
            prepare=partial(_prepare_shared, size, batch),
        )
        for rank_shape, size in INTERMEDIATE.items()
        for batch in BATCHES
    )


def routed_bytes(shape: ExpertShape, batch: int) -> int:
    """Weights of the experts that uniform routing is expected to choose, activations in and out."""
    distinct = shape.num_experts * (1 - (1 - shape.top_k / shape.num_experts) ** batch)
    hidden = 2 * batch * shape.top_k * 2 * shape.intermediate
    return int(distinct * shape.read_bytes) + hidden + 4 * batch * shape.latent


def draw_weights(shape: ExpertShape) -> MarlinExperts:
    """Weights of every expert, codes uniform, scales 2^-11 ... 2^-6, on the current GPU."""
    gen = torch.Generator("cuda").manual_seed(0)

    def words(rows: int, columns: int) -> Tensor:
        size = (shape.num_experts, columns // STEP_K, 2 * rows)
        return torch.randint(-(2**31), 2**31, size, generator=gen, device="cuda", dtype=torch.int32)

    def scales(rows: int, columns: int) -> Tensor:
        size = (shape.num_experts, columns // GROUP_K, rows)
        return torch.randint(116, 122, size, generator=gen, device="cuda", dtype=torch.uint8)

    return MarlinExperts(
        w13=words(2 * shape.held, shape.latent),
        w2=words(shape.latent, shape.held),
        w13_scale=scales(2 * shape.held, shape.latent),
        w2_scale=scales(shape.latent, shape.held),
    )


def _prepare_routed(shape: ExpertShape, batch: int) -> PreparedCell:
    weights = draw_weights(shape)
    hidden = torch.empty(batch, shape.top_k, shape.intermediate, dtype=torch.bfloat16, device="cuda")
    out = torch.empty(batch, shape.latent, dtype=torch.bfloat16, device="cuda")
    copies = max(3, -(-ROTATED_BYTES // (batch * shape.top_k * shape.read_bytes)))
    steps = [random_step(shape, batch, "cuda", seed=i) for i in range(copies)]
    candidate = [
        partial(routed_experts, s.latent, s.topk_ids, s.topk_weights, weights, hidden=hidden, out=out)
        for s in steps
    ]
    candidate[0]()
    torch.cuda.synchronize()
    try:
        return PreparedCell(
            candidate=candidate, baselines={"vllm Marlin": marlin(weights, steps)}, missing={}
        )
    except ImportError as error:
        return PreparedCell(candidate=candidate, baselines={}, missing={"vllm Marlin": str(error)})


def _prepare_shared(size: int, batch: int) -> PreparedCell:
    gen = torch.Generator("cuda").manual_seed(size)
    x = torch.randn(batch, HIDDEN, generator=gen, device="cuda").bfloat16()
    hidden, out = x.new_empty(batch, size), torch.empty_like(x)
    weights = [_draw_shared(size, gen) for _ in range(num_copies(6 * size * HIDDEN))]
    gate_up, both = x.new_empty(batch, 2 * size), torch.empty_like(x)

    def products(w: PackedSharedExperts) -> None:
        torch.mm(x, w.gate_up.T, out=gate_up)
        torch.mm(hidden, w.down.T, out=both)

    candidate = [partial(shared_experts, x, w, hidden=hidden, out=out) for w in weights]
    candidate[0]()
    torch.cuda.synchronize()
    return PreparedCell(
        candidate=candidate,
        baselines={"torch, without the activation": [partial(products, w) for w in weights]},
        missing={},
    )


def _draw_shared(size: int, gen: torch.Generator) -> PackedSharedExperts:
    up = torch.randn(2 * size, HIDDEN, generator=gen, device="cuda") * 2 * HIDDEN**-0.5
    down = torch.randn(HIDDEN, size, generator=gen, device="cuda") * size**-0.5
    return pack_shared_experts(up.bfloat16(), down.bfloat16())
