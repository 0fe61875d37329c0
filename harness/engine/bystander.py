"""A model that no change is about: served to see that a change leaves other models alone."""

from __future__ import annotations

import json
from pathlib import Path

VOCAB_SIZE = 320


def write_bystander(folder: Path) -> Path:
    """Writes the configuration of a two-layer Llama; served with dummy weights and token ids it needs nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


BYSTANDER_ARGS = ("--load-format", "dummy", "--skip-tokenizer-init", "--max-model-len", "512")
"""Arguments of vLLM's engine that serve it."""
