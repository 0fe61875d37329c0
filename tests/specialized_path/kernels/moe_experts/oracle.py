"""The routed experts' oracle in float64, one kernel at a time, with the size of the terms that each output adds up."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specialized_path.kernels.moe_experts.cases import CheckpointExperts, ExpertsStep
from specialized_path.reference import dequantize_mxfp4, situ

BETA, LINEAR_BETA = 4.0, 25.0


@dataclass(frozen=True, slots=True)
class Expected:
    """What a kernel should give, not rounded, and the magnitudes of the terms behind it."""

    value: Tensor
    terms: Tensor


def expected_hidden(step: ExpertsStep, experts: CheckpointExperts) -> Expected:
    """[B, top_k, I]: activated gate and up; an error of a product counts as far as the activation passes it on."""
    pairs = _products(step.latent, step.topk_ids, lambda e: (experts.w1[e], experts.w3[e]))
    gate, gate_terms, up, up_terms = pairs
    value = situ(gate, up, acc_dtype=torch.float64)
    linear = LINEAR_BETA * torch.tanh(up / LINEAR_BETA)
    gated = BETA * torch.tanh(gate / BETA) * torch.sigmoid(gate)
    # The gate branch is nowhere steeper than 1.1.
    terms = 1.1 * linear.abs() * gate_terms + gated.abs() * up_terms
    return Expected(value, terms.nan_to_num(posinf=0.0))


def expected_outputs(hidden: Tensor, step: ExpertsStep, experts: CheckpointExperts) -> Expected:
    """[B, top_k, L]: the down-projection of a kernel's own hidden values."""
    value, terms = _products(hidden, step.topk_ids, lambda e: (experts.w2[e],))
    return Expected(value, terms)


def _products(x: Tensor, topk_ids: Tensor, weights_of) -> list[Tensor]:
    """For each weight of an expert, products of the rows that chose it, then those of the magnitudes.

    `x` is [B, K], one row for all slots of a token, or [B, top_k, K].
    """
    rows = x.double().unsqueeze(1).expand(-1, topk_ids.shape[1], -1) if x.ndim == 2 else x.double()
    found: list[Tensor] = []
    for expert in topk_ids.unique().tolist():
        here = topk_ids == expert
        mine = rows[here]
        for i, weight in enumerate(weights_of(expert)):
            wide = dequantize_mxfp4(weight, dtype=torch.float64)
            results = (mine @ wide.T, mine.abs().nan_to_num(posinf=0.0) @ wide.abs().T)
            for j, result in enumerate(results):
                if len(found) <= 2 * i + j:
                    found.append(result.new_zeros(*topk_ids.shape, result.shape[-1]))
                found[2 * i + j][here] = result
    return found
