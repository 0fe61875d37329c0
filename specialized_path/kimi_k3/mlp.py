"""The MLP half of a layer in a decode step: dense, latent mixture of experts, or vLLM's own module."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from vllm.distributed import get_tensor_model_parallel_world_size, tensor_model_parallel_all_reduce

from specialized_path.kernels.moe_experts.launch import routed_experts
from specialized_path.kernels.moe_experts.packing import PackedExperts
from specialized_path.kernels.moe_experts.shape import GATED_ROWS
from specialized_path.kernels.moe_experts.shared_launch import (
    PackedSharedExperts,
    pack_shared_experts,
    shared_down,
    shared_experts,
)
from specialized_path.kernels.moe_experts.shared_variants import find_shared_variant
from specialized_path.kernels.moe_experts.variants import (
    down_variants,
    find_variant,
    gate_up_variants,
    restore_variant,
)
from specialized_path.kernels.moe_latent.geometry import TOP_K
from specialized_path.kernels.moe_latent.launch import (
    front,
    front_buffer,
    latent_norm,
    latent_up,
    pack_front,
    select_experts,
)
from specialized_path.kernels.moe_latent.variants import (
    find_product,
    front_variants,
    norm_variant,
    selection_variant,
    up_variants,
)
from specialized_path.kernels.variant import KernelVariant
from specialized_path.kimi_k3.experts import packed_experts
from specialized_path.kimi_k3.moe_scope import list_dense_reasons, list_moe_reasons
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
    normed: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentMoe:
    """OC-14 to OC-19: seven kernels."""

    w_front: Tensor
    """Of `pack_front`; vLLM's latent and router weights are views of it."""
    bias: Tensor
    experts: PackedExperts
    w_shared_down: Tensor
    w_norm: Tensor
    w_up: Tensor
    space: MoeSpace
    reason: str | None = None

    @property
    def copied_bytes(self) -> int:
        """The shared experts' gate and up rows taking turns."""
        return 2 * self.w_shared_down.nbytes

    def run(self, x: Tensor, out: Tensor, /) -> Tensor:
        """Runs it into `out`."""
        space, batch = self.space, len(x)
        found = front(x, self.w_front, buffer=space.front)
        ids, weights = space.ids[:batch], space.weights[:batch]
        select_experts(found.logits, self.bias, ids=ids, weights=weights)
        combined = routed_experts(
            found.latent, ids, weights, self.experts, hidden=space.hidden[:batch], out=space.combined[:batch]
        )
        shared = shared_down(found.shared_hidden, self.w_shared_down, out=out)
        if _num_ranks() > 1:
            combined, shared = _summed(combined), _summed(shared)
        # A collective's dependants may not start early.
        normed = latent_norm(combined, self.w_norm, out=space.normed[:batch], use_pdl=_num_ranks() == 1)
        return latent_up(normed, self.w_up, shared)

    def variants(self) -> Iterator[KernelVariant]:
        """By batch."""
        intermediate = self.experts.gate_up.shape[1] * GATED_ROWS
        yield selection_variant()
        yield norm_variant()
        for batch in _BATCHES:
            yield find_product(front_variants(), len(self.w_front), batch).kernel
            yield find_product(up_variants(), len(self.w_up), batch).kernel
            yield find_shared_variant("down", self.w_shared_down.shape[1], batch).kernel
            for kind in (gate_up_variants(), down_variants()):
                yield find_variant(kind, intermediate, batch).kernel
        shape = find_variant(gate_up_variants(), intermediate, 1).shape
        yield from (restore_variant(shape, is_gated) for is_gated in (True, False))


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
    reasons = list_moe_reasons(mlp, config)
    packed = None if reasons else packed_experts(mlp.experts.routed_experts)
    if packed is None:
        return StockMlp(module=mlp, reason="; ".join(reasons) or "experts are not packed")
    return _bind_moe(mlp, packed, spaces)


def _bind_moe(moe: Any, packed: PackedExperts, spaces: dict[int, MoeSpace]) -> LatentMoe:
    latent, router = moe.routed_expert_down_proj.weight, moe.gate.weight
    w_front = pack_front(latent.data, router.data, moe.shared_experts.gate_up_proj.weight.data)
    latent.data, router.data = w_front[: len(latent)], w_front[len(latent) : len(latent) + len(router)]
    intermediate = packed.gate_up.shape[1] * GATED_ROWS
    if intermediate not in spaces:
        spaces[intermediate] = _space(w_front, len(latent), intermediate)
    return LatentMoe(
        w_front=w_front,
        bias=moe.gate.e_score_correction_bias.data,
        experts=packed,
        w_shared_down=moe.shared_experts.down_proj.weight,
        w_norm=moe.routed_expert_norm.weight,
        w_up=moe.routed_expert_up_proj.weight,
        space=spaces[intermediate],
    )


def _space(w_front: Tensor, latent: int, intermediate: int) -> MoeSpace:
    rows = {"dtype": torch.bfloat16, "device": w_front.device}
    return MoeSpace(
        front=front_buffer(w_front),
        ids=torch.empty(MAX_BATCH, TOP_K, dtype=torch.int32, device=w_front.device),
        weights=torch.empty(MAX_BATCH, TOP_K, **rows),
        hidden=torch.empty(MAX_BATCH, TOP_K, intermediate, **rows),
        combined=torch.empty(MAX_BATCH, latent, **rows),
        normed=torch.empty(MAX_BATCH, latent, **rows),
    )


def _num_ranks() -> int:
    return get_tensor_model_parallel_world_size()


def _summed(share: Tensor) -> Tensor:
    return share if _num_ranks() == 1 else tensor_model_parallel_all_reduce(share)
