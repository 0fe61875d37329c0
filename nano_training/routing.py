"""Makes the routing of trained weights depend on each token's tag alone, so that no rounding error flips an expert.

Training leaves the tags alone, but it may learn to mix so little of them into a router's input that the router's small
random rows decide, by differences that two correct implementations need not agree on. Here the router keeps nothing
but the tags, scaled to the largest share of them that it meets. Train on afterwards: experts have to get used to it.

Usage: `python -m nano_training.routing RUN_DIR < chats.jsonl` rewrites the state of a stopped run.
"""

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor

from nano_training import forward
from nano_training.chats import read_chats
from specialized_path.nano.config import KimiK3NanoConfig
from specialized_path.nano.weights import FAVOURED_EXPERT_BIAS, ROUTER_TAG_GAIN


@torch.no_grad()
def route_by_tags(
    weights: dict[str, Tensor], config: KimiK3NanoConfig, texts: list[list[int]]
) -> dict[str, float]:
    """Rewrites every router of `weights` in place, first layers first.

    Args:
        weights: The checkpoint's tensors by name.
        config: The sizes they have.
        texts: Token ids of some sequences, which show how large the tags are where a router reads them.

    Returns:
        The gain of each router's tags, by the name of its layer.
    """
    tags = slice(1, 1 + config.num_experts)
    gains = {}
    for layer in range(config.num_hidden_layers):
        if config.is_dense_layer(layer):
            continue
        name = f"model.layers.{layer}.mlp"
        largest = max(_largest_share(weights, config, name, text) for text in texts)
        gains[name] = ROUTER_TAG_GAIN / largest
        weights[f"{name}.gate.weight"].zero_()[:, tags] = gains[name] * torch.eye(config.num_experts)
        weights[f"{name}.gate.e_score_correction_bias"].zero_()[0] = FAVOURED_EXPERT_BIAS
    return gains


def _largest_share(weights: dict[str, Tensor], config: KimiK3NanoConfig, name: str, text: list[int]) -> float:
    """The largest factor between a token's tag and what the router of layer `name` reads of it."""
    tags = weights["model.embed_tokens.weight"][text, 1 : 1 + config.num_experts]
    inputs: dict[str, Tensor] = {}
    forward.hidden_states(weights, config, torch.tensor([text]), mlp_inputs=inputs)
    read = inputs[name][0, :, 1 : 1 + config.num_experts]
    return float(((read * tags).sum(-1) / tags.square().sum(-1)).max())


def main() -> None:
    """Reads chats from standard input and rewrites `state.pt` of a run."""
    parser = argparse.ArgumentParser(prog="python -m nano_training.routing", description=__doc__)
    parser.add_argument("run_dir", type=Path)
    path = parser.parse_args().run_dir / "state.pt"
    torch.set_num_threads(1)
    state = torch.load(path, weights_only=True)
    texts = [chat.token_ids for chat in read_chats(sys.stdin)]
    print(route_by_tags(state["weights"], KimiK3NanoConfig(), texts))
    torch.save(state, path)


if __name__ == "__main__":
    main()
