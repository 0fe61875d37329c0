"""vLLM 0.33.0's Marlin experts at our sizes, as its layer calls them: the baseline on Hopper, where it imports.

Marlin keeps weights in a layout of its own. A baseline is timed and not compared, so its weights are drawn in that
layout instead of being packed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from specialized_path.kernels.moe_experts.cases import ExpertsStep
from specialized_path.kernels.moe_experts.shape import ExpertShape
from specialized_path.reference.mxfp4 import GROUP_SIZE

_ROWS_A_TILE = 16
"""Marlin's tiles of K, whose codes make up the last dimension."""


def marlin(shape: ExpertShape, steps: Sequence[ExpertsStep]) -> list[Callable[[], object]]:
    """For each step, its launches: grouping, gate-up, activation, down with router weights, sum.

    Raises:
        ImportError: vLLM is not there.
    """
    experts: Any = importlib.import_module("vllm.model_executor.layers.fused_moe.experts.marlin_moe")
    activation: Any = importlib.import_module("vllm.model_executor.layers.fused_moe.activation")
    ops: Any = importlib.import_module("vllm._custom_ops")
    scalar_types: Any = importlib.import_module("vllm.scalar_type").scalar_types
    gate_up, gate_up_scale = _draw(shape.num_experts, 2 * shape.intermediate, shape.latent)
    down, down_scale = _draw(shape.num_experts, shape.latent, shape.intermediate)
    config = activation.ApplyMoEActivationConfig(activation_situ_beta=4.0, activation_situ_linear_beta=25.0)

    def add(outputs: Tensor, out: Tensor, *_: object) -> Tensor:
        ops.moe_sum(outputs, out)
        return out

    return [
        partial(
            experts.fused_marlin_moe,
            hidden_states=step.latent,
            w1=gate_up,
            w2=down,
            bias1=None,
            bias2=None,
            w1_scale=gate_up_scale,
            w2_scale=down_scale,
            topk_weights=step.topk_weights.float(),
            topk_ids=step.topk_ids,
            quant_type_id=scalar_types.float4_e2m1f.id,
            global_num_experts=shape.num_experts,
            activation=activation.MoEActivation.SITU,
            activation_config=config,
            moe_sum=add,
            output=torch.empty_like(step.latent),
        )
        for step in steps
    ]


def _draw(num_experts: int, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """Codes and scales of weights of rows x columns, in Marlin's sizes."""
    gen = torch.Generator("cuda").manual_seed(0)
    words = (num_experts, columns // _ROWS_A_TILE, rows * 2)
    codes = torch.randint(-(2**31), 2**31, words, generator=gen, device="cuda", dtype=torch.int32)
    sizes = (num_experts, columns // GROUP_SIZE, rows)
    scales = torch.randint(116, 122, sizes, generator=gen, device="cuda", dtype=torch.uint8)
    return codes, scales.view(torch.float8_e8m0fnu)
