"""Served features that users rely on, by name."""

from __future__ import annotations

from typing import Literal, get_args

Feature = Literal[
    "temperature_sampling",
    "structured_output",
    "full_context",
    "top_k",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "several_choices",
    "logprobs",
    "prompt_logprobs",
    "stop_strings",
    "stop_token_ids",
    "streaming",
    "regex",
    "grammar",
    "tool_calls",
    "chat_template",
    "chunked_prefill",
    "prefix_cache",
    "abort",
]
FEATURES: tuple[Feature, ...] = get_args(Feature)
"""Features that the harness can exercise; a manifest's default is all of them."""
