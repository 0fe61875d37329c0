"""The configuration of a rank slice: the Kimi K3 text model as one tensor-parallel rank holds it, with few layers."""

import json
from pathlib import Path
from typing import Any

KDA, MLA = "kda", "mla"
_FULL = {"heads": 96, "moe_intermediate_size": 3072, "intermediate_size": 33792, "vocab_size": 163840}


def layer_kind(index: int) -> str:
    """Every fourth layer is MLA, as in the first 92 layers of the full model."""
    return MLA if index % 4 == 3 else KDA


def slice_config(tp: int, num_layers: int, max_context: int) -> dict[str, Any]:
    """The `config.json` of rank slices of `tp` (8 or 16) ranks: layer 0 is dense, the others have all 896 experts."""
    heads, kinds = _FULL["heads"] // tp, [layer_kind(index) for index in range(num_layers)]
    return {
        "architectures": ["KimiLinearForCausalLM"],
        "model_type": "kimi_linear",
        "torch_dtype": "bfloat16",
        "vocab_size": _FULL["vocab_size"] // tp,
        "hidden_size": 7168,
        "num_hidden_layers": num_layers,
        "num_attention_heads": heads,
        "head_dim": 128,
        "num_key_value_heads": heads,
        "intermediate_size": _FULL["intermediate_size"] // tp,
        "moe_intermediate_size": _FULL["moe_intermediate_size"] // tp,
        "num_experts": 896,
        "num_experts_per_token": 16,
        "num_shared_experts": 2,
        "routed_expert_hidden_size": 3584,
        "latent_moe_use_norm": True,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "hidden_act": "situ",
        "activation_situ_beta": 4.0,
        "activation_situ_linear_beta": 25.0,
        "rms_norm_eps": 1e-5,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "mla_use_nope": True,
        "mla_use_output_gate": True,
        "attn_res_block_size": 12,
        "max_position_embeddings": max_context,
        "linear_attn_config": {
            "num_heads": heads,
            "head_dim": 128,
            "short_conv_kernel_size": 4,
            "gate_lower_bound": -5.0,
            "use_full_rank_gate": True,
            "kda_layers": [index + 1 for index, kind in enumerate(kinds) if kind == KDA],
            "full_attn_layers": [index + 1 for index, kind in enumerate(kinds) if kind == MLA],
        },
        "quantization_config": _mxfp4_experts(),
    }


def _mxfp4_experts() -> dict[str, Any]:
    """Routed experts in MXFP4, all else in BF16."""
    weights = {
        "num_bits": 4,
        "type": "float",
        "strategy": "group",
        "group_size": 32,
        "symmetric": True,
        "dynamic": False,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": "mxfp4-pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": weights, "format": "mxfp4-pack-quantized"}
        },
        "ignore": [
            "lm_head",
            "re:.*self_attn.*",
            "re:.*shared_experts.*",
            "re:.*routed_expert_.*_proj",
            "re:.*\\.gate$",
            "re:.*\\.mlp\\.(gate|up|gate_up|down)_proj$",
        ],
    }


def write_slice(folder: Path, tp: int, num_layers: int, max_context: int) -> Path:
    """Writes the configuration to `folder`, for a load format that draws the weights; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(
        json.dumps(slice_config(tp, num_layers, max_context), indent=2) + "\n"
    )
    return folder
