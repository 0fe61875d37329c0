"""Where training starts, and what it leaves alone.

Copying from context is what the miniature is to learn, and a small model finds the two cooperating layers that it takes
(an "induction head": Olsson et al., 2022, arXiv:2209.11895) late or never. So they are there from the start: the heads
of KDA layer 0 each hand on the code of the token 0, 1, 2 and 3 places back, and MLA looks for the places whose
predecessors have the codes of the last three tokens, and returns the code of the token there. Everything else starts
from the seeded weights with smaller gains.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from specialized_path.nano.config import KimiK3NanoConfig
from specialized_path.nano.weights import reserved_channels, seeded_weights

_EMBEDDING_GAIN = 0.5
_OUTPUT_GAIN = 0.25
_LOGIT_GAIN = 0.1
_CODE_GAIN = 2.0
_HANDED_ON_GAIN = 1.5
_MATCH_GAIN = 2.5
_COPY_GAIN = 3.0
_FORGETFUL = 4.0
"""`dt_bias` at which a state loses all but a hundredth within a token."""
_CODE = 27
"""Channels of a token's code: four of them fit into the hidden state."""
_INTO_HIDDEN = ("o_proj", "down_proj", "latent_up_proj")
_ROUTER = ("gate.weight", "gate.e_score_correction_bias")


def initial_weights(config: KimiK3NanoConfig, seed: int) -> dict[str, Tensor]:
    """Returns the weights of step 0: a circuit that copies, small other layers, flat logits.

    Raises:
        ValueError: The sizes are not the default ones, which the circuit is cut for.
    """
    if config.to_dict() != KimiK3NanoConfig().to_dict():
        raise ValueError("training starts from the default sizes only")
    weights = seeded_weights(config, seed)
    reserved = reserved_channels(config)
    for name, weight in weights.items():
        if name.split(".")[-2] in _INTO_HIDDEN:
            weight[reserved:] *= _OUTPUT_GAIN
        elif name.endswith("_res_proj.weight"):
            weight.zero_()
    weights["model.embed_tokens.weight"][:, reserved:] *= _EMBEDDING_GAIN
    weights["lm_head.weight"] *= _LOGIT_GAIN
    weights["lm_head.weight"][:, 0] = 0.0
    generator = torch.Generator().manual_seed(seed)
    free = config.hidden_size - reserved
    basis = torch.linalg.qr(torch.randn(free, free, generator=generator)).Q
    places = torch.zeros(4, config.hidden_size, _CODE)
    places[:, reserved:] = basis[:, : 4 * _CODE].unflatten(1, (4, _CODE)).transpose(0, 1)
    _hand_on_codes(weights, "model.layers.0.self_attn", config, places)
    _match_and_copy(
        weights, f"model.layers.{config.full_attention_layers[0]}.self_attn", config, places, generator
    )
    return weights


def _hand_on_codes(weights: dict[str, Tensor], name: str, config: KimiK3NanoConfig, places: Tensor) -> None:
    """Head h writes the code of the token h places back to `places[h]`, [hidden, code]."""
    heads, dim = config.num_attention_heads, config.kda_head_dim
    code = weights[f"{name}.v_proj.weight"][:dim] * _CODE_GAIN
    code[:, : reserved_channels(config)] = 0.0
    weights[f"{name}.v_proj.weight"].copy_(code.repeat(heads, 1))
    weights[f"{name}.q_proj.weight"].copy_(weights[f"{name}.k_proj.weight"])
    weights[f"{name}.q_conv1d.weight"].copy_(weights[f"{name}.k_conv1d.weight"])
    weights[f"{name}.g_proj.weight"].zero_()
    weights[f"{name}.dt_bias"].fill_(_FORGETFUL)
    weights[f"{name}.v_conv1d.weight"].zero_()
    weights[f"{name}.o_proj.weight"].zero_()
    for head in range(heads):
        rows = slice(head * dim, (head + 1) * dim)
        weights[f"{name}.v_conv1d.weight"][rows, config.short_conv_kernel_size - 1 - head] = 1.0
        weights[f"{name}.o_proj.weight"][:, head * dim : head * dim + _CODE] = _HANDED_ON_GAIN * places[head]


def _match_and_copy(
    weights: dict[str, Tensor],
    name: str,
    config: KimiK3NanoConfig,
    places: Tensor,
    generator: torch.Generator,
) -> None:
    """Queries carry the codes 0, 1 and 2 places back, keys those 1, 2 and 3 places back, values the code itself."""
    q_a, kv_a = weights[f"{name}.q_a_proj.weight"], weights[f"{name}.kv_a_proj_with_mqa.weight"]
    for lag in range(3):
        q_a[16 * lag : 16 * (lag + 1)] = places[lag].T[:16]
    kv_a[:16], kv_a[16:28], kv_a[28:48] = places[2].T[:16], places[3].T[:12], places[0].T[:20]
    kv_a[48:] = places[1].T[:16]
    q_b = weights[f"{name}.q_b_proj.weight"].unflatten(0, (config.num_attention_heads, -1))
    kv_b = weights[f"{name}.kv_b_proj.weight"].unflatten(0, (config.num_attention_heads, -1))
    q_b *= _OUTPUT_GAIN
    kv_b *= _OUTPUT_GAIN
    value = config.qk_nope_head_dim
    for head in range(config.num_attention_heads):
        q_b[head, :32, 16:48] += _MATCH_GAIN * torch.eye(32)
        q_b[head, 32:, :16] += _MATCH_GAIN * torch.eye(16)
        kv_b[head, :28, :28] += torch.eye(28)
        kv_b[head, value : value + 20, 28:] += torch.eye(20)
    weights[f"{name}.g_proj.weight"].zero_()
    free = slice(reserved_channels(config), None)
    written = torch.linalg.qr(torch.randn(config.hidden_size, 20, generator=generator)[free]).Q
    for head in range(config.num_attention_heads):
        begin = head * config.v_head_dim
        weights[f"{name}.o_proj.weight"][free, begin : begin + 20] += _COPY_GAIN / 4 * written


def trainable_masks(config: KimiK3NanoConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns, for every tensor that is trained, a 0/1 mask that broadcasts to its shape.

    The routing stays as it is: the router, the hidden channels that carry a token's tag, and the mixture in which a
    router reads them. A mixture that is trained may leave so little of a tag that rounding decides between experts.
    """
    reserved = reserved_channels(config)
    mixtures = [
        f"layers.{i}.mlp_res_" for i in range(config.num_hidden_layers) if not config.is_dense_layer(i)
    ]
    masks = {}
    for name, weight in weights.items():
        if name.endswith(_ROUTER) or any(mixture in name for mixture in mixtures):
            continue
        mask = torch.ones(1, *[1] * (weight.dim() - 1))
        if name == "model.embed_tokens.weight":
            mask = torch.ones(1, config.hidden_size)
            mask[:, :reserved] = 0.0
        elif name.split(".")[-2] in _INTO_HIDDEN:
            mask = torch.ones(config.hidden_size, 1)
            mask[:reserved] = 0.0
        elif name.endswith("post_attention_layernorm.weight"):
            mask = torch.ones(config.hidden_size)
            mask[:reserved] = 0.0
        masks[name] = mask
    return masks
