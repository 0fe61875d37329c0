"""What a KDA step is timed on: inputs in several copies, so that weights and states come from memory, not from L2."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from specialized_path.kernels.benchmark import BenchmarkCell, PreparedCell, num_copies
from specialized_path.kernels.kda.geometry import DIM, TAPS
from specialized_path.kernels.kda.launch import KdaWeights, kda_decode, kda_verify
from specialized_path.kernels.kda.schedule import HEADS
from specialized_path.kernels.kda.stock import MAKERS, Run, Step

REQUESTS = (1, 2, 4, 8, 16, 32, 64)
VERIFY_TOKENS = (2, 4, 8)
VERIFY_REQUESTS = (1, 8)


def cells() -> tuple[BenchmarkCell, ...]:
    """Decode at every batch, verify steps at the small ones."""
    shapes = [(1, n) for n in REQUESTS] + [(t, n) for t in VERIFY_TOKENS for n in VERIFY_REQUESTS]
    return tuple(
        BenchmarkCell(
            name=f"kda {rank_shape} tokens={tokens} requests={num_reqs}",
            family="kda",
            operator="OC-4..6" if tokens == 1 else "OC-7",
            rank_shape=rank_shape,
            batch=num_reqs,
            bytes_moved=bytes_moved(heads, num_reqs, tokens),
            prepare=partial(_prepare, heads, num_reqs, tokens),
        )
        for rank_shape, heads in HEADS.items()
        for tokens, num_reqs in shapes
    )


def bytes_moved(heads: int, num_reqs: int, tokens: int) -> int:
    """One state read and one written a token, windows both ways, the projection's rows, y and the weights."""
    width, rows = heads * DIM, num_reqs * tokens
    states = num_reqs * (1 + tokens) * width * DIM * 4
    windows = num_reqs * 3 * width * (TAPS - 1 + TAPS - 2 + tokens) * 2
    activations = rows * (4 * width + DIM + heads + width) * 2
    weights = 3 * width * TAPS * 4 + width * DIM * 2 + width * 4
    return states + windows + activations + weights


def _prepare(heads: int, num_reqs: int, tokens: int) -> PreparedCell:
    steps = draw_steps(heads, num_reqs, tokens)
    baselines: dict[str, list[Run]] = {}
    missing: dict[str, str] = {}
    for name, make in MAKERS.items():
        try:
            baselines[name] = [make(step) for step in steps]
        except (ImportError, NotImplementedError) as error:
            missing[name] = f"{type(error).__name__}: {error}"
    candidate = [_candidate(step) for step in steps]
    candidate[0]()
    torch.cuda.synchronize()
    return PreparedCell(candidate=candidate, baselines=baselines, missing=missing)


def draw_steps(heads: int, num_reqs: int, tokens: int) -> list[Step]:
    """Copies of a step with inputs of their own; their slots lie scattered in one pool."""
    width = heads * DIM
    copies = num_copies(bytes_moved(heads, num_reqs, tokens))
    num_slots = copies * num_reqs * tokens + 1
    columns = -(-(4 * width + DIM + heads) // 16) * 16
    gen = torch.Generator("cuda").manual_seed(0)

    def randn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=gen, device="cuda")

    slots = torch.randperm(num_slots - 1, generator=gen, device="cuda").int() + 1
    one = Step(
        projected=randn(num_reqs * tokens, columns).bfloat16(),
        weights=KdaWeights(
            conv_weight=randn(3 * width, TAPS) * 0.5,
            w_f_b=(randn(width, DIM) * 0.1).bfloat16(),
            A_log=randn(heads) * 0.5,
            dt_bias=randn(width),
            o_norm_weight=randn(DIM).bfloat16(),
        ),
        conv_state=randn(num_slots, tokens + TAPS - 2, 3 * width).bfloat16().transpose(1, 2),
        state=randn(num_slots, heads, DIM, DIM) * 0.1,
        slots=slots[: num_reqs * tokens].view(num_reqs, tokens),
        num_accepted_tokens=torch.full((num_reqs,), (tokens + 1) // 2, device="cuda").int(),
    )
    return [_copy(one, part.view(num_reqs, tokens)) for part in slots.split(num_reqs * tokens)]


def _copy(step: Step, slots: Tensor) -> Step:
    weights = replace(
        step.weights, conv_weight=step.weights.conv_weight.clone(), w_f_b=step.weights.w_f_b.clone()
    )
    return replace(step, projected=step.projected.clone(), weights=weights, slots=slots)


def _candidate(step: Step) -> Run:
    out = torch.empty(len(step.projected), step.heads * DIM, dtype=torch.bfloat16, device="cuda")
    pools = (step.conv_state, step.state)
    if step.slots.shape[1] == 1:
        return partial(kda_decode, step.projected, step.weights, *pools, step.slots[:, 0], out=out)
    return partial(
        kda_verify, step.projected, step.weights, *pools, step.slots, step.num_accepted_tokens, out=out
    )
