"""The Hugging Face configuration of the miniature Kimi K3."""

from typing import Any

from transformers import PretrainedConfig


class KimiK3NanoConfig(PretrainedConfig):
    """Sizes of a Kimi K3 that a laptop serves; every default is a complete, valid model.

    The names follow the published Kimi K3 configuration where it has one. `num_key_value_heads` and
    `head_dim` describe the cache row of the absorbed MLA (one shared row of latent and position part per
    token), since vLLM sizes the KV cache from them.
    """

    model_type = "kimi_k3_nano"

    def __init__(
        self,
        vocab_size: int = 320,
        hidden_size: int = 128,
        num_hidden_layers: int = 5,
        full_attention_layers: tuple[int, ...] | list[int] = (3,),
        attn_res_block_size: int = 2,
        num_attention_heads: int = 4,
        kda_head_dim: int = 32,
        short_conv_kernel_size: int = 4,
        kda_gate_lower_bound: float = -5.0,
        q_lora_rank: int = 64,
        kv_lora_rank: int = 48,
        qk_nope_head_dim: int = 32,
        qk_rope_head_dim: int = 16,
        v_head_dim: int = 32,
        intermediate_size: int = 256,
        num_experts: int = 16,
        num_experts_per_token: int = 4,
        moe_latent_size: int = 64,
        moe_intermediate_size: int = 32,
        num_shared_experts: int = 2,
        situ_beta: float = 4.0,
        situ_linear_beta: float = 25.0,
        rms_norm_eps: float = 1e-5,
        qk_l2_norm_eps: float = 1e-6,
        max_position_embeddings: int = 4096,
        **kwargs: Any,
    ) -> None:
        """Keeps the sizes and derives the layer kinds."""
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.full_attention_layers = list(full_attention_layers)
        self.attn_res_block_size = attn_res_block_size
        self.num_attention_heads = num_attention_heads
        self.kda_head_dim = kda_head_dim
        self.short_conv_kernel_size = short_conv_kernel_size
        self.kda_gate_lower_bound = kda_gate_lower_bound
        self.q_lora_rank = q_lora_rank
        self.kv_lora_rank = kv_lora_rank
        self.qk_nope_head_dim = qk_nope_head_dim
        self.qk_rope_head_dim = qk_rope_head_dim
        self.v_head_dim = v_head_dim
        self.intermediate_size = intermediate_size
        self.num_experts = num_experts
        self.num_experts_per_token = num_experts_per_token
        self.moe_latent_size = moe_latent_size
        self.moe_intermediate_size = moe_intermediate_size
        self.num_shared_experts = num_shared_experts
        self.situ_beta = situ_beta
        self.situ_linear_beta = situ_linear_beta
        self.rms_norm_eps = rms_norm_eps
        self.qk_l2_norm_eps = qk_l2_norm_eps
        self.max_position_embeddings = max_position_embeddings
        self.num_key_value_heads = 1
        self.head_dim = kv_lora_rank + qk_rope_head_dim
        self.layer_types = [
            "full_attention" if i in self.full_attention_layers else "linear_attention"
            for i in range(num_hidden_layers)
        ]
        for derived in ("num_key_value_heads", "head_dim", "layer_types"):
            kwargs.pop(derived, None)
        kwargs.setdefault("tie_word_embeddings", False)
        super().__init__(**kwargs)

    @property
    def kda_width(self) -> int:
        """Channels of one of q, k, v and gate of a KDA layer."""
        return self.num_attention_heads * self.kda_head_dim

    @property
    def shared_intermediate_size(self) -> int:
        """Intermediate channels of the shared experts, fused into one MLP."""
        return self.num_shared_experts * self.moe_intermediate_size

    @property
    def num_attn_res_blocks(self) -> int:
        """AttnRes blocks that a whole step writes."""
        return -(-self.num_hidden_layers // self.attn_res_block_size)

    def is_mla_layer(self, layer_idx: int) -> bool:
        """Whether the layer attends with MLA instead of KDA."""
        return layer_idx in self.full_attention_layers

    def is_dense_layer(self, layer_idx: int) -> bool:
        """Whether the layer has the dense MLP instead of the latent MoE."""
        return layer_idx == 0
