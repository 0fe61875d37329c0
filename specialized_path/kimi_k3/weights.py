"""The loaded weights of vLLM's Kimi K3 text model as the kernels take them: the same memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from specialized_path.kernels.kda.launch import KdaWeights
from specialized_path.kernels.mla.launch import KV_RANK, NOPE, V_DIM, QueryWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """An AttnRes mixture and the norm after it, all [hidden]."""

    res_norm: Tensor
    res_proj: Tensor
    out_norm: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class KdaLayer:
    """A KDA layer's attention."""

    module: Any
    """vLLM's layer: its `prefix` names the step's metadata, its `kv_cache` holds windows and states."""
    w_in: Tensor
    weights: KdaWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class MlaLayer:
    """An MLA layer's attention."""

    module: Any
    """vLLM's layer: its `layer_name` names the step's metadata, its `kv_cache` is the paged cache."""
    w_in: Tensor
    weights: QueryWeights
    w_uv: Tensor
    """[H, 128, 512], a view of kv_b."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding:
    """A rank's rows of the vocabulary."""

    weight: Tensor
    """[rows, 7168], without padding."""
    vocab_start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One decoder layer, its MLP apart."""

    layer_idx: int
    before_attention: Mixture
    attention: KdaLayer | MlaLayer
    w_o: Tensor
    after_attention: Mixture


def bind_embedding(model: Any) -> Embedding:
    """Returns the embedding of vLLM's `KimiLinearModel`, the same memory."""
    table, shard = model.embed_tokens.weight, model.embed_tokens.shard_indices
    start, end = shard.org_vocab_start_index, shard.org_vocab_end_index
    return Embedding(weight=table[: end - start], vocab_start=start)


def bind_layers(model: Any) -> tuple[Layer, ...]:
    """Returns the layers of vLLM's `KimiLinearModel`; nothing is copied, later reloads show through."""
    return tuple(_bind_layer(layer) for layer in model.layers)


def _bind_layer(layer: Any) -> Layer:
    return Layer(
        layer_idx=layer.layer_idx,
        before_attention=_mixture(
            layer.self_attention_res_norm, layer.self_attention_res_proj, layer.input_layernorm
        ),
        attention=_bind_kda(layer.self_attn)
        if hasattr(layer.self_attn, "A_log")
        else _bind_mla(layer.self_attn),
        w_o=layer.self_attn.o_proj.weight,
        after_attention=_mixture(layer.mlp_res_norm, layer.mlp_res_proj, layer.post_attention_layernorm),
    )


def _mixture(res_norm: Any, res_proj: Any, out_norm: Any) -> Mixture:
    return Mixture(res_norm=res_norm.weight, res_proj=res_proj.weight.squeeze(0), out_norm=out_norm.weight)


def _bind_kda(attention: Any) -> KdaLayer:
    weights = KdaWeights(
        conv_weight=attention.conv1d.weight.squeeze(1),
        w_f_b=attention.f_b_proj.weight,
        A_log=attention.A_log,
        dt_bias=attention.dt_bias,
        o_norm_weight=attention.o_norm.weight,
    )
    return KdaLayer(module=attention, w_in=attention.in_proj_qkvgfab.weight, weights=weights)


def _bind_mla(attention: Any) -> MlaLayer:
    kv_b = attention.kv_b_proj.weight.view(attention.num_local_heads, NOPE + V_DIM, KV_RANK)
    weights = QueryWeights(
        q_a_norm=attention.q_a_layernorm.weight,
        kv_a_norm=attention.kv_a_layernorm.weight,
        w_q_b=attention.q_b_proj.weight,
        w_uk=kv_b[:, :NOPE],
    )
    w_in = attention.fused_qkv_a_g_proj.weight
    return MlaLayer(module=attention, w_in=w_in, weights=weights, w_uv=kv_b[:, NOPE:])
