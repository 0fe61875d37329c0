"""Plain PyTorch operators of Kimi K3 decoding, one file a contract: the oracle of every faster form."""

from specialized_path.reference.attn_res import add_to_prefix, mix_sources
from specialized_path.reference.mxfp4 import Mxfp4Weight, dequantize_mxfp4
from specialized_path.reference.mxfp8 import Mxfp8Activation, dequantize_mxfp8, quantize_mxfp8
from specialized_path.reference.norm import rms_norm
from specialized_path.reference.oc01_embedding import embedding
from specialized_path.reference.oc02_attn_res_before_attention import attn_res_before_attention
from specialized_path.reference.oc03_projection import KdaProjection, kda_input_projection, linear
from specialized_path.reference.oc04_short_conv import causal_conv, short_conv
from specialized_path.reference.oc05_kda_gates import kda_decay, kda_gates
from specialized_path.reference.oc06_kda_step import delta_rule_step, gated_rms_norm, kda_step
from specialized_path.reference.oc07_kda_verify import kda_recurrence_verify, kda_verify, short_conv_verify
from specialized_path.reference.oc08_mla_query import (
    MlaQuery,
    absorbed_query,
    mla_cache_write,
    mla_query,
    split_kv_b,
)
from specialized_path.reference.oc09_mla_attention import mla_attention, mla_attention_visible, visible_lens
from specialized_path.reference.oc10_mla_value import mla_value_gate
from specialized_path.reference.oc11_dcp_merge import dcp_local_lens, dcp_merge
from specialized_path.reference.oc12_output_projection import output_projection_partial, rank_order_sum
from specialized_path.reference.oc13_attn_res_after_attention import attn_res_after_attention
from specialized_path.reference.oc14_router import router, router_logits, select_experts
from specialized_path.reference.oc15_latent_down import latent_down
from specialized_path.reference.oc16_routed_experts import routed_experts
from specialized_path.reference.oc17_latent_combine import combine_experts, latent_norm
from specialized_path.reference.oc18_shared_experts import shared_experts_partial
from specialized_path.reference.oc19_latent_up import latent_up_output
from specialized_path.reference.oc20_dense_mlp import dense_mlp_partial
from specialized_path.reference.oc21_output import attn_res_output, greedy_token, output_logits
from specialized_path.reference.oc22_dspark import (
    DsparkAttentionWeights,
    DsparkLayer,
    DsparkMlpWeights,
    DsparkPositions,
    DsparkRope,
    draft_confidence,
    dspark_attention_partial,
    dspark_block,
    dspark_cache_row,
    dspark_context,
    markov_draft,
    silu_mlp_partial,
)
from specialized_path.reference.oc23_rejection_sampling import (
    VerifyResult,
    rejection_sample,
    rejection_sample_block,
    rejection_sample_greedy,
    rejection_sample_synthetic,
    synthetic_acceptance_rates,
)
from specialized_path.reference.rope import rotate_interleaved, yarn_inv_freq, yarn_mscale
from specialized_path.reference.rounding import quantize_e4m3, round_to
from specialized_path.reference.situ import gated_mlp_partial, situ

__all__ = [
    "DsparkAttentionWeights",
    "DsparkLayer",
    "DsparkMlpWeights",
    "DsparkPositions",
    "DsparkRope",
    "KdaProjection",
    "MlaQuery",
    "Mxfp4Weight",
    "Mxfp8Activation",
    "VerifyResult",
    "absorbed_query",
    "add_to_prefix",
    "attn_res_after_attention",
    "attn_res_before_attention",
    "attn_res_output",
    "causal_conv",
    "combine_experts",
    "dcp_local_lens",
    "dcp_merge",
    "delta_rule_step",
    "dense_mlp_partial",
    "dequantize_mxfp4",
    "dequantize_mxfp8",
    "draft_confidence",
    "dspark_attention_partial",
    "dspark_block",
    "dspark_cache_row",
    "dspark_context",
    "embedding",
    "gated_mlp_partial",
    "gated_rms_norm",
    "greedy_token",
    "kda_decay",
    "kda_gates",
    "kda_input_projection",
    "kda_recurrence_verify",
    "kda_step",
    "kda_verify",
    "latent_down",
    "latent_norm",
    "latent_up_output",
    "linear",
    "markov_draft",
    "mix_sources",
    "mla_attention",
    "mla_attention_visible",
    "mla_cache_write",
    "mla_query",
    "mla_value_gate",
    "output_logits",
    "output_projection_partial",
    "quantize_e4m3",
    "quantize_mxfp8",
    "rank_order_sum",
    "rejection_sample",
    "rejection_sample_block",
    "rejection_sample_greedy",
    "rejection_sample_synthetic",
    "rms_norm",
    "rotate_interleaved",
    "round_to",
    "routed_experts",
    "router",
    "router_logits",
    "select_experts",
    "shared_experts_partial",
    "short_conv",
    "short_conv_verify",
    "silu_mlp_partial",
    "situ",
    "split_kv_b",
    "synthetic_acceptance_rates",
    "visible_lens",
    "yarn_inv_freq",
    "yarn_mscale",
]
