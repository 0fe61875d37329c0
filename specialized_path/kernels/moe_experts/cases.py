"""Adversarial values of the routed experts' contract, as data: choices of experts, activations, scales, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specialized_path.kernels.moe_experts.shape import ExpertShape
from specialized_path.reference.mxfp4 import GROUP_SIZE, Mxfp4Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointExperts:
    """A rank's experts in the checkpoint's layout."""

    w1: Mxfp4Weight
    """[E, I, L]."""
    w3: Mxfp4Weight
    w2: Mxfp4Weight
    """[E, L, I]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsStep:
    """What a step gives to the experts."""

    latent: Tensor
    """[B, L] BF16."""
    topk_ids: Tensor
    """[B, top_k] int32."""
    topk_weights: Tensor
    """[B, top_k] BF16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsCase:
    """A name, the number of tokens, and what it does to a random step."""

    name: str
    num_tokens: int
    change: Callable[[ExpertsStep], ExpertsStep] = lambda step: step


def random_mxfp4(gen: torch.Generator, low: int, high: int, *size: int) -> Mxfp4Weight:
    """Uniform codes, scale codes in `low ... high`, [..., N, K]."""
    *lead, columns = size
    draw = {"generator": gen, "device": gen.device, "dtype": torch.uint8}
    return Mxfp4Weight(
        packed=torch.randint(0, 256, (*lead, columns // 2), **draw),
        scale=torch.randint(low, high + 1, (*lead, columns // GROUP_SIZE), **draw),
    )


def random_experts(shape: ExpertShape, device: str, *, num_experts: int | None = None) -> CheckpointExperts:
    """Experts whose gates and ups are about one for activations of about one, scales spread over 2^6."""
    gen = torch.Generator(device).manual_seed(shape.intermediate)
    count = shape.num_experts if num_experts is None else num_experts
    inner = (count, shape.intermediate, shape.latent)
    return CheckpointExperts(
        w1=random_mxfp4(gen, 115, 121, *inner),
        w3=random_mxfp4(gen, 115, 121, *inner),
        w2=random_mxfp4(gen, 117, 123, count, shape.latent, shape.intermediate),
    )


def random_step(shape: ExpertShape, num_tokens: int, device: str, seed: int = 0) -> ExpertsStep:
    """Activations of about one, distinct experts a token, weights that add up to about one."""
    gen = torch.Generator(device).manual_seed(1000 * seed + num_tokens)
    latent = torch.randn(num_tokens, shape.latent, generator=gen, device=device).bfloat16()
    keys = torch.rand(num_tokens, shape.num_experts, generator=gen, device=device)
    weights = torch.rand(num_tokens, shape.top_k, generator=gen, device=device) + 0.1
    return ExpertsStep(
        latent=latent,
        topk_ids=keys.topk(shape.top_k).indices.int(),
        topk_weights=(weights / weights.sum(-1, keepdim=True)).bfloat16(),
    )


def _same_experts(step: ExpertsStep) -> ExpertsStep:
    return replace(step, topk_ids=step.topk_ids[:1].expand_as(step.topk_ids).contiguous())


def _one_crowded_expert(step: ExpertsStep) -> ExpertsStep:
    """Expert 895 serves a slot of every token, expert 0 one token."""
    ids = step.topk_ids.clone()
    rows = torch.arange(len(ids), device=ids.device)
    ids[(ids == 895) | (ids == 0)] = 17
    ids[rows, rows % ids.shape[1]] = 895
    ids[-1, len(ids) % ids.shape[1]] = 0
    return replace(step, topk_ids=ids)


def _one_expert_in_every_slot(step: ExpertsStep) -> ExpertsStep:
    return replace(step, topk_ids=torch.full_like(step.topk_ids, 3))


def _outliers(step: ExpertsStep) -> ExpertsStep:
    """One activation of each group of 32 is a thousand times as large."""
    latent = step.latent.clone()
    latent[:, 5::GROUP_SIZE] *= 1024
    return replace(step, latent=latent)


def _scaled(factor: float) -> Callable[[ExpertsStep], ExpertsStep]:
    return lambda step: replace(step, latent=step.latent * factor)


def _infinite(step: ExpertsStep) -> ExpertsStep:
    latent = step.latent.clone()
    latent[0, 7] = float("inf")
    return replace(step, latent=latent)


def _nan_row(step: ExpertsStep) -> ExpertsStep:
    latent = step.latent.clone()
    latent[-1, 9] = float("nan")
    return replace(step, latent=latent)


CASES = (
    *(ExpertsCase(name=f"{n} tokens", num_tokens=n) for n in (1, 2, 3, 5, 8, 17, 64)),
    ExpertsCase(name="64 tokens, the same experts", num_tokens=64, change=_same_experts),
    ExpertsCase(name="9 tokens, the same experts", num_tokens=9, change=_same_experts),
    ExpertsCase(name="64 tokens, one crowded expert", num_tokens=64, change=_one_crowded_expert),
    *(
        ExpertsCase(
            name=f"{n} tokens, one expert in every slot", num_tokens=n, change=_one_expert_in_every_slot
        )
        for n in (1, 2, 3)
    ),
    ExpertsCase(name="an outlier a group", num_tokens=4, change=_outliers),
    ExpertsCase(name="large: the activation saturates", num_tokens=4, change=_scaled(2.0**13)),
    ExpertsCase(name="small", num_tokens=4, change=_scaled(2.0**-20)),
    ExpertsCase(name="zero", num_tokens=2, change=_scaled(0.0)),
    ExpertsCase(name="an infinite activation", num_tokens=3, change=_infinite),
    ExpertsCase(name="a row with NaN", num_tokens=3, change=_nan_row),
)
