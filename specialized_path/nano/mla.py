"""Multi-head latent attention in its absorbed form: the cache holds one latent row a token, for all heads."""

import torch
from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.model_executor.layers.attention import Attention

from specialized_path.nano.config import KimiK3NanoConfig
from specialized_path.nano.fused_rows import FusedRows
from specialized_path.nano.mlp import Linear
from specialized_path.nano.norm import RmsNorm


class MlaAttention(nn.Module):
    """One MLA layer without rotary positions and with a sigmoid output gate.

    A cache row is [latent | position part] and serves as key and as value: the engine sees multi-query
    attention of head size `kv_lora_rank + qk_rope_head_dim`, of whose result the latent part counts.
    """

    def __init__(self, vllm_config: VllmConfig, prefix: str) -> None:
        """Builds the weights and the engine's attention layer under `prefix`."""
        super().__init__()
        config: KimiK3NanoConfig = vllm_config.model_config.hf_config
        dtype = vllm_config.model_config.dtype
        heads, nope, rope = config.num_attention_heads, config.qk_nope_head_dim, config.qk_rope_head_dim
        latent, value = config.kv_lora_rank, config.v_head_dim
        self.config = config
        rows = {"q_a_proj": config.q_lora_rank, "kv_a_proj_with_mqa": latent + rope, "g_proj": heads * value}
        self.in_proj = FusedRows(rows, config.hidden_size, dtype)
        self.q_a_layernorm = RmsNorm(config.q_lora_rank, config.rms_norm_eps, dtype)
        self.kv_a_layernorm = RmsNorm(latent, config.rms_norm_eps, dtype)
        self.q_b_proj = Linear(config.q_lora_rank, heads * (nope + rope), dtype)
        self.kv_b_proj = Linear(latent, heads * (nope + value), dtype)
        self.o_proj = Linear(heads * value, config.hidden_size, dtype)
        self.attn = Attention(
            heads,
            latent + rope,
            (nope + rope) ** -0.5,
            num_kv_heads=1,
            cache_config=vllm_config.cache_config,
            prefix=f"{prefix}.attn",
        )

    def up_projections(self) -> tuple[Tensor, Tensor]:
        """Returns W_UK [H, nope, latent] and W_UV [H, v, latent], views of `kv_b_proj`."""
        config = self.config
        per_head = self.kv_b_proj.weight.unflatten(0, (config.num_attention_heads, -1))
        w_uk, w_uv = per_head.split((config.qk_nope_head_dim, config.v_head_dim), dim=1)
        return w_uk, w_uv

    def forward(self, x: Tensor) -> Tensor:
        """Maps [T, hidden] to [T, hidden]; the engine's attention inserts the T cache rows."""
        config = self.config
        q_a, kv_a, gate = self.in_proj(x)
        kv_c, k_pe = kv_a.split((config.kv_lora_rank, config.qk_rope_head_dim), dim=-1)
        row = torch.cat((self.kv_a_layernorm(kv_c), k_pe), dim=-1)
        q = self.q_b_proj(self.q_a_layernorm(q_a)).unflatten(-1, (config.num_attention_heads, -1))
        q_nope, q_pe = q.split((config.qk_nope_head_dim, config.qk_rope_head_dim), dim=-1)
        w_uk, w_uv = self.up_projections()
        q_latent = torch.einsum("thn,hnc->thc", q_nope, w_uk)
        query = torch.cat((q_latent, q_pe), dim=-1)
        attended = self.attn(query.flatten(1), row, row).view_as(query)[..., : config.kv_lora_rank]
        values = torch.einsum("thc,hvc->thv", attended, w_uv).flatten(1)
        return self.o_proj((values.float() * torch.sigmoid(gate.float())).to(x.dtype))
