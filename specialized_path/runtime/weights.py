"""The served model's weights as the operators take them: the same memory, named by contract."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from specialized_path.nano.kda import KdaAttention
from specialized_path.nano.mla import MlaAttention
from specialized_path.nano.mlp import GatedMlp
from specialized_path.nano.moe import LatentMoe

if TYPE_CHECKING:
    from specialized_path.nano.layer import DecoderLayer
    from specialized_path.nano.model import KimiK3NanoForCausalLM


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureWeights:
    """An AttnRes mixture and the norm after it, all [hidden]."""

    res_norm: Tensor
    res_proj: Tensor
    out_norm: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class KdaWeights:
    """A KDA layer's weights and its state cache."""

    layer: KdaAttention
    w_in: Tensor
    conv: Tensor
    w_f_b: Tensor
    A_log: Tensor
    dt_bias: Tensor
    o_norm: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class MlaWeights:
    """An MLA layer's weights and its engine layer, which owns the KV cache."""

    layer: MlaAttention
    w_in: Tensor
    q_a_norm: Tensor
    kv_a_norm: Tensor
    w_q_b: Tensor
    w_uk: Tensor
    w_uv: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseWeights:
    """Layer 0's MLP, or the shared experts."""

    w_gate_up: Tensor
    w_down: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeWeights:
    """A latent mixture of experts."""

    w_gate: Tensor
    correction_bias: Tensor
    w_latent_down: Tensor
    w1: Tensor
    w2: Tensor
    w3: Tensor
    expert_norm: Tensor
    w_latent_up: Tensor
    shared: DenseWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One decoder layer."""

    layer_idx: int
    before_attention: MixtureWeights
    attention: KdaWeights | MlaWeights
    w_o: Tensor
    after_attention: MixtureWeights
    mlp: DenseWeights | MoeWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWeights:
    """The whole model but its output head, which the engine applies."""

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    output: MixtureWeights


def bind_weights(causal_lm: "KimiK3NanoForCausalLM") -> ModelWeights:
    """Returns views of the model's parameters; nothing is copied, later reloads show through."""
    model = causal_lm.model
    return ModelWeights(
        embedding=model.embed_tokens.weight,
        layers=tuple(_bind_layer(layer) for layer in model.layers),
        output=MixtureWeights(
            res_norm=model.output_attn_res_norm.weight,
            res_proj=model.output_attn_res_proj.weight,
            out_norm=model.norm.weight,
        ),
    )


def _bind_layer(layer: "DecoderLayer") -> LayerWeights:
    attention = layer.self_attn
    return LayerWeights(
        layer_idx=layer.layer_idx,
        before_attention=MixtureWeights(
            res_norm=layer.self_attention_res_norm.weight,
            res_proj=layer.self_attention_res_proj.weight,
            out_norm=layer.input_layernorm.weight,
        ),
        attention=_bind_mla(attention) if isinstance(attention, MlaAttention) else _bind_kda(attention),
        w_o=attention.o_proj.weight,
        after_attention=MixtureWeights(
            res_norm=layer.mlp_res_norm.weight,
            res_proj=layer.mlp_res_proj.weight,
            out_norm=layer.post_attention_layernorm.weight,
        ),
        mlp=_bind_moe(layer.mlp) if isinstance(layer.mlp, LatentMoe) else _bind_dense(layer.mlp),
    )


def _bind_kda(attention: KdaAttention) -> KdaWeights:
    return KdaWeights(
        layer=attention,
        w_in=attention.in_proj.weight,
        conv=attention.conv1d.weight,
        w_f_b=attention.f_b_proj.weight,
        A_log=attention.A_log,
        dt_bias=attention.dt_bias,
        o_norm=attention.o_norm.weight,
    )


def _bind_mla(attention: MlaAttention) -> MlaWeights:
    w_uk, w_uv = attention.up_projections()
    return MlaWeights(
        layer=attention,
        w_in=attention.in_proj.weight,
        q_a_norm=attention.q_a_layernorm.weight,
        kv_a_norm=attention.kv_a_layernorm.weight,
        w_q_b=attention.q_b_proj.weight,
        w_uk=w_uk,
        w_uv=w_uv,
    )


def _bind_dense(mlp: GatedMlp) -> DenseWeights:
    return DenseWeights(w_gate_up=mlp.gate_up.weight, w_down=mlp.down_proj.weight)


def _bind_moe(mlp: LatentMoe) -> MoeWeights:
    return MoeWeights(
        w_gate=mlp.gate.weight,
        correction_bias=mlp.gate.e_score_correction_bias,
        w_latent_down=mlp.latent_down_proj.weight,
        w1=mlp.experts.w1,
        w2=mlp.experts.w2,
        w3=mlp.experts.w3,
        expert_norm=mlp.routed_expert_norm.weight,
        w_latent_up=mlp.latent_up_proj.weight,
        shared=_bind_dense(mlp.shared_experts),
    )
