"""The exchange in both forms against NCCL's all-reduce between the unfused kernels, in one process and by turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from examples.peers.data import Case, count_wrong, draw_case, draw_weights, outputs
from examples.peers.exchange import COPIES, LAYERS, OutputExchange
from examples.peers.facts import TimingFacts
from examples.peers.graphs import capture
from examples.peers.plan import BATCHES, FORMS
from examples.peers.session import Session
from specialized_path.kernels.attn_res.launch import attn_res_after_attention
from specialized_path.kernels.benchmark import num_copies
from specialized_path.kernels.projection.launch import project

_EXCHANGES = 20
"""In a graph; a multiple of the copies."""
_ROUNDS = 15


def times(session: Session) -> Iterator[TimingFacts]:
    """GPU time of an exchange by batch and arm; weights rotate past L2."""
    nccl = dist.new_group(backend="nccl")
    all_weights = draw_weights(session)
    mine = all_weights[session.process]
    weights = [mine.clone() for _ in range(num_copies(mine.numel() * 2))]
    exchanges = {form: OutputExchange(session, form, use_pdl=True) for form in FORMS}
    for batch in BATCHES:
        case = draw_case(session, all_weights, batch, batch)
        found = {arm: outputs(session, batch) for arm in (*FORMS, "nccl")}
        calls: dict[str, Callable[[int], object]] = {
            form: _exchange_call(exchange, case, weights, found[form]) for form, exchange in exchanges.items()
        }
        calls["nccl"] = _nccl_call(case, weights, found["nccl"], nccl)
        replays = {arm: _capture(session, call) for arm, call in calls.items()}
        samples: dict[str, list[float]] = {arm: [] for arm in replays}
        for turn in range(_ROUNDS):
            for arm in sorted(replays, reverse=bool(turn % 2)):
                samples[arm].append(_replay_us(session, replays[arm]))
        session.meet()
        words = [exchange.error_words() for exchange in exchanges.values()]
        yield TimingFacts(
            case=f"batch {batch}",
            batch=batch,
            samples_us={arm: tuple(values) for arm, values in samples.items()},
            full_words=sum(exchange.full_words() for exchange in exchanges.values()),
            error_words=tuple(map(max, zip(*words, strict=True))),
            wrong_elements=sum(int(count_wrong(case, found[form])) for form in FORMS),
            baseline_error=_relative_error(found["nccl"], case.wanted[:, 0]),
        )
    for exchange in exchanges.values():
        exchange.close()


def _relative_error(found: Tensor, wanted: Tensor) -> float:
    """Of L2 norms."""
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())


def _exchange_call(
    exchange: OutputExchange, case: Case, weights: list[Tensor], found: Tensor
) -> Callable[[int], object]:
    def call(index: int) -> None:
        weight = weights[index % len(weights)].unsqueeze(0)
        exchange.run(case.x, weight, case.residual, index % COPIES, found[0], found[1])

    return call


def _nccl_call(case: Case, weights: list[Tensor], found: Tensor, group: object) -> Callable[[int], object]:
    partial = torch.empty_like(case.residual.prefix)

    def call(index: int) -> None:
        project(case.x[0], weights[index % len(weights)], out=partial)
        dist.all_reduce(partial, group=group)
        attn_res_after_attention(
            case.residual.prefix,
            case.residual.blocks,
            partial,
            *case.residual.weights,
            layer_idx=LAYERS["add"],
            out=found[0],
            prefix_out=found[1],
        )

    return call


def _capture(session: Session, call: Callable[[int], object]) -> Callable[[], object]:
    for index in range(COPIES):
        call(index)

    def call_all() -> None:
        for index in range(_EXCHANGES):
            call(index)

    return capture(session, call_all)


def _replay_us(session: Session, replay: Callable[[], object]) -> float:
    """Of one call; a replay before the timed one lets the GPUs meet, as every exchange does."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    session.meet()
    replay()
    start.record()
    replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3 / _EXCHANGES
