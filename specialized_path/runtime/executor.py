"""Runs a whole planned step, all layers, from a provider's operators."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor
from vllm.forward_context import get_forward_context

from specialized_path.runtime.plan import StepPlan
from specialized_path.runtime.providers import OperatorProvider
from specialized_path.runtime.state_slots import state_slots_of_step
from specialized_path.runtime.weights import (
    DenseWeights,
    KdaWeights,
    MlaWeights,
    ModelWeights,
    MoeWeights,
    bind_weights,
)

if TYPE_CHECKING:
    from specialized_path.nano.model import KimiK3NanoForCausalLM


class DecodeExecutor:
    """Executes pure decode and uniform verify steps on the served model's own weights and caches.

    It leaves the caches as the plain forward would, so that any step may follow on either path.
    """

    def __init__(self, model: "KimiK3NanoForCausalLM", provider: OperatorProvider) -> None:
        """Serves `model`, whose weights need not be loaded yet."""
        self._model = model
        self._provider = provider
        self._weights: ModelWeights | None = None

    def run(self, plan: StepPlan, token_ids: Tensor | None) -> Tensor:
        """Runs the step and returns its hidden states.

        Args:
            plan: A plan whose path is "specialized".
            token_ids: [rows], request by request; rows beyond `plan.num_tokens` are padding, in whole
                requests.

        Returns:
            [rows, hidden]; padding rows are finite and touch no cache.
        """
        if plan.path != "specialized" or token_ids is None:
            raise ValueError(f"not a specialised step: {plan}")
        self._weights = self._weights or bind_weights(self._model)
        return self._run_layers(plan, token_ids, self._weights, get_forward_context().attn_metadata)

    def _run_layers(
        self, plan: StepPlan, token_ids: Tensor, weights: ModelWeights, metadata: Mapping[str, Any]
    ) -> Tensor:
        provider = self._provider
        prefix = provider.embedding(token_ids, weights.embedding)
        blocks = prefix.new_empty(len(prefix), self._model.config.num_attn_res_blocks, prefix.shape[1])
        delta = None
        for layer in weights.layers:
            x, prefix = provider.attn_res_before_attention(
                prefix, blocks, delta, layer.before_attention, layer.layer_idx
            )
            y = self._attend(plan, x, layer.attention, metadata)
            attn_out = provider.output_projection(y, layer.w_o)
            x, prefix = provider.attn_res_after_attention(
                prefix, blocks, attn_out, layer.after_attention, layer.layer_idx
            )
            delta = self._mlp(x, layer.mlp)
        assert delta is not None
        return provider.attn_res_output(prefix, blocks, delta, weights.output)

    def _attend(
        self, plan: StepPlan, x: Tensor, weights: KdaWeights | MlaWeights, metadata: Mapping[str, Any]
    ) -> Tensor:
        if isinstance(weights, MlaWeights):
            return self._provider.mla_decode(x, weights, plan.num_tokens)
        slots = state_slots_of_step(metadata[weights.layer.prefix], len(x) // plan.query_len)
        if slots.table.shape[1] == 1:
            return self._provider.kda_decode(x, weights, slots)
        return self._provider.kda_verify(x, weights, slots, plan.query_len)

    def _mlp(self, x: Tensor, weights: DenseWeights | MoeWeights) -> Tensor:
        if isinstance(weights, MoeWeights):
            return self._provider.latent_moe(x, weights)
        return self._provider.dense_mlp(x, weights)
