"""Which mixtures of experts the kernels serve: every reason against a layer, from its module and its configuration."""

from __future__ import annotations

from typing import Any

import torch

from specialized_path.kernels.moe_experts.shape import SHAPES, ExpertShape
from specialized_path.kernels.moe_experts.shared_variants import DENSE
from specialized_path.kernels.moe_latent.geometry import FRONTS, LATENT, NUM_EXPERTS, TOP_K
from specialized_path.runtime.differences import list_differences

_ACTIVATION: dict[str, tuple[object, ...]] = {
    "hidden_act": ("situ",),
    "activation_situ_beta": (4.0,),
    "activation_situ_linear_beta": (25.0,),
}
_MOE: dict[str, tuple[object, ...]] = {
    **_ACTIVATION,
    "num_experts": (NUM_EXPERTS,),
    "num_experts_per_token": (TOP_K,),
    "routed_expert_hidden_size": (LATENT,),
    "latent_moe_use_norm": (True,),
    "moe_router_activation_func": ("sigmoid",),
    "moe_renormalize": (True,),
    "routed_scaling_factor": (1.0,),
    "use_grouped_topk": (True,),
    "num_expert_group": (1,),
    "topk_group": (1,),
}
_MODULE: dict[str, tuple[object, ...]] = {"use_mega_moe": (False,), "use_sequence_parallel": (False,)}


def is_plain(linear: Any) -> bool:
    """Whether a linear layer's weight is BF16 as it is, without a bias."""
    weight = getattr(linear, "weight", None)
    return weight is not None and weight.dtype is torch.bfloat16 and getattr(linear, "bias", None) is None


def list_dense_reasons(mlp: Any, config: Any) -> tuple[str, ...]:
    """Returns every reason why a dense `KimiMLP` stays vLLM's; () means served."""
    reasons = list_differences(config, _ACTIVATION)
    if not (is_plain(mlp.gate_up_proj) and is_plain(mlp.down_proj)):
        return (*reasons, "dense weights: expected bfloat16")
    inner = mlp.down_proj.weight.shape[1]
    if inner not in DENSE.values():
        expected = " or ".join(map(str, DENSE.values()))
        reasons += (f"dense intermediate size: got {inner}, expected {expected}",)
    return reasons


def expert_shape(routed: Any) -> ExpertShape | None:
    """The shape of vLLM's `RoutedExperts`, None where no kernel has it."""
    sizes = _sizes(routed)
    return next((shape for shape in SHAPES if (shape.intermediate, shape.held) == sizes), None)


def _sizes(routed: Any) -> tuple[int, int]:
    """Rows of gate without and with vLLM's padding."""
    held = routed.moe_config.intermediate_size_per_partition
    return getattr(routed.moe_config, "intermediate_size_per_partition_unpadded", None) or held, held


def list_moe_reasons(moe: Any, config: Any) -> tuple[str, ...]:
    """Returns every reason why a `KimiMoE` stays vLLM's, each as "setting: got X, expected Y"; () means served.

    Weights need not be loaded.
    """
    reasons = [*list_differences(config, _MOE), *list_differences(moe, _MODULE)]
    if reasons or moe.shared_experts is None:
        return (*reasons, *(("shared_experts: got None",) if moe.shared_experts is None else ()))
    routed = moe.experts.routed_experts
    if expert_shape(routed) is None:
        expected = " or ".join(f"{shape.intermediate} in {shape.held}" for shape in SHAPES)
        size, held = _sizes(routed)
        reasons.append(f"experts' intermediate size: got {size} in {held}, expected {expected}")
    plain = {
        "gate": moe.gate,
        "routed_expert_down_proj": moe.routed_expert_down_proj,
        "routed_expert_up_proj": moe.routed_expert_up_proj,
        "shared gate_up_proj": moe.shared_experts.gate_up_proj,
        "shared down_proj": moe.shared_experts.down_proj,
    }
    for name, linear in plain.items():
        if not is_plain(linear):
            reasons.append(f"{name}: got quantised weights, expected bfloat16")
    shared = moe.shared_experts.down_proj.weight.shape[1] if is_plain(moe.shared_experts.down_proj) else None
    if shared not in {front.shared for front in FRONTS}:
        expected = " or ".join(str(front.shared) for front in FRONTS)
        reasons.append(f"shared intermediate size: got {shared}, expected {expected}")
    return tuple(reasons)
