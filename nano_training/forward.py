"""The miniature in differentiable form: a batch of whole sequences, chunk by chunk, on the checkpoint's tensors."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from nano_training.kda_scan import run_kda_scan
from specialized_path.nano.config import KimiK3NanoConfig
from specialized_path.nano.kda_chunks import run_kda_chunks

Weights = Mapping[str, Tensor]


@dataclass(slots=True, kw_only=True)
class Cache:
    """What the tokens so far left behind, by name of the attention layer; empty before the first token."""

    windows: dict[str, Tensor] = field(default_factory=dict)
    """[B, taps - 1, 3 * width], the last inputs of a KDA layer's convolution."""
    states: dict[str, Tensor] = field(default_factory=dict)
    """[B, H, V, K], the recurrent state of a KDA layer."""
    keys: dict[str, Tensor] = field(default_factory=dict)
    """[B, T, H, nope + rope] of an MLA layer."""
    values: dict[str, Tensor] = field(default_factory=dict)
    """[B, T, H, nope + rope] of an MLA layer, zeros behind the value's own channels."""


def hidden_states(
    weights: Weights,
    config: KimiK3NanoConfig,
    token_ids: Tensor,
    cache: Cache | None = None,
    mlp_inputs: dict[str, Tensor] | None = None,
    *,
    scan: bool = False,
) -> Tensor:
    """Returns the hidden states [B, T, hidden] that the output head reads, in the dtype of the weights.

    Args:
        weights: The checkpoint's tensors by name.
        config: The sizes they have.
        token_ids: [B, T]; shorter sequences are padded at the end with any token.
        cache: Read and brought up to date. With tokens in it, T must be 1.
        mlp_inputs: Filled with what each MLP reads, [B, T, hidden] by the name of the MLP.
        scan: Whether the delta rule runs as a scan over all chunks, without a cache: for a GPU, to which a loop over
            chunks gives too little to do at a time; twice as slow on a CPU.
    """
    prefix = functional.embedding(token_ids, weights["model.embed_tokens.weight"])
    blocks: list[Tensor] = []
    delta = torch.zeros_like(prefix)
    for i in range(config.num_hidden_layers):
        name = f"model.layers.{i}"
        writes_block = i % config.attn_res_block_size == 0
        prefix = prefix + delta
        mixed = _mix(weights, f"{name}.self_attention_res", [*blocks, prefix], config)
        if writes_block:
            blocks = [*blocks, prefix]
        x = _rms_norm(mixed, weights[f"{name}.input_layernorm.weight"], config)
        if config.is_mla_layer(i):
            attended = _mla(weights, f"{name}.self_attn", x, config, cache)
        else:
            attended = _kda(weights, f"{name}.self_attn", x, config, cache, scan=scan)
        prefix = attended if writes_block else prefix + attended
        mixed = _mix(weights, f"{name}.mlp_res", [*blocks, prefix], config)
        x = _rms_norm(mixed, weights[f"{name}.post_attention_layernorm.weight"], config)
        if mlp_inputs is not None:
            mlp_inputs[f"{name}.mlp"] = x
        mlp = _gated_mlp if config.is_dense_layer(i) else _latent_moe
        delta = mlp(weights, f"{name}.mlp", x, config)
    mixed = _mix(weights, "model.output_attn_res", [*blocks, prefix + delta], config)
    return _rms_norm(mixed, weights["model.norm.weight"], config)


def _rms_norm(x: Tensor, weight: Tensor, config: KimiK3NanoConfig) -> Tensor:
    return functional.rms_norm(x, x.shape[-1:], weight, config.rms_norm_eps)


def _mix(weights: Weights, name: str, sources: list[Tensor], config: KimiK3NanoConfig) -> Tensor:
    stacked = torch.stack(sources)
    query = weights[f"{name}_norm.weight"] * weights[f"{name}_proj.weight"]
    scores = (stacked @ query) * torch.rsqrt(stacked.square().mean(-1) + config.rms_norm_eps)
    return (torch.softmax(scores, dim=0).unsqueeze(-1) * stacked).sum(0)


def _kda(
    weights: Weights, name: str, x: Tensor, config: KimiK3NanoConfig, cache: Cache | None, *, scan: bool
) -> Tensor:
    heads, dim = config.num_attention_heads, config.kda_head_dim
    taps = config.short_conv_kernel_size
    raw = [functional.linear(x, weights[f"{name}.{part}_proj.weight"]) for part in ("q", "k", "v")]
    kernel = torch.cat([weights[f"{name}.{part}_conv1d.weight"] for part in ("q", "k", "v")])
    joined = torch.cat(raw, dim=-1)
    state = x.new_zeros(len(x), heads, dim, dim)
    if cache is None or name not in cache.states:
        padded = functional.pad(joined, (0, 0, taps - 1, 0))
    else:
        padded, state = torch.cat((cache.windows[name], joined), dim=1), cache.states[name]
    filtered = padded[:, : x.shape[1]] * kernel[:, 0]
    for t in range(1, taps):
        filtered = torch.addcmul(filtered, padded[:, t : t + x.shape[1]], kernel[:, t])
    q, k, v = functional.silu(filtered).unflatten(-1, (3, heads, dim)).unbind(2)
    q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + config.qk_l2_norm_eps) * dim**-0.5
    k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + config.qk_l2_norm_eps)
    f_a = functional.linear(x, weights[f"{name}.f_a_proj.weight"])
    gate = functional.linear(f_a, weights[f"{name}.f_b_proj.weight"], weights[f"{name}.dt_bias"])
    rate = torch.exp(weights[f"{name}.A_log"]).unsqueeze(-1)
    g = config.kda_gate_lower_bound * torch.sigmoid(rate * gate.unflatten(-1, (heads, dim)))
    beta = torch.sigmoid(functional.linear(x, weights[f"{name}.b_proj.weight"]))
    if scan:
        o = run_kda_scan(q, k, v, g, beta)
    else:
        o, state = run_kda_chunks(q, k, v, g, beta, state)
    if cache is not None:
        cache.windows[name], cache.states[name] = padded[:, 1 - taps :], state
    normed = _rms_norm(o, weights[f"{name}.o_norm.weight"], config).flatten(2)
    gated = normed * torch.sigmoid(functional.linear(x, weights[f"{name}.g_proj.weight"]))
    return functional.linear(gated, weights[f"{name}.o_proj.weight"])


def _mla(weights: Weights, name: str, x: Tensor, config: KimiK3NanoConfig, cache: Cache | None) -> Tensor:
    heads, nope, rope = config.num_attention_heads, config.qk_nope_head_dim, config.qk_rope_head_dim
    value = config.v_head_dim
    q_a = functional.linear(x, weights[f"{name}.q_a_proj.weight"])
    q_c = _rms_norm(q_a, weights[f"{name}.q_a_layernorm.weight"], config)
    q = functional.linear(q_c, weights[f"{name}.q_b_proj.weight"]).unflatten(-1, (heads, nope + rope))
    kv_a = functional.linear(x, weights[f"{name}.kv_a_proj_with_mqa.weight"])
    latent, k_pe = kv_a.split((config.kv_lora_rank, rope), dim=-1)
    kv_c = _rms_norm(latent, weights[f"{name}.kv_a_layernorm.weight"], config)
    kv = functional.linear(kv_c, weights[f"{name}.kv_b_proj.weight"]).unflatten(-1, (heads, nope + value))
    k = torch.cat((kv[..., :nope], k_pe.unsqueeze(2).expand(-1, -1, heads, -1)), dim=-1)
    v = functional.pad(kv[..., nope:], (0, nope + rope - value))
    if cache is not None:
        if name in cache.keys:
            k, v = torch.cat((cache.keys[name], k), dim=1), torch.cat((cache.values[name], v), dim=1)
        cache.keys[name], cache.values[name] = k, v
    attended = functional.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=k.shape[1] == q.shape[1]
    )
    values = attended[..., :value].transpose(1, 2).flatten(2)
    gated = values * torch.sigmoid(functional.linear(x, weights[f"{name}.g_proj.weight"]))
    return functional.linear(gated, weights[f"{name}.o_proj.weight"])


def _situ(gate: Tensor, up: Tensor, config: KimiK3NanoConfig) -> Tensor:
    beta, linear_beta = config.situ_beta, config.situ_linear_beta
    return beta * torch.tanh(gate / beta) * torch.sigmoid(gate) * (linear_beta * torch.tanh(up / linear_beta))


def _gated_mlp(weights: Weights, name: str, x: Tensor, config: KimiK3NanoConfig) -> Tensor:
    gate, up = (functional.linear(x, weights[f"{name}.{part}_proj.weight"]) for part in ("gate", "up"))
    return functional.linear(_situ(gate, up, config), weights[f"{name}.down_proj.weight"])


def _latent_moe(weights: Weights, name: str, x: Tensor, config: KimiK3NanoConfig) -> Tensor:
    """All experts see all tokens; only the chosen ones count."""
    scores = torch.sigmoid(functional.linear(x, weights[f"{name}.gate.weight"]))
    keys = scores + weights[f"{name}.gate.e_score_correction_bias"]
    chosen = torch.zeros_like(scores).scatter(
        -1, keys.topk(config.num_experts_per_token, dim=-1).indices, 1.0
    )
    selected = scores * chosen
    shares = selected / (selected.sum(-1, keepdim=True) + 1e-20)
    latent = functional.linear(x, weights[f"{name}.latent_down_proj.weight"])
    w1, w2, w3 = (weights[f"{name}.experts.{part}"] for part in ("w1", "w2", "w3"))
    inner = _situ(
        functional.linear(latent, w1.flatten(0, 1)), functional.linear(latent, w3.flatten(0, 1)), config
    )
    weighted = (inner.unflatten(-1, (config.num_experts, -1)) * shares.unsqueeze(-1)).flatten(-2)
    combined = weighted @ w2.transpose(1, 2).flatten(0, 1)
    normed = _rms_norm(combined, weights[f"{name}.routed_expert_norm.weight"], config)
    routed = functional.linear(normed, weights[f"{name}.latent_up_proj.weight"])
    return routed + _gated_mlp(weights, f"{name}.shared_experts", x, config)
