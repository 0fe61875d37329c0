"""Makes the routing of trained weights depend on each token's tag alone, so that no rounding error flips an expert.

Training leaves the tags alone, but it may learn to mix so little of them into what a router reads that rounding decides
between two experts. Here such a mixture is made more even, and the router keeps nothing but the tags, scaled to the
largest share of them that it meets. What that costs depends on the weights: measure it, or train on afterwards.

Usage: `python -m nano_training.routing WEIGHTS OUT < chats.jsonl`.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from nano_training import forward
from nano_training.chats import read_chats
from specialized_path.nano.config import KimiK3NanoConfig
from specialized_path.nano.weights import FAVOURED_EXPERT_BIAS, ROUTER_TAG_GAIN

_EVENNESS = (1.0, 0.7, 0.5, 0.25, 0.1, 0.0)
"""What the query of a mixture is multiplied with, until the router reads enough of every token's tag."""
_LEAST_SHARE = 1e-4
"""Of the largest share of a tag: with less, two experts' scores may lie within single precision of each other."""


@torch.no_grad()
def route_by_tags(
    weights: dict[str, Tensor], config: KimiK3NanoConfig, texts: list[list[int]]
) -> dict[str, dict[str, float]]:
    """Rewrites every router of `weights` in place, and the mixture that it reads from, first layers first.

    Args:
        weights: The checkpoint's tensors by name.
        config: The sizes they have.
        texts: Token ids of some sequences, which show how large the tags are where a router reads them.

    Returns:
        By the name of a router's layer what its mixture's query was multiplied with, and the gain of its tags.
    """
    tags = slice(1, 1 + config.num_experts)
    found = {}
    for layer in range(config.num_hidden_layers):
        if config.is_dense_layer(layer):
            continue
        name = f"model.layers.{layer}.mlp"
        query = weights[f"{name}_res_proj.weight"]
        learned = query.clone()
        for factor in _EVENNESS:
            query.copy_(factor * learned)
            shares = torch.cat([_shares(weights, config, name, text) for text in texts])
            if shares.min() >= _LEAST_SHARE * shares.max():
                break
        gain = ROUTER_TAG_GAIN / float(shares.max())
        weights[f"{name}.gate.weight"].zero_()[:, tags] = gain * torch.eye(config.num_experts)
        weights[f"{name}.gate.e_score_correction_bias"].zero_()[0] = FAVOURED_EXPERT_BIAS
        found[name] = {"mixture": factor, "gain": gain}
    return found


def _shares(weights: dict[str, Tensor], config: KimiK3NanoConfig, name: str, text: list[int]) -> Tensor:
    """The factor between each token's tag and what the router of layer `name` reads of it."""
    tags = weights["model.embed_tokens.weight"][text, 1 : 1 + config.num_experts]
    inputs: dict[str, Tensor] = {}
    forward.hidden_states(weights, config, torch.tensor([text]), mlp_inputs=inputs)
    read = inputs[name][0, :, 1 : 1 + config.num_experts]
    return (read * tags).sum(-1) / tags.square().sum(-1)


def main() -> None:
    """Reads chats from standard input and rewrites the weights of a file into another one."""
    parser = argparse.ArgumentParser(prog="python -m nano_training.routing", description=__doc__)
    parser.add_argument("weights", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    weights = load_file(arguments.weights)
    texts = [chat.token_ids for chat in read_chats(sys.stdin)]
    print(json.dumps(route_by_tags(weights, KimiK3NanoConfig(), texts)))
    save_file(weights, arguments.out, metadata={"format": "pt"})


if __name__ == "__main__":
    main()
