"""Seeded weights whose continuations stay varied, depend on the whole context, and change smoothly.

Plain random weights collapse into loops and hide state errors. The gains below make attention outrank the
current token's embedding, give the KDA heads memories from a few to a few hundred tokens, let MLA pick single
old tokens, and keep the next-token distribution between certain and flat.

Two groups of hidden channels are reserved:

- Channel 0 stays positive: the embedding sets it and one MLP unit renews it. A row of the output head turns it
  into a bias, which makes special tokens and bytes outside printable ASCII improbable.
- Channels 1 to `num_experts` carry a tag of the current token, which only the embedding writes and which
  decides the routing. Its levels are far apart where the choice of experts is cut, and so is the one large
  correction bias: no rounding error flips an expert, so that two correct implementations differ by rounding
  errors only, at every token.
"""

import zlib
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from specialized_path.nano.config import KimiK3NanoConfig

EMBEDDING_SCALE = 0.5
KDA_OUTPUT_GAIN = 2.0
MLA_OUTPUT_GAIN = 4.0
MLA_QUERY_GAIN = 4.0
MLP_OUTPUT_GAIN = 1.0
ATTN_RES_QUERY_GAIN = 0.5
LOGIT_GAIN = 3.6
SPECIAL_BIAS = -50.0
UNPRINTABLE_BIAS = -25.0
CONSTANT = 2.0
TAG_SCALE = 0.5
ROUTER_TAG_GAIN = 8.0
ROUTER_NOISE = 0.1
FAVOURED_EXPERT_BIAS = 2.0
_PRINTABLE = (10, *range(32, 127))

Draw = Callable[..., Tensor]


def seeded_weights(config: KimiK3NanoConfig, seed: int) -> dict[str, Tensor]:
    """Returns every parameter of the model in float32, the same bits for the same sizes and seed.

    Each tensor is drawn from its own stream, keyed by seed and name: adding a parameter changes no other.
    """

    def draw(name: str, *shape: int, scale: float = 1.0) -> Tensor:
        stream = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())]))
        return torch.from_numpy((stream.standard_normal(shape) * scale).astype(np.float32))

    weights = dict(_outer_weights(config, draw))
    for i in range(config.num_hidden_layers):
        weights.update(_layer_weights(config, f"model.layers.{i}", i, draw))
    return weights


def _outer_weights(config: KimiK3NanoConfig, draw: Draw) -> Iterator[tuple[str, Tensor]]:
    hidden = config.hidden_size
    embedding = draw("model.embed_tokens.weight", config.vocab_size, hidden, scale=EMBEDDING_SCALE)
    embedding[:, 0] = CONSTANT
    embedding[:, 1 : 1 + config.num_experts] = _tags(config, draw)
    yield "model.embed_tokens.weight", embedding
    yield from _attn_res("model.output_attn_res", config, draw)
    yield _norm("model.norm.weight", hidden, draw)
    head = draw("lm_head.weight", config.vocab_size, hidden, scale=LOGIT_GAIN * hidden**-0.5)
    head[:256, 0] = UNPRINTABLE_BIAS
    head[256:, 0] = SPECIAL_BIAS
    head[list(_PRINTABLE), 0] = 0.0
    yield "lm_head.weight", head


def _tags(config: KimiK3NanoConfig, draw: Draw) -> Tensor:
    """Returns [vocab, experts]: per token a shuffle of levels with wide steps around rank top_k."""
    top_k, experts = config.num_experts_per_token, config.num_experts
    chosen = torch.linspace(2.2, 1.4, top_k - 1)
    others = torch.linspace(-0.6, -1.6, experts - top_k)
    levels = TAG_SCALE * torch.cat((chosen, torch.tensor([0.4]), others))
    return levels[draw("model.embed_tokens.tags", config.vocab_size, experts).argsort(dim=1)]


def _layer_weights(
    config: KimiK3NanoConfig, name: str, layer_idx: int, draw: Draw
) -> Iterator[tuple[str, Tensor]]:
    yield from _attn_res(f"{name}.self_attention_res", config, draw)
    yield from _attn_res(f"{name}.mlp_res", config, draw)
    yield _norm(f"{name}.input_layernorm.weight", config.hidden_size, draw)
    yield _norm(f"{name}.post_attention_layernorm.weight", config.hidden_size, draw)
    attention = _mla if config.is_mla_layer(layer_idx) else _kda
    yield from attention(config, f"{name}.self_attn", draw)
    if config.is_dense_layer(layer_idx):
        yield from _gated_mlp(config, f"{name}.mlp", config.intermediate_size, draw)
    else:
        yield from _latent_moe(config, f"{name}.mlp", draw)


def _norm(name: str, size: int, draw: Draw) -> tuple[str, Tensor]:
    return name, 1.0 + draw(name, size, scale=0.1)


def _attn_res(name: str, config: KimiK3NanoConfig, draw: Draw) -> Iterator[tuple[str, Tensor]]:
    hidden = config.hidden_size
    yield _norm(f"{name}_norm.weight", hidden, draw)
    scale = ATTN_RES_QUERY_GAIN * hidden**-0.5
    yield f"{name}_proj.weight", draw(f"{name}_proj.weight", hidden, scale=scale)


def _linear(name: str, rows: int, columns: int, draw: Draw, gain: float = 1.0) -> tuple[str, Tensor]:
    return name, draw(name, rows, columns, scale=gain * columns**-0.5)


def _into_hidden(
    name: str, rows: int, columns: int, draw: Draw, gain: float, reserved: int
) -> tuple[str, Tensor]:
    """A projection into the hidden state that leaves the reserved channels alone."""
    name, weight = _linear(name, rows, columns, draw, gain)
    weight[:reserved] = 0.0
    return name, weight


def _kda(config: KimiK3NanoConfig, name: str, draw: Draw) -> Iterator[tuple[str, Tensor]]:
    hidden, width, heads, dim = (
        config.hidden_size, config.kda_width, config.num_attention_heads, config.kda_head_dim,
    )  # fmt: skip
    for part in ("q", "k", "v", "g"):
        yield _linear(f"{name}.{part}_proj.weight", width, hidden, draw)
    for part in ("q", "k", "v"):
        conv = f"{name}.{part}_conv1d.weight"
        yield conv, draw(conv, width, config.short_conv_kernel_size, scale=0.7)
    yield _linear(f"{name}.f_a_proj.weight", dim, hidden, draw)
    yield _linear(f"{name}.f_b_proj.weight", width, dim, draw)
    yield _linear(f"{name}.b_proj.weight", heads, hidden, draw)
    # With A_log = 0 the decay per token is about exp(-5 sigmoid(dt_bias)): memories of 3 to 300 tokens.
    yield f"{name}.A_log", draw(f"{name}.A_log", heads, scale=0.2)
    head_bias = torch.linspace(-2.0, -7.0, heads).repeat_interleave(dim)
    yield f"{name}.dt_bias", head_bias + draw(f"{name}.dt_bias", width, scale=0.5)
    yield _norm(f"{name}.o_norm.weight", dim, draw)
    yield _into_hidden(
        f"{name}.o_proj.weight", hidden, width, draw, KDA_OUTPUT_GAIN, reserved_channels(config)
    )


def _mla(config: KimiK3NanoConfig, name: str, draw: Draw) -> Iterator[tuple[str, Tensor]]:
    hidden, heads = config.hidden_size, config.num_attention_heads
    nope, rope, value = config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim
    yield _linear(f"{name}.q_a_proj.weight", config.q_lora_rank, hidden, draw)
    yield _norm(f"{name}.q_a_layernorm.weight", config.q_lora_rank, draw)
    q_b = f"{name}.q_b_proj.weight"
    yield _linear(q_b, heads * (nope + rope), config.q_lora_rank, draw, MLA_QUERY_GAIN)
    yield _linear(f"{name}.kv_a_proj_with_mqa.weight", config.kv_lora_rank + rope, hidden, draw)
    yield _norm(f"{name}.kv_a_layernorm.weight", config.kv_lora_rank, draw)
    yield _linear(f"{name}.kv_b_proj.weight", heads * (nope + value), config.kv_lora_rank, draw)
    yield _linear(f"{name}.g_proj.weight", heads * value, hidden, draw)
    yield _into_hidden(
        f"{name}.o_proj.weight", hidden, heads * value, draw, MLA_OUTPUT_GAIN, reserved_channels(config)
    )


def reserved_channels(config: KimiK3NanoConfig) -> int:
    """Leading hidden channels that attention and experts do not write."""
    return 1 + config.num_experts


def _gated_mlp(
    config: KimiK3NanoConfig, name: str, intermediate: int, draw: Draw
) -> Iterator[tuple[str, Tensor]]:
    """A SiTU MLP whose unit 0 reads and writes the constant channel 0 and nothing else."""
    hidden = config.hidden_size
    for part in ("gate", "up"):
        row_name, weight = _linear(f"{name}.{part}_proj.weight", intermediate, hidden, draw)
        weight[0] = 0.0
        weight[0, 0] = 1.0 if part == "gate" else 0.5
        yield row_name, weight
    down = f"{name}.down_proj.weight"
    _, weight = _into_hidden(down, hidden, intermediate, draw, MLP_OUTPUT_GAIN, reserved_channels(config))
    weight[:, 0] = 0.0
    weight[0, 0] = 0.5
    yield down, weight


def _latent_moe(config: KimiK3NanoConfig, name: str, draw: Draw) -> Iterator[tuple[str, Tensor]]:
    hidden, latent, experts = config.hidden_size, config.moe_latent_size, config.num_experts
    intermediate = config.moe_intermediate_size
    router, router_weight = _linear(f"{name}.gate.weight", experts, hidden, draw, ROUTER_NOISE)
    router_weight[:, 1 : 1 + experts] = ROUTER_TAG_GAIN * torch.eye(experts)
    yield router, router_weight
    bias = f"{name}.gate.e_score_correction_bias"
    favoured = draw(bias, experts, scale=0.005)
    favoured[0] = FAVOURED_EXPERT_BIAS
    yield bias, favoured
    yield _linear(f"{name}.latent_down_proj.weight", latent, hidden, draw)
    for part, rows, columns in (
        ("w1", intermediate, latent),
        ("w2", latent, intermediate),
        ("w3", intermediate, latent),
    ):
        expert = f"{name}.experts.{part}"
        yield expert, draw(expert, experts, rows, columns, scale=columns**-0.5)
    yield _norm(f"{name}.routed_expert_norm.weight", latent, draw)
    yield _into_hidden(
        f"{name}.latent_up_proj.weight", hidden, latent, draw, MLP_OUTPUT_GAIN, reserved_channels(config)
    )
    yield from _gated_mlp(config, f"{name}.shared_experts", config.shared_intermediate_size, draw)
