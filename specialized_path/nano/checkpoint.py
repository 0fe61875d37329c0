"""Writes a complete, servable checkpoint of the miniature Kimi K3.

Usage: `python -m specialized_path.nano.checkpoint OUT_DIR [--weights trained|seeded] [--seed N]`. The trained weights
answer retrieval and arithmetic problems (docs/nano.md); the seeded ones continue any text with varied nonsense. The
same arguments give the same bytes.
"""

import argparse
import json
from inspect import signature
from pathlib import Path
from typing import Any, Literal, get_args

from safetensors.torch import load_file, save

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
TRAINED_WEIGHTS = Path(__file__).with_name("trained") / "model.safetensors"

WeightKind = Literal["trained", "seeded"]


def write_checkpoint(
    out_dir: Path, seed: int = 0, config: KimiK3NanoConfig | None = None, weights: WeightKind = "seeded"
) -> Path:
    """Writes config, weights, tokenizer and generation defaults into `out_dir` and returns it.

    Args:
        out_dir: Created when missing; existing files of the same names are replaced.
        seed: Seed of the seeded weights.
        config: Other sizes than the default ones, for seeded weights; `vocab_size` must match the tokenizer.
        weights: The trained ones, which exist in the default sizes only, or seeded ones.

    Raises:
        ValueError: The sizes fit neither the tokenizer nor the trained weights.
    """
    config = config or KimiK3NanoConfig()
    vocab_size = NUM_BYTES + len(SPECIAL_TOKENS)
    if config.vocab_size != vocab_size:
        raise ValueError(f"vocab_size: got {config.vocab_size}, expected {vocab_size}, the tokenizer's")
    if weights == "trained" and config_sizes(config) != config_sizes(KimiK3NanoConfig()):
        raise ValueError("config: got other sizes than the default ones, which the trained weights have")
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
    tensors = load_file(TRAINED_WEIGHTS) if weights == "trained" else seeded_weights(config, seed)
    (out_dir / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))
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
    parser.add_argument(
        "--weights", choices=get_args(WeightKind), default="trained", help="(default: trained)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the seeded weights (default: 0)")
    arguments = parser.parse_args()
    print(write_checkpoint(arguments.out_dir, arguments.seed, weights=arguments.weights))


if __name__ == "__main__":
    main()
