"""One decoder layer: attention and MLP, each fed by its own AttnRes mixture."""

from torch import Tensor, nn
from vllm.config import VllmConfig

from specialized_path.nano.attn_res import Query, mix_sources
from specialized_path.nano.config import KimiK3NanoConfig
from specialized_path.nano.kda import KdaAttention
from specialized_path.nano.mla import MlaAttention
from specialized_path.nano.mlp import GatedMlp
from specialized_path.nano.moe import LatentMoe
from specialized_path.nano.norm import RmsNorm


class DecoderLayer(nn.Module):
    """Layer i; layers whose index is a multiple of the block size close one AttnRes block and open the next."""

    def __init__(self, vllm_config: VllmConfig, prefix: str, layer_idx: int) -> None:
        """Builds the KDA or MLA attention and the dense or latent-MoE MLP of this index."""
        super().__init__()
        config: KimiK3NanoConfig = vllm_config.model_config.hf_config
        dtype = vllm_config.model_config.dtype
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.layer_idx = layer_idx
        self.writes_block = layer_idx % config.attn_res_block_size == 0
        self.is_mla = config.is_mla_layer(layer_idx)
        attention = MlaAttention if self.is_mla else KdaAttention
        self.self_attn = attention(vllm_config, f"{prefix}.self_attn")
        self.mlp: nn.Module
        if config.is_dense_layer(layer_idx):
            self.mlp = GatedMlp(config, config.intermediate_size, dtype)
        else:
            self.mlp = LatentMoe(config, dtype)
        self.self_attention_res_norm = RmsNorm(hidden, eps, dtype)
        self.self_attention_res_proj = Query(hidden, dtype)
        self.mlp_res_norm = RmsNorm(hidden, eps, dtype)
        self.mlp_res_proj = Query(hidden, dtype)
        self.input_layernorm = RmsNorm(hidden, eps, dtype)
        self.post_attention_layernorm = RmsNorm(hidden, eps, dtype)

    def forward(self, prefix: Tensor, blocks: list[Tensor]) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Runs the layer.

        Args:
            prefix: [T, hidden], the running sum of the open block, the last MLP's output included.
            blocks: The completed blocks, each [T, hidden].

        Returns:
            The new prefix without this layer's MLP output, that output, and the completed blocks.
        """
        mixed = mix_sources([*blocks, prefix], self.self_attention_res_norm, self.self_attention_res_proj)
        if self.writes_block:
            blocks = [*blocks, prefix]
        attended = self.self_attn(self.input_layernorm(mixed))
        prefix = attended if self.writes_block else prefix + attended
        mixed = mix_sources([*blocks, prefix], self.mlp_res_norm, self.mlp_res_proj)
        return prefix, self.mlp(self.post_attention_layernorm(mixed)), blocks
