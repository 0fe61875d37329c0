"""What surrounds the routed experts is timed on: each kernel alone, and the MoE half of a layer as one chain."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from specialized_path.kernels.benchmark import BenchmarkCell, PreparedCell, num_copies
from specialized_path.kernels.moe_experts.benchmarks import draw_weights, routed_bytes
from specialized_path.kernels.moe_experts.launch import routed_experts
from specialized_path.kernels.moe_experts.shape import SHAPES
from specialized_path.kernels.moe_latent.geometry import (
    FRONTS,
    HIDDEN,
    LATENT,
    NUM_EXPERTS,
    TOP_K,
    FrontShape,
)
from specialized_path.kernels.moe_latent.launch import (
    front,
    front_buffer,
    latent_norm,
    project_tail,
    select_experts,
    tail_ahead,
)

BATCHES = (1, 2, 4, 8, 16, 32, 64)
Prepare = Callable[[int], PreparedCell]


def cells() -> tuple[BenchmarkCell, ...]:
    """Front, selection, norm, tail and the whole, at every batch."""
    kinds: list[tuple[str, str, str, Callable[[int], int], Prepare]] = [
        ("selection", "OC-14", "any", lambda b: 4 * NUM_EXPERTS * (b + 1), _prepare_selection),
        ("norm", "OC-17", "any", lambda b: 2 * LATENT * (2 * b + 1), _prepare_norm),
    ]
    for at, shape in enumerate(FRONTS):
        weight_bytes = 2 * shape.num_outputs * HIDDEN
        kinds.append(
            (
                f"front {shape.name}",
                "OC-14, OC-15, OC-18",
                shape.name,
                partial(_bytes, weight_bytes),
                partial(_prepare_front, shape),
            )
        )
        kinds.append(
            (
                f"tail {shape.name}",
                "OC-18, OC-19",
                shape.name,
                partial(_tail_bytes, shape),
                partial(_prepare_tail, shape),
            )
        )
        others = weight_bytes + 2 * HIDDEN * shape.tail_inputs
        kinds.append(
            (
                f"half {shape.name}",
                "OC-14 to OC-19",
                shape.name,
                partial(_half_bytes, at, others),
                partial(_prepare_half, at),
            )
        )
    return tuple(
        BenchmarkCell(
            name=f"moe {name} batch={batch}",
            family="moe_latent",
            operator=operator,
            rank_shape=rank_shape,
            batch=batch,
            bytes_moved=bytes_moved(batch),
            prepare=partial(prepare, batch),
        )
        for name, operator, rank_shape, bytes_moved, prepare in kinds
        for batch in BATCHES
    )


def _bytes(weight_bytes: int, batch: int) -> int:
    return weight_bytes + batch * (4 * HIDDEN + 4 * NUM_EXPERTS)


def _tail_bytes(shape: FrontShape, batch: int) -> int:
    return 2 * (HIDDEN * shape.tail_inputs + batch * (HIDDEN + shape.tail_inputs))


def _half_bytes(at: int, others: int, batch: int) -> int:
    return others + routed_bytes(SHAPES[at], batch)


def _draw(*size: int, scale: float = 1.0, seed: int = 0) -> Tensor:
    gen = torch.Generator("cuda").manual_seed(seed)
    return (torch.randn(*size, generator=gen, device="cuda") * scale).bfloat16()


def _prepared(candidate: list[Callable[[], object]], torch_calls: list[Callable[[], object]]) -> PreparedCell:
    candidate[0]()
    torch.cuda.synchronize()
    return PreparedCell(
        candidate=candidate, baselines={"torch": torch_calls} if torch_calls else {}, missing={}
    )


def _prepare_front(shape: FrontShape, batch: int) -> PreparedCell:
    x, copies = _draw(batch, HIDDEN), num_copies(2 * shape.num_outputs * HIDDEN)
    weights = [_draw(shape.num_outputs, HIDDEN, scale=HIDDEN**-0.5, seed=i) for i in range(copies)]
    buffer, out = front_buffer(weights[0]), x.new_empty(batch, shape.num_outputs)
    return _prepared(
        [partial(front, x, w, buffer=buffer) for w in weights],
        [partial(torch.mm, x, w.T, out=out) for w in weights],
    )


def _prepare_selection(batch: int) -> PreparedCell:
    logits, bias = _draw(batch, NUM_EXPERTS).float(), torch.zeros(NUM_EXPERTS, device="cuda")
    ids, weights = _ids_and_weights(batch)

    def stock() -> Tensor:
        scores = logits.sigmoid()
        chosen = scores.gather(1, (scores + bias).topk(TOP_K).indices)
        return (chosen / chosen.sum(1, keepdim=True)).bfloat16()

    return _prepared([partial(select_experts, logits, bias, ids=ids, weights=weights)] * 3, [stock] * 3)


def _prepare_norm(batch: int) -> PreparedCell:
    x, w = _draw(batch, LATENT), _draw(LATENT)
    stock = partial(torch.nn.functional.rms_norm, x, (LATENT,), w, 1e-5)
    return _prepared([partial(latent_norm, x, w, out=torch.empty_like(x))] * 3, [stock] * 3)


def _prepare_tail(shape: FrontShape, batch: int) -> PreparedCell:
    columns = shape.tail_inputs
    x, out = _draw(batch, columns), _draw(batch, HIDDEN)
    copies = num_copies(2 * HIDDEN * columns)
    weights = [_draw(HIDDEN, columns, scale=columns**-0.5, seed=i) for i in range(copies)]
    return _prepared(
        [partial(project_tail, x, w, out=out) for w in weights],
        [partial(torch.mm, x, w.T, out=torch.empty_like(out)) for w in weights],
    )


def _ids_and_weights(batch: int) -> tuple[Tensor, Tensor]:
    ids = torch.empty(batch, TOP_K, dtype=torch.int32, device="cuda")
    return ids, torch.empty(batch, TOP_K, dtype=torch.bfloat16, device="cuda")


def _prepare_half(at: int, batch: int) -> PreparedCell:
    """The six kernels in their order; experts as the router of drawn weights chooses them."""
    shape, experts = FRONTS[at], draw_weights(SHAPES[at])
    fronts = [_draw(shape.num_outputs, HIDDEN, scale=HIDDEN**-0.5, seed=i) for i in range(4)]
    tails = [_draw(HIDDEN, shape.tail_inputs, scale=0.02, seed=i) for i in range(4)]
    w_norm = _draw(LATENT)
    x, bias = _draw(batch, HIDDEN), torch.zeros(NUM_EXPERTS, device="cuda")
    buffer, (ids, weights) = front_buffer(fronts[0]), _ids_and_weights(batch)
    hidden, combined = x.new_empty(batch, TOP_K, SHAPES[at].intermediate), x.new_empty(batch, LATENT)
    out = torch.empty_like(x)

    def half(w_front: Tensor, w_tail: Tensor) -> None:
        found = front(x, w_front, buffer=buffer)
        select_experts(found.logits, bias, ids=ids, weights=weights, ahead=tail_ahead(w_tail, batch))
        routed_experts(found.latent, ids, weights, experts, hidden=hidden, out=combined)
        latent_norm(combined, w_norm, out=found.normed)
        project_tail(found.tail, w_tail, out=out)

    return _prepared([partial(half, *w) for w in zip(fronts, tails, strict=True)], [])
