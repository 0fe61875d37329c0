"""A layer's routed experts packed for decode steps, and given back in Marlin's order to the steps of vLLM's forward.

vLLM's Marlin weights of a layer are a permutation of the checkpoint's bytes, and so are the packed ones. Only the
packed ones stay; a step of vLLM's forward (prefill, mixed, more than 64 requests) restores Marlin's order layer by
layer into one room that all layers share, at the cost of reading and writing a layer's experts once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from vllm.logger import init_logger
from vllm.model_executor.layers.fused_moe.experts.marlin_moe import MarlinExperts as MarlinProducts
from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors_moe.compressed_tensors_moe_w4a4_mxfp4 import (  # noqa: E501
    CompressedTensorsW4A4Mxfp4MoEMethod,
)

from specialized_path.kernels.moe_experts.packing import PackedExperts, pack_experts
from specialized_path.kernels.moe_experts.restore import MarlinExperts, restore_experts
from specialized_path.kernels.moe_experts.shape import ExpertShape
from specialized_path.kimi_k3.moe_scope import expert_shape, list_moe_reasons
from specialized_path.reference.mxfp4 import Mxfp4Weight

logger = init_logger(f"vllm.{__name__}")


class MarlinRoom:
    """One layer's experts in Marlin's order: whose, changes from layer to layer."""

    def __init__(self) -> None:
        """Holds nothing before the first layer is packed."""
        self.held: MarlinExperts | None = None

    def adopt(self, layer: Any, packed: PackedExperts, shape: ExpertShape) -> bool:
        """Puts the room in the place of a layer's own Marlin weights, whose bytes it must restore.

        Returns:
            False, and leaves the layer as it is, where what it restores differs from what vLLM made.
        """
        own = MarlinExperts(
            w13=layer.w13_weight.data,
            w2=layer.w2_weight.data,
            w13_scale=layer.w13_weight_scale.data.view(torch.uint8),
            w2_scale=layer.w2_weight_scale.data.view(torch.uint8),
        )
        room = self.held or MarlinExperts(
            w13=torch.empty_like(own.w13),
            w2=torch.empty_like(own.w2),
            w13_scale=torch.empty_like(own.w13_scale),
            w2_scale=torch.empty_like(own.w2_scale),
        )
        restore_experts(packed, shape, room)
        if not all(map(torch.equal, _tensors(room), _tensors(own))):
            return False
        self.held = room
        names = ("w13_weight", "w2_weight", "w13_weight_scale", "w2_weight_scale")
        for name, tensor in zip(names, _tensors(room), strict=True):
            parameter = getattr(layer, name)
            parameter.data = tensor.view(parameter.dtype)
        return True


def _tensors(experts: MarlinExperts) -> tuple[Tensor, ...]:
    return experts.w13, experts.w2, experts.w13_scale, experts.w2_scale


class PackedExpertsMethod(CompressedTensorsW4A4Mxfp4MoEMethod):
    """vLLM's method for MXFP4 experts on Marlin, whose weights are restored before each of its steps."""

    supports_pre_processed_weights = False

    def __init__(self, moe: Any, shape: ExpertShape, room: MarlinRoom) -> None:
        """Takes the place of the method that has created the layer's parameters."""
        super().__init__(moe)
        self.packed: PackedExperts | None = None
        """None before loading, and where vLLM's bytes could not be restored: the layer is then vLLM's."""
        self._shape, self._room = shape, room

    def process_weights_after_loading(self, layer: Any) -> None:
        """Packs the checkpoint's bytes, lets vLLM make Marlin's of them, and keeps the former."""
        w13, w2 = _weight(layer, "w13"), _weight(layer, "w2")
        half = w13.packed.shape[1] // 2
        try:
            packed = pack_experts(w13[:, :half], w13[:, half:], w2, self._shape)
        except ValueError as error:  # A scale that the kernels cannot hold.
            packed, reason = None, str(error)
        super().process_weights_after_loading(layer)
        if packed is not None:
            is_restored, reason = self._room.adopt(layer, packed, self._shape), "its bytes are not restored"
            self.packed = packed if is_restored else None
        if self.packed is None:
            logger.warning("Kimi K3 experts of %s stay vLLM's: %s", layer.layer_name, reason)

    def apply(self, layer: Any, *args: Any, **kwargs: Any) -> Any:
        """Runs vLLM's kernels on the layer's experts, as they were loaded."""
        if self.packed is not None and self._room.held is not None:
            restore_experts(self.packed, self._shape, self._room.held)
        return super().apply(layer, *args, **kwargs)


def _weight(layer: Any, name: str) -> Mxfp4Weight:
    return Mxfp4Weight(
        packed=getattr(layer, f"{name}_weight_packed").data, scale=getattr(layer, f"{name}_weight_scale").data
    )


def pack_experts_at_load(model: Any) -> None:
    """Replaces the method of every layer whose experts the kernels serve; call it before the weights are loaded."""
    room = MarlinRoom()
    for layer in model.layers:
        if not layer.is_moe_layer or list_moe_reasons(layer.mlp, model.config):
            continue
        routed = layer.mlp.experts.routed_experts
        method = routed.quant_method
        shape = expert_shape(routed)
        if (
            type(method) is CompressedTensorsW4A4Mxfp4MoEMethod
            and method.experts_cls is MarlinProducts
            and shape
        ):
            routed._replace_quant_method(PackedExpertsMethod(routed.moe_config, shape, room))
        else:
            logger.info("Kimi K3 experts of %s stay vLLM's: %s", routed.layer_name, type(method).__name__)


def packed_experts(routed: Any) -> PackedExperts | None:
    """A loaded layer's packed experts, None where vLLM serves them."""
    method = routed.quant_method
    return method.packed if isinstance(method, PackedExpertsMethod) else None
