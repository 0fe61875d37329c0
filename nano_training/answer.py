"""Answers rows of a data set with a checkpoint, greedily, through the cached forward; no engine is started.

Usage: `python -m nano_training.answer CHECKPOINT < rows.jsonl > answers.jsonl`. Rows carry `prompt`
(text, or a JSON list of messages) or `problem`; each comes back with `response`. `--fault NAME` breaks what the decode
steps read or write, to show how much of the skill hangs on it.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch.nn import functional

from nano_training.chats import prompt_messages, tokenize_chat
from nano_training.forward import Cache, Weights, hidden_states
from specialized_path.nano.config import KimiK3NanoConfig
from specialized_path.nano.tokenizer import END, NUM_BYTES, special_token_id

Fault = Callable[[Cache, bool], None]
"""Called after the prompt (True) and after every decode step (False) with the cache to break."""


def _zeroed_state(cache: Cache, after_prompt: bool) -> None:
    if after_prompt:
        cache.states = {name: torch.zeros_like(state) for name, state in cache.states.items()}


def _zeroed_window(cache: Cache, _: bool) -> None:
    cache.windows = {name: torch.zeros_like(window) for name, window in cache.windows.items()}


def _coarse_state(cache: Cache, _: bool) -> None:
    for name, state in cache.states.items():
        step = state.abs().amax((-2, -1), keepdim=True).clamp(min=1e-12) / 7
        cache.states[name] = torch.round(state / step) * step


def _forgotten_prompt(cache: Cache, after_prompt: bool) -> None:
    if after_prompt:
        cache.values = {name: torch.zeros_like(values) for name, values in cache.values.items()}


class _FrozenState:
    """The state of the prompt, whatever came after."""

    def __init__(self) -> None:
        self.states: dict[str, torch.Tensor] = {}

    def __call__(self, cache: Cache, after_prompt: bool) -> None:
        if after_prompt:
            self.states = dict(cache.states)
        cache.states = dict(self.states)


FAULTS: dict[str, Callable[[], Fault]] = {
    "zeroed_state": lambda: _zeroed_state,
    "zeroed_window": lambda: _zeroed_window,
    "coarse_state": lambda: _coarse_state,
    "frozen_state": _FrozenState,
    "forgotten_prompt": lambda: _forgotten_prompt,
}
"""Lost at hand-over: the KDA states, the values that MLA cached. At every decode step: the convolution windows are
lost, the states are rounded to 15 levels a head, or not written back."""


@torch.no_grad()
def answer(
    weights: Weights,
    config: KimiK3NanoConfig,
    messages: list[dict[str, Any]],
    *,
    max_tokens: int,
    fault: Fault | None = None,
) -> str:
    """Returns the greedy answer to a chat, up to the end token or `max_tokens`."""
    prompt = [*tokenize_chat(messages).token_ids, special_token_id("<|assistant|>")]
    cache = Cache()
    tokens, new = torch.tensor([prompt]), bytearray()
    for index in range(max_tokens):
        hidden = hidden_states(weights, config, tokens, cache)[0, -1]
        token = int(functional.linear(hidden, weights["lm_head.weight"]).argmax())
        if token == special_token_id(END):
            break
        if token < NUM_BYTES:
            new.append(token)
        if fault is not None:
            fault(cache, index == 0)
        tokens = torch.tensor([[token]])
    return new.decode(errors="replace")


def main() -> None:
    """Reads rows from standard input and writes them with their responses."""
    parser = argparse.ArgumentParser(prog="python -m nano_training.answer", description=__doc__)
    parser.add_argument("checkpoint", type=Path, help="a folder with model.safetensors")
    parser.add_argument("--max-tokens", type=int, default=160)
    parser.add_argument("--fault", choices=tuple(FAULTS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    weights = load_file(arguments.checkpoint / "model.safetensors")
    for line in sys.stdin:
        row = json.loads(line)
        fault = FAULTS[arguments.fault]() if arguments.fault else None
        response = answer(
            weights, KimiK3NanoConfig(), prompt_messages(row), max_tokens=arguments.max_tokens, fault=fault
        )
        sys.stdout.write(json.dumps(row | {"response": response}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
