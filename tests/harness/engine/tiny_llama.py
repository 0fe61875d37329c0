"""Writes a two-layer Llama checkpoint with a byte tokenizer: `tiny_llama.py FOLDER`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

HIDDEN, INNER, LAYERS, VOCAB, EOS = 64, 128, 2, 320, 256


def weights() -> dict[str, np.ndarray]:
    """Seeded weights, wide enough that tokens do not collapse to one."""
    draw = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (draw.standard_normal((rows, columns)) * 0.2).astype(np.float32)

    found = {"model.embed_tokens.weight": matrix(VOCAB, HIDDEN), "lm_head.weight": matrix(VOCAB, HIDDEN)}
    found["model.norm.weight"] = np.ones(HIDDEN, np.float32)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        found |= {f"{prefix}self_attn.{n}_proj.weight": matrix(HIDDEN, HIDDEN) for n in "qkvo"}
        found |= {f"{prefix}mlp.{n}_proj.weight": matrix(INNER, HIDDEN) for n in ("gate", "up")}
        found[f"{prefix}mlp.down_proj.weight"] = matrix(HIDDEN, INNER)
        found |= {
            f"{prefix}{n}_layernorm.weight": np.ones(HIDDEN, np.float32) for n in ("input", "post_attention")
        }
    return found


def write_checkpoint(folder: Path) -> None:
    """Config, weights and tokenizer, as vLLM reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights(), folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "eos_token_id": EOS,
        "bos_token_id": None,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate([*alphabet, "<eos>"])}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>"})
    )


if __name__ == "__main__":
    write_checkpoint(Path(sys.argv[1]))
