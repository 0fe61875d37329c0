"""Served features that users rely on: seeded sampling, structured output, the whole declared context."""

from __future__ import annotations

import json
from collections.abc import Sequence

from eval_suites.suite import Suite, SuitePart
from eval_suites.token_level import TOP_LOGPROBS, TokenIds
from harness.model.completion import CompletionRequest

SCHEMAS: tuple[dict[str, object], ...] = (
    {
        "type": "object",
        "properties": {
            "colour": {"enum": ["red", "green", "blue", "slate"]},
            "in_stock": {"type": "boolean"},
            "size": {"enum": ["s", "m", "l", "xl"]},
        },
        "required": ["colour", "in_stock", "size"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {
            "verdict": {"enum": ["admit", "reject", "undecided"]},
            "tiers": {
                "type": "array",
                "items": {"enum": ["static", "cpu", "gpu"]},
                "minItems": 2,
                "maxItems": 2,
            },
        },
        "required": ["verdict", "tiers"],
        "additionalProperties": False,
    },
    {
        "type": "array",
        "items": {"type": "boolean"},
        "minItems": 4,
        "maxItems": 4,
    },
)
"""Schemas that bound the length of every answer, so that a model without a sense of an end still finishes."""


def sampling_suite(
    prompts: Sequence[TokenIds],
    *,
    seeds: Sequence[int],
    temperatures: Sequence[float],
    num_tokens: int,
    concurrency: int,
    seed: int,
) -> Suite:
    """Each prompt sampled with each seed and temperature, twice."""
    requests = tuple(
        CompletionRequest(
            item=f"p{index}/t{temperature}/s{request_seed}/r{repeat}",
            prompt_token_ids=prompt,
            max_tokens=num_tokens,
            temperature=temperature,
            seed=request_seed,
            logprobs=TOP_LOGPROBS,
            ignore_eos=True,
        )
        for repeat in (0, 1)
        for temperature in temperatures
        for index, prompt in enumerate(prompts)
        for request_seed in seeds
    )
    return Suite(name="sampling", parts=(SuitePart(concurrency=concurrency, requests=requests),), seed=seed)


def structured_suite(
    prompts: Sequence[TokenIds], *, concurrencies: Sequence[int], max_tokens: int, seed: int
) -> Suite:
    """Every prompt must answer in one of the schemas, at every concurrency."""
    parts = tuple(
        SuitePart(
            concurrency=concurrency,
            requests=tuple(
                CompletionRequest(
                    item=f"p{index}@c{concurrency}",
                    prompt_token_ids=prompt,
                    max_tokens=max_tokens,
                    temperature=0.0,
                    json_schema=json.dumps(SCHEMAS[index % len(SCHEMAS)], sort_keys=True),
                )
                for index, prompt in enumerate(prompts)
            ),
        )
        for concurrency in concurrencies
    )
    return Suite(name="structured", parts=parts, seed=seed)


def full_context_suite(
    text_token_ids: TokenIds,
    *,
    max_context: int,
    num_tokens: int,
    num_prompts: int,
    seed: int,
    continuations: Sequence[TokenIds] = (),
) -> Suite:
    """Prompts that, with `num_tokens` of output, end exactly at `max_context`.

    Args:
        text_token_ids: At least `max_context` plus `num_prompts` tokens of text; each prompt starts one later.
        max_context: Declared context, prompt and output together, in tokens.
        num_tokens: Tokens to decode at the end.
        num_prompts: How many prompts.
        seed: Recorded with the evidence.
        continuations: The baseline's own tokens to force; empty lets the arm run greedily (for the baseline).
    """
    length = max_context - num_tokens
    if len(text_token_ids) < length + num_prompts:
        raise ValueError(f"the text has {len(text_token_ids)} tokens, {length + num_prompts} are needed")
    requests = tuple(
        CompletionRequest(
            item=f"p{index}@c1",
            prompt_token_ids=text_token_ids[index : index + length],
            max_tokens=num_tokens,
            force_token_ids=continuations[index] if continuations else (),
            logprobs=TOP_LOGPROBS,
            ignore_eos=True,
        )
        for index in range(num_prompts)
    )
    return Suite(name="full_context", parts=(SuitePart(concurrency=1, requests=requests),), seed=seed)
