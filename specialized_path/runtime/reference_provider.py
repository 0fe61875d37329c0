"""The reference operators behind the executor's seam: the provider of the CPU."""

from typing import TypedDict

from torch import Tensor

from specialized_path import reference
from specialized_path.nano.config import KimiK3NanoConfig
from specialized_path.runtime.state_slots import StateSlots
from specialized_path.runtime.weights import (
    DenseWeights,
    KdaWeights,
    MixtureWeights,
    MlaWeights,
    MoeWeights,
)


class SituBounds(TypedDict):
    """SiTU's constants, as the reference operators take them."""

    beta: float
    linear_beta: float


class ReferenceProvider:
    """Implements `OperatorProvider` with `specialized_path.reference` and, for OC-9, the engine's attention.

    The engine's attention writes and reads the CPU's packed KV cache, whose layout is its own.
    """

    def __init__(self, config: KimiK3NanoConfig) -> None:
        """Keeps the model's constants."""
        self._config = config
        self._eps = config.rms_norm_eps
        self._bounds: SituBounds = {"beta": config.situ_beta, "linear_beta": config.situ_linear_beta}

    def embedding(self, token_ids: Tensor, weight: Tensor) -> Tensor:
        """OC-1."""
        return reference.embedding(token_ids, weight)

    def attn_res_before_attention(
        self, prefix: Tensor, blocks: Tensor, delta: Tensor | None, weights: MixtureWeights, layer_idx: int
    ) -> tuple[Tensor, Tensor]:
        """OC-2."""
        return reference.attn_res_before_attention(
            prefix,
            blocks,
            delta,
            weights.res_norm,
            weights.res_proj,
            weights.out_norm,
            layer_idx=layer_idx,
            block_size=self._config.attn_res_block_size,
            eps=self._eps,
        )

    def kda_decode(self, x: Tensor, weights: KdaWeights, slots: StateSlots) -> Tensor:
        """OC-3 to OC-6."""
        config, slot = self._config, slots.table[:, 0]
        projected = self._kda_projection(x, weights)
        mixed = reference.short_conv(projected.qkv, weights.conv, weights.layer.conv_windows(), slot)
        q, k, v = mixed.unflatten(-1, (3, config.num_attention_heads, config.kda_head_dim)).unbind(1)
        g, beta = reference.kda_gates(
            projected.f_a,
            projected.b,
            weights.w_f_b,
            weights.A_log,
            weights.dt_bias,
            lower_bound=config.kda_gate_lower_bound,
        )
        return reference.kda_step(
            q,
            k,
            v,
            g,
            beta,
            projected.gate,
            weights.o_norm,
            weights.layer.recurrent_states(),
            slot,
            l2_eps=config.qk_l2_norm_eps,
            norm_eps=self._eps,
        )

    def kda_verify(self, x: Tensor, weights: KdaWeights, slots: StateSlots, query_len: int) -> Tensor:
        """OC-3 and OC-7."""
        projected = self._kda_projection(x.unflatten(0, (-1, query_len)), weights)
        return reference.kda_verify(
            projected.qkv,
            projected.gate,
            projected.f_a,
            projected.b,
            weights.conv,
            weights.w_f_b,
            weights.A_log,
            weights.dt_bias,
            weights.o_norm,
            weights.layer.conv_windows(),
            weights.layer.recurrent_states(),
            slots.table,
            slots.num_accepted_tokens,
            lower_bound=self._config.kda_gate_lower_bound,
            l2_eps=self._config.qk_l2_norm_eps,
            norm_eps=self._eps,
        ).flatten(0, 1)

    def _kda_projection(self, x: Tensor, weights: KdaWeights) -> reference.KdaProjection:
        """OC-3."""
        return reference.kda_input_projection(
            x, weights.w_in, num_heads=self._config.num_attention_heads, head_dim=self._config.kda_head_dim
        )

    def mla_decode(self, x: Tensor, weights: MlaWeights, num_tokens: int) -> Tensor:
        """OC-8 to OC-10."""
        rows = reference.mla_query(
            x, weights.w_in, weights.q_a_norm, weights.kv_a_norm, weights.w_q_b, weights.w_uk, eps=self._eps
        )
        attended = weights.layer.attn(rows.query.flatten(1), rows.cache_row, rows.cache_row)
        latent = attended.view_as(rows.query)[..., : self._config.kv_lora_rank]
        y = reference.mla_value_gate(latent, weights.w_uv, rows.gate)
        y[num_tokens:] = 0.0
        return y

    def output_projection(self, y: Tensor, weight: Tensor) -> Tensor:
        """OC-12 on one rank."""
        return reference.output_projection_partial(y, weight)

    def attn_res_after_attention(
        self, prefix: Tensor, blocks: Tensor, attn_out: Tensor, weights: MixtureWeights, layer_idx: int
    ) -> tuple[Tensor, Tensor]:
        """OC-13."""
        return reference.attn_res_after_attention(
            prefix,
            blocks,
            attn_out,
            weights.res_norm,
            weights.res_proj,
            weights.out_norm,
            layer_idx=layer_idx,
            block_size=self._config.attn_res_block_size,
            eps=self._eps,
        )

    def latent_moe(self, x: Tensor, weights: MoeWeights) -> Tensor:
        """OC-14 to OC-19 on one rank."""
        config, bounds = self._config, self._bounds
        ids, shares = reference.router(
            x, weights.w_gate, weights.correction_bias, top_k=config.num_experts_per_token
        )
        latent = reference.latent_down(x, weights.w_latent_down)
        expert_rows = reference.routed_experts(latent, ids, weights.w1, weights.w3, weights.w2, **bounds)
        combined = reference.combine_experts(expert_rows, shares)
        normed = reference.latent_norm(combined.unsqueeze(0), weights.expert_norm, eps=self._eps)
        shared = reference.shared_experts_partial(
            x, weights.shared.w_gate_up, weights.shared.w_down, **bounds
        )
        return reference.latent_up_output(normed, weights.w_latent_up, shared.unsqueeze(0))

    def dense_mlp(self, x: Tensor, weights: DenseWeights) -> Tensor:
        """OC-20 on one rank."""
        return reference.dense_mlp_partial(x, weights.w_gate_up, weights.w_down, **self._bounds)

    def attn_res_output(
        self, prefix: Tensor, blocks: Tensor, delta: Tensor, weights: MixtureWeights
    ) -> Tensor:
        """OC-21 without the output head."""
        hidden, _ = reference.attn_res_output(
            prefix, blocks, delta, weights.res_norm, weights.res_proj, weights.out_norm, eps=self._eps
        )
        return hidden
