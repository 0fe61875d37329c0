"""Writes a complete, servable checkpoint of the miniature Kimi K3, by default with seeded weights.

Usage: `python -m specialized_path.nano.checkpoint OUT_DIR [--seed N]`. The same seed gives the same bytes.
"""

import argparse
import json
from inspect import signature
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from specialized_path.nano.config import KimiK3NanoConfig
from specialized_path.nano.tokenizer import (
    BOS,
    END,
    EOS,
    NUM_BYTES,
    PAD,
    SPECIAL_TOKENS,
    special_token_id,
    tokenizer_config,
    tokenizer_json,
)
from specialized_path.nano.weights import seeded_weights

ARCHITECTURE = "KimiK3NanoForCausalLM"


def write_checkpoint(
    out_dir: Path,
    seed: int = 0,
    config: KimiK3NanoConfig | None = None,
    weights: dict[str, Tensor] | None = None,
) -> Path:
    """Writes config, weights, tokenizer and generation defaults into `out_dir` and returns it.

    Args:
        out_dir: Created when missing; existing files of the same names are replaced.
        seed: Seed of the weights, where none are given.
        config: Other sizes than the default ones; `vocab_size` must match the tokenizer.
        weights: Every tensor of the model in these sizes, by name.
    """
    config = config or KimiK3NanoConfig()
    vocab_size = NUM_BYTES + len(SPECIAL_TOKENS)
    if config.vocab_size != vocab_size:
        raise ValueError(f"vocab_size: got {config.vocab_size}, expected {vocab_size}, the tokenizer's")
    out_dir.mkdir(parents=True, exist_ok=True)
    ids = {
        "bos_token_id": special_token_id(BOS),
        "eos_token_id": special_token_id(EOS),
        "pad_token_id": special_token_id(PAD),
    }
    stops = [special_token_id(EOS), special_token_id(END)]
    description = {"architectures": [ARCHITECTURE], "dtype": "float32", "model_type": config.model_type}
    _write_json(out_dir / "config.json", description | config_sizes(config) | ids)
    _write_json(out_dir / "generation_config.json", ids | {"eos_token_id": stops})
    _write_json(out_dir / "tokenizer.json", tokenizer_json())
    _write_json(out_dir / "tokenizer_config.json", tokenizer_config(config.max_position_embeddings))
    tensors = save(weights or seeded_weights(config, seed), metadata={"format": "pt"})
    (out_dir / "model.safetensors").write_bytes(tensors)
    return out_dir


def config_sizes(config: KimiK3NanoConfig) -> dict[str, Any]:
    """Returns every size of the model by its configuration name, defaults included."""
    names = [name for name in signature(KimiK3NanoConfig).parameters if name != "kwargs"]
    return {name: getattr(config, name) for name in names}


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def main() -> None:
    """Parses the command line and writes one checkpoint."""
    parser = argparse.ArgumentParser(prog="python -m specialized_path.nano.checkpoint", description=__doc__)
    parser.add_argument("out_dir", type=Path, help="directory to write into")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights (default: 0)")
    arguments = parser.parse_args()
    print(write_checkpoint(arguments.out_dir, arguments.seed))


if __name__ == "__main__":
    main()
