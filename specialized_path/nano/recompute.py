"""The whole miniature model over one sequence without any cache: what every cached path must reproduce.

Nothing here is shared with the served model: weights keep their checkpoint names, MLA is expanded per head
instead of absorbed, each expert runs on its own, and time is a plain loop.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from specialized_path.nano.config import KimiK3NanoConfig

Weights = Mapping[str, Tensor]


def recompute_logits(
    weights: Weights, config: KimiK3NanoConfig, token_ids: list[int], *, ablate: frozenset[str] = frozenset()
) -> Tensor:
    """Returns the logits [T, vocab_size] of all positions of `token_ids`, in the dtype of the weights.

    Args:
        weights: The checkpoint's tensors by name.
        config: The sizes they have.
        token_ids: T token ids, T >= 1.
        ablate: "kda_state" forgets the recurrent state before every token, "mla" zeroes the MLA output;
            both exist to show that the context reaches the logits through each of them.
    """
    prefix = weights["model.embed_tokens.weight"][torch.tensor(token_ids)]
    blocks: list[Tensor] = []
    delta = torch.zeros_like(prefix)
    for i in range(config.num_hidden_layers):
        name = f"model.layers.{i}"
        writes_block = i % config.attn_res_block_size == 0
        prefix = prefix + delta
        sources = [*blocks, prefix]
        if writes_block:
            blocks.append(prefix)
        mixed = _mix(weights, f"{name}.self_attention_res", sources, config)
        x = _rms_norm(mixed, weights[f"{name}.input_layernorm.weight"], config.rms_norm_eps)
        if config.is_mla_layer(i):
            attended = _mla(weights, f"{name}.self_attn", x, config) * ("mla" not in ablate)
        else:
            attended = _kda(weights, f"{name}.self_attn", x, config, keep_state="kda_state" not in ablate)
        prefix = attended if writes_block else prefix + attended
        mixed = _mix(weights, f"{name}.mlp_res", [*blocks, prefix], config)
        x = _rms_norm(mixed, weights[f"{name}.post_attention_layernorm.weight"], config.rms_norm_eps)
        if config.is_dense_layer(i):
            delta = _gated_mlp(weights, f"{name}.mlp", x, config)
        else:
            delta = _latent_moe(weights, f"{name}.mlp", x, config)
    mixed = _mix(weights, "model.output_attn_res", [*blocks, prefix + delta], config)
    hidden = _rms_norm(mixed, weights["model.norm.weight"], config.rms_norm_eps)
    return hidden @ weights["lm_head.weight"].T


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def _mix(weights: Weights, name: str, sources: list[Tensor], config: KimiK3NanoConfig) -> Tensor:
    """Mixes the residual sources [T, hidden] by the softmax of their normalised scores (AttnRes)."""
    query = weights[f"{name}_norm.weight"] * weights[f"{name}_proj.weight"]
    scores = [(v * query).sum(-1) * torch.rsqrt(v.square().mean(-1) + config.rms_norm_eps) for v in sources]
    shares = torch.softmax(torch.stack(scores), dim=0)
    return sum((share[:, None] * v for share, v in zip(shares, sources, strict=True)), torch.zeros(()))


def _kda(weights: Weights, name: str, x: Tensor, config: KimiK3NanoConfig, *, keep_state: bool) -> Tensor:
    heads, dim = config.num_attention_heads, config.kda_head_dim

    def project(part: str) -> Tensor:
        return x @ weights[f"{name}.{part}_proj.weight"].T

    def convolve(part: str) -> Tensor:
        taps = config.short_conv_kernel_size
        padded = functional.pad(project(part), (0, 0, taps - 1, 0))
        kernel = weights[f"{name}.{part}_conv1d.weight"]
        z = sum((padded[t : t + len(x)] * kernel[:, t] for t in range(taps)), torch.zeros(()))
        return (z * torch.sigmoid(z)).unflatten(-1, (heads, dim))

    q, k, v = convolve("q"), convolve("k"), convolve("v")
    q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + config.qk_l2_norm_eps) * dim**-0.5
    k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + config.qk_l2_norm_eps)
    raw_gate = project("f_a") @ weights[f"{name}.f_b_proj.weight"].T + weights[f"{name}.dt_bias"]
    rate = torch.exp(weights[f"{name}.A_log"])[:, None]
    decay = torch.exp(
        config.kda_gate_lower_bound * torch.sigmoid(rate * raw_gate.unflatten(-1, (heads, dim)))
    )
    beta = torch.sigmoid(project("b"))
    state = x.new_zeros(heads, dim, dim)
    outputs = []
    for t in range(len(x)):
        state = state * decay[t, :, None, :] * keep_state
        update = beta[t, :, None] * (v[t] - (state @ k[t, :, :, None])[..., 0])
        state = state + update[:, :, None] * k[t, :, None, :]
        outputs.append((state @ q[t, :, :, None])[..., 0])
    normed = _rms_norm(torch.stack(outputs), weights[f"{name}.o_norm.weight"], config.rms_norm_eps)
    gated = normed.flatten(1) * torch.sigmoid(project("g"))
    return gated @ weights[f"{name}.o_proj.weight"].T


def _mla(weights: Weights, name: str, x: Tensor, config: KimiK3NanoConfig) -> Tensor:
    heads, nope, rope = config.num_attention_heads, config.qk_nope_head_dim, config.qk_rope_head_dim
    eps = config.rms_norm_eps
    q_c = _rms_norm(x @ weights[f"{name}.q_a_proj.weight"].T, weights[f"{name}.q_a_layernorm.weight"], eps)
    q = (q_c @ weights[f"{name}.q_b_proj.weight"].T).unflatten(-1, (heads, nope + rope))
    kv_a = x @ weights[f"{name}.kv_a_proj_with_mqa.weight"].T
    kv_c = _rms_norm(kv_a[:, : config.kv_lora_rank], weights[f"{name}.kv_a_layernorm.weight"], eps)
    kv = (kv_c @ weights[f"{name}.kv_b_proj.weight"].T).unflatten(-1, (heads, nope + config.v_head_dim))
    k_pe = kv_a[:, None, config.kv_lora_rank :].expand(-1, heads, -1)
    k = torch.cat((kv[..., :nope], k_pe), dim=-1)
    scores = torch.einsum("thd,shd->hts", q, k) * (nope + rope) ** -0.5
    future = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
    shares = torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
    values = torch.einsum("hts,shd->thd", shares, kv[..., nope:]).flatten(1)
    gated = values * torch.sigmoid(x @ weights[f"{name}.g_proj.weight"].T)
    return gated @ weights[f"{name}.o_proj.weight"].T


def _situ(gate: Tensor, up: Tensor, config: KimiK3NanoConfig) -> Tensor:
    beta, linear_beta = config.situ_beta, config.situ_linear_beta
    bounded_gate = beta * torch.tanh(gate / beta) * torch.sigmoid(gate)
    return bounded_gate * linear_beta * torch.tanh(up / linear_beta)


def _gated_mlp(weights: Weights, name: str, x: Tensor, config: KimiK3NanoConfig) -> Tensor:
    gate, up = (x @ weights[f"{name}.{part}_proj.weight"].T for part in ("gate", "up"))
    return _situ(gate, up, config) @ weights[f"{name}.down_proj.weight"].T


def _latent_moe(weights: Weights, name: str, x: Tensor, config: KimiK3NanoConfig) -> Tensor:
    scores = torch.sigmoid(x @ weights[f"{name}.gate.weight"].T)
    keys = scores + weights[f"{name}.gate.e_score_correction_bias"]
    chosen = keys.topk(config.num_experts_per_token, dim=-1).indices
    latent = x @ weights[f"{name}.latent_down_proj.weight"].T
    selected = scores.gather(-1, chosen)
    shares = selected / (selected.sum(-1, keepdim=True) + 1e-20)
    combined = torch.zeros_like(latent)
    for e in range(config.num_experts):
        w1, w2, w3 = (weights[f"{name}.experts.{part}"][e] for part in ("w1", "w2", "w3"))
        tokens, slots = (chosen == e).nonzero(as_tuple=True)
        rows = latent[tokens]
        output = _situ(rows @ w1.T, rows @ w3.T, config) @ w2.T
        combined[tokens] += shares[tokens, slots, None] * output
    normed = _rms_norm(combined, weights[f"{name}.routed_expert_norm.weight"], config.rms_norm_eps)
    routed = normed @ weights[f"{name}.latent_up_proj.weight"].T
    return routed + _gated_mlp(weights, f"{name}.shared_experts", x, config)
