"""The MLP half of a layer in a decode step: dense, latent mixture of experts, or vLLM's own module."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from vllm.distributed import (
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
    tensor_model_parallel_all_reduce,
)

from specialized_path.kernels.moe_experts.launch import held_rows, routed_experts
from specialized_path.kernels.moe_experts.packing import MarlinExperts
from specialized_path.kernels.moe_experts.shape import ExpertShape
from specialized_path.kernels.moe_experts.shared_launch import (
    PackedSharedExperts,
    pack_shared_experts,
    shared_experts,
)
from specialized_path.kernels.moe_experts.shared_variants import find_shared_variant
from specialized_path.kernels.moe_experts.variants import (
    down_variants,
    find_variant,
    gate_up_variants,
)
from specialized_path.kernels.moe_latent.geometry import HIDDEN, LATENT, TOP_K
from specialized_path.kernels.moe_latent.launch import (
    front,
    front_buffer,
    latent_norm,
    pack_front,
    pack_tail,
    project_tail,
    select_experts,
    tail_ahead,
)
from specialized_path.kernels.moe_latent.variants import (
    find_product,
    front_variants,
    norm_variant,
    selection_variant,
    tail_variants,
)
from specialized_path.kernels.variant import KernelVariant
from specialized_path.kimi_k3.experts import bind_experts, list_experts_reasons
from specialized_path.kimi_k3.moe_scope import expert_shape, list_dense_reasons, list_moe_reasons
from specialized_path.kimi_k3.switch import MAX_BATCH

_BATCHES = range(1, MAX_BATCH + 1)


class Mlp(Protocol):
    """Rows [B, 7168] to rows."""

    @property
    def reason(self) -> str | None:
        """Why vLLM's module runs; None where the kernels do."""
        ...

    @property
    def copied_bytes(self) -> int:
        """Weights that it holds a second time."""
        ...

    def run(self, x: Tensor, out: Tensor, /) -> Tensor:
        """Returns the MLP's output, which may be `out`."""
        ...

    def variants(self) -> Iterator[KernelVariant]:
        """The kernels that a step of 1 to 64 rows launches."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StockMlp:
    """vLLM's module, called in place."""

    module: Any
    reason: str | None
    copied_bytes: int = 0

    def run(self, x: Tensor, _out: Tensor, /) -> Tensor:
        """Runs it; the output is vLLM's own tensor."""
        found: Tensor = self.module(x)
        return found

    def variants(self) -> Iterator[KernelVariant]:
        """None of ours."""
        return iter(())


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseMlp:
    """OC-20: two kernels."""

    weights: PackedSharedExperts
    hidden: Tensor
    """[64 * I], workspace."""
    reason: str | None = None

    @property
    def copied_bytes(self) -> int:
        """Gate and up rows taking turns."""
        return self.weights.gate_up.nbytes

    def run(self, x: Tensor, out: Tensor, /) -> Tensor:
        """Runs it into `out`."""
        inner = self.weights.down.shape[1]
        hidden = self.hidden[: len(x) * inner].view(len(x), inner)
        return _summed(shared_experts(x, self.weights, hidden=hidden, out=out))

    def variants(self) -> Iterator[KernelVariant]:
        """By batch."""
        inner = self.weights.down.shape[1]
        for batch in _BATCHES:
            yield find_shared_variant("gate_up", inner, batch).kernel
            yield find_shared_variant("down", inner, batch).kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeSpace:
    """Activations between the kernels of a mixture of experts; all layers use them in turn."""

    front: Tensor
    ids: Tensor
    weights: Tensor
    hidden: Tensor
    combined: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentMoe:
    """OC-14 to OC-19: six kernels."""

    w_front: Tensor
    """Of `pack_front`; vLLM's latent and router weights are views of it."""
    bias: Tensor
    experts: MarlinExperts
    """vLLM's own."""
    w_norm: Tensor
    """Zeros on all ranks but the first: only one adds the up-projection, which every rank has whole."""
    w_tail: Tensor
    """Of `pack_tail`; vLLM's up-projection and shared down-projection are views of it."""
    space: MoeSpace
    reason: str | None = None

    @property
    def copied_bytes(self) -> int:
        """The shared experts' gate and up rows taking turns."""
        return 4 * HIDDEN * (self.w_tail.shape[1] - LATENT)

    def run(self, x: Tensor, out: Tensor, /) -> Tensor:
        """Runs it into `out`."""
        space, batch = self.space, len(x)
        found = front(x, self.w_front, buffer=space.front)
        ids, weights = space.ids[:batch], space.weights[:batch]
        select_experts(
            found.logits, self.bias, ids=ids, weights=weights, ahead=tail_ahead(self.w_tail, batch)
        )
        combined = routed_experts(
            found.latent, ids, weights, self.experts, hidden=space.hidden[:batch], out=space.combined[:batch]
        )
        # A collective's dependants may not start early.
        latent_norm(_summed(combined), self.w_norm, out=found.normed, use_pdl=_num_ranks() == 1)
        return _summed(project_tail(found.tail, self.w_tail, out=out))

    def variants(self) -> Iterator[KernelVariant]:
        """By batch."""
        yield selection_variant()
        yield norm_variant()
        for batch in _BATCHES:
            yield find_product(front_variants(), tuple(self.w_front.shape), batch).kernel
            yield find_product(tail_variants(), tuple(self.w_tail.shape), batch).kernel
            for kind in (gate_up_variants(), down_variants()):
                yield find_variant(kind, held_rows(self.experts), batch).kernel


def bind_mlps(model: Any) -> tuple[Mlp, ...]:
    """The MLPs of vLLM's loaded `KimiLinearModel`, layer by layer; repacks what the front's product takes at once."""
    spaces: dict[int, MoeSpace] = {}
    return tuple(_bind(layer, model.config, spaces) for layer in model.layers)


def _bind(layer: Any, config: Any, spaces: dict[int, MoeSpace]) -> Mlp:
    mlp = layer.mlp
    if not layer.is_moe_layer:
        if reasons := list_dense_reasons(mlp, config):
            return StockMlp(module=mlp, reason="; ".join(reasons))
        inner = mlp.down_proj.weight.shape[1]
        weights = pack_shared_experts(mlp.gate_up_proj.weight, mlp.down_proj.weight)
        return DenseMlp(weights=weights, hidden=weights.down.new_empty(MAX_BATCH * inner))
    reasons, routed = list_moe_reasons(mlp, config), getattr(mlp.experts, "routed_experts", None)
    shape = None if reasons else expert_shape(routed)
    if shape is not None:
        reasons = list_experts_reasons(routed, shape)
    if reasons or shape is None:
        return StockMlp(module=mlp, reason="; ".join(reasons))
    return _bind_moe(mlp, shape, spaces)


def _bind_moe(moe: Any, shape: ExpertShape, spaces: dict[int, MoeSpace]) -> LatentMoe:
    latent, router = moe.routed_expert_down_proj.weight, moe.gate.weight
    w_front = pack_front(latent.data, router.data, moe.shared_experts.gate_up_proj.weight.data)
    latent.data, router.data = w_front[: len(latent)], w_front[len(latent) : len(latent) + len(router)]
    up, shared_down = moe.routed_expert_up_proj.weight, moe.shared_experts.down_proj.weight
    w_tail = pack_tail(up.data, shared_down.data)
    up.data, shared_down.data = w_tail[:, :LATENT], w_tail[:, LATENT:]
    w_norm = moe.routed_expert_norm.weight.data
    if shape.intermediate not in spaces:
        spaces[shape.intermediate] = _space(w_front, len(latent), shape.intermediate)
    return LatentMoe(
        w_front=w_front,
        bias=moe.gate.e_score_correction_bias.data,
        experts=bind_experts(moe.experts.routed_experts),
        w_norm=w_norm if get_tensor_model_parallel_rank() == 0 else torch.zeros_like(w_norm),
        w_tail=w_tail,
        space=spaces[shape.intermediate],
    )


def _space(w_front: Tensor, latent: int, intermediate: int) -> MoeSpace:
    rows = {"dtype": torch.bfloat16, "device": w_front.device}
    return MoeSpace(
        front=front_buffer(w_front),
        ids=torch.empty(MAX_BATCH, TOP_K, dtype=torch.int32, device=w_front.device),
        weights=torch.empty(MAX_BATCH, TOP_K, **rows),
        hidden=torch.empty(MAX_BATCH, TOP_K, intermediate, **rows),
        combined=torch.empty(MAX_BATCH, latent, **rows),
    )


def _num_ranks() -> int:
    return get_tensor_model_parallel_world_size()


def _summed(share: Tensor) -> Tensor:
    return share if _num_ranks() == 1 else tensor_model_parallel_all_reduce(share)
