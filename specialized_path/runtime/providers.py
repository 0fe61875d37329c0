"""The operators that the executor runs on, and the one place that chooses them by platform."""

from typing import Protocol

from torch import Tensor

from specialized_path.nano.config import KimiK3NanoConfig
from specialized_path.runtime.state_slots import StateSlots
from specialized_path.runtime.weights import (
    DenseWeights,
    KdaWeights,
    MixtureWeights,
    MlaWeights,
    MoeWeights,
)


class OperatorProvider(Protocol):
    """One method per operator (or inseparable group of operators) of a decode step.

    Rows are B * q tokens, request by request. Activations keep the model's dtype between operators.
    """

    def embedding(self, token_ids: Tensor, weight: Tensor) -> Tensor:
        """OC-1. Returns the embeddings [rows, hidden]; ids outside the vocabulary give zero."""
        ...

    def attn_res_before_attention(
        self, prefix: Tensor, blocks: Tensor, delta: Tensor | None, weights: MixtureWeights, layer_idx: int
    ) -> tuple[Tensor, Tensor]:
        """OC-2. Returns attention input and prefix; writes the finished block on block-write layers."""
        ...

    def kda_decode(self, x: Tensor, weights: KdaWeights, slots: StateSlots) -> Tensor:
        """OC-3 to OC-6. One token per request, its state advanced in place; returns [rows, H * V]."""
        ...

    def kda_verify(self, x: Tensor, weights: KdaWeights, slots: StateSlots, query_len: int) -> Tensor:
        """OC-3 and OC-7. `query_len` tokens per request, one state each; returns [rows, H * V]."""
        ...

    def mla_decode(self, x: Tensor, weights: MlaWeights, num_tokens: int) -> Tensor:
        """OC-8 to OC-10, cache insert included; rows from `num_tokens` on are padding and give zero."""
        ...

    def output_projection(self, y: Tensor, weight: Tensor) -> Tensor:
        """OC-12. Returns the attention output [rows, hidden]."""
        ...

    def attn_res_after_attention(
        self, prefix: Tensor, blocks: Tensor, attn_out: Tensor, weights: MixtureWeights, layer_idx: int
    ) -> tuple[Tensor, Tensor]:
        """OC-13. Returns MLP input and prefix."""
        ...

    def latent_moe(self, x: Tensor, weights: MoeWeights) -> Tensor:
        """OC-14 to OC-19. Returns the delta [rows, hidden]."""
        ...

    def dense_mlp(self, x: Tensor, weights: DenseWeights) -> Tensor:
        """OC-20. Returns the delta [rows, hidden]."""
        ...

    def attn_res_output(
        self, prefix: Tensor, blocks: Tensor, delta: Tensor, weights: MixtureWeights
    ) -> Tensor:
        """OC-21 without the output head. Returns the final hidden states [rows, hidden]."""
        ...


def has_provider(platform: str) -> bool:
    """Whether the path has operators for vLLM's platform of this device type."""
    return platform == "cpu"


def choose_provider(platform: str, config: KimiK3NanoConfig) -> OperatorProvider:
    """Returns the operators for the platform.

    Raises:
        LookupError: There are none; `has_provider` tells beforehand.
    """
    if not has_provider(platform):
        raise LookupError(f"no operators for platform {platform!r}")
    from specialized_path.runtime.reference_provider import ReferenceProvider

    return ReferenceProvider(config)
