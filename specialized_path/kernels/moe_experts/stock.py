"""vLLM 0.33.0's Marlin experts at our sizes, as its layer calls them: the baseline on Hopper, where it imports."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from specialized_path.kernels.moe_experts.cases import ExpertsStep
from specialized_path.kernels.moe_experts.packing import MarlinExperts


def marlin(weights: MarlinExperts, steps: Sequence[ExpertsStep]) -> list[Callable[[], object]]:
    """For each step, its launches: grouping, gate-up, activation, down with router weights, sum.

    Raises:
        ImportError: vLLM is not there.
    """
    experts: Any = importlib.import_module("vllm.model_executor.layers.fused_moe.experts.marlin_moe")
    activation: Any = importlib.import_module("vllm.model_executor.layers.fused_moe.activation")
    ops: Any = importlib.import_module("vllm._custom_ops")
    scalar_types: Any = importlib.import_module("vllm.scalar_type").scalar_types
    config = activation.ApplyMoEActivationConfig(activation_situ_beta=4.0, activation_situ_linear_beta=25.0)

    def add(outputs: Tensor, out: Tensor, *_: object) -> Tensor:
        ops.moe_sum(outputs, out)
        return out

    return [
        partial(
            experts.fused_marlin_moe,
            hidden_states=step.latent,
            w1=weights.w13,
            w2=weights.w2,
            bias1=None,
            bias2=None,
            w1_scale=weights.w13_scale.view(torch.float8_e8m0fnu),
            w2_scale=weights.w2_scale.view(torch.float8_e8m0fnu),
            topk_weights=step.topk_weights.float(),
            topk_ids=step.topk_ids,
            quant_type_id=scalar_types.float4_e2m1f.id,
            global_num_experts=len(weights.w13),
            activation=activation.MoEActivation.SITU,
            activation_config=config,
            moe_sum=add,
            output=torch.empty_like(step.latent),
        )
        for step in steps
    ]
