"""A layer's routed experts where vLLM keeps them, in Marlin's order: vLLM's kernels and ours read the same bytes."""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.layers.fused_moe.experts.marlin_moe import MarlinExperts as MarlinProducts
from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors_moe.compressed_tensors_moe_w4a4_mxfp4 import (  # noqa: E501
    CompressedTensorsW4A4Mxfp4MoEMethod,
)

from specialized_path.kernels.moe_experts.packing import LARGEST_SCALE, MarlinExperts, largest_scale
from specialized_path.kernels.moe_experts.shape import ExpertShape


def list_experts_reasons(routed: Any, shape: ExpertShape) -> tuple[str, ...]:
    """Returns every reason why a layer's loaded `RoutedExperts` stay vLLM's; () means that the kernels read them."""
    method = routed.quant_method
    if type(method) is not CompressedTensorsW4A4Mxfp4MoEMethod or method.experts_cls is not MarlinProducts:
        return (f"experts: got {type(method).__name__}, expected MXFP4 on Marlin",)
    experts = bind_experts(routed)
    got = tuple(experts.w13.shape)
    expected = (shape.num_experts, shape.latent // 16, 4 * shape.held)
    if got != expected:
        return (f"experts' words: got {got}, expected {expected}",)
    if (code := largest_scale(experts, shape)) > LARGEST_SCALE:
        return (f"experts' scale codes: got {code}, expected 0 ... {LARGEST_SCALE}",)
    return ()


def bind_experts(routed: Any) -> MarlinExperts:
    """The weights of a loaded layer whose experts are on Marlin; no copy."""
    return MarlinExperts(
        w13=routed.w13_weight.data,
        w2=routed.w2_weight.data,
        w13_scale=routed.w13_weight_scale.data.view(torch.uint8),
        w2_scale=routed.w2_weight_scale.data.view(torch.uint8),
    )
