"""The suite of served features: short prompts with every feature mixed, and long prompts that share a prefill."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

from eval_suites.feature_cases import CASES, NUM_CHOICES, PLAIN, FeaturePrompt, requests_of
from eval_suites.suite import Suite, SuitePart
from eval_suites.token_level import TOP_LOGPROBS, TokenIds
from harness.model.completion import CompletionRequest

SUITE = "features"
_LONG = frozenset({"chunked_prefill", "prefix_cache"})


def feature_suite(
    prompts: Sequence[FeaturePrompt],
    long_prompts: Sequence[TokenIds],
    *,
    max_batch: int,
    num_alone: int,
    num_tokens: int,
    seed: int,
    only: Collection[str] = (),
) -> Suite:
    """The long prompts, then every feature with every prompt together, and with the first few alone.

    Args:
        prompts: Short prompts.
        long_prompts: Prompts that, sent together, are more than the engine computes in one step.
        max_batch: The largest declared batch; so many requests are together.
        num_alone: How many of the prompts are also sent alone.
        num_tokens: Tokens of an answer, where its feature says nothing else.
        seed: Of the requests' own seeds and of their order.
        only: Features that are asked, with what they are held against; none: every one.
    """
    together = max(2, max_batch)
    is_long = not only or not _LONG.isdisjoint(only)
    # First, so that what a long request leaves behind shows in the short ones.
    parts = _long_parts(long_prompts if is_long else (), together, num_alone)
    short = [feature for feature in CASES if not only or feature in only]
    for level in (together, 1):
        chosen = prompts if level > 1 else prompts[:num_alone]
        requests = [
            request
            for feature in (PLAIN, *short)
            for index, prompt in enumerate(chosen)
            for request in requests_of(feature, index, prompt, seed=seed, num_tokens=num_tokens, level=level)
        ]
        several = tuple(r for r in requests if r.item.startswith("several_choices/"))
        others = [r for r in requests if r not in several]
        # Neighbours in a batch ask for different things, so that a row mix-up shows.
        random.Random(seed).shuffle(others)
        parts += [
            SuitePart(concurrency=level, requests=tuple(others)),
            SuitePart(concurrency=max(2, together // NUM_CHOICES) if level > 1 else 1, requests=several),
        ]
    return Suite(name=SUITE, parts=tuple(parts), seed=seed)


def _long_parts(prompts: Sequence[TokenIds], together: int, num_alone: int) -> list[SuitePart]:
    """Long prompts together, again together, and again alone: chunks first, cached prefixes after."""

    def part(name: str, level: int, count: int) -> SuitePart:
        return SuitePart(
            concurrency=level,
            requests=tuple(
                CompletionRequest(
                    item=f"{name}/p{index}@c{level}",
                    prompt_token_ids=prompt,
                    max_tokens=8,
                    logprobs=TOP_LOGPROBS,
                    ignore_eos=True,
                )
                for index, prompt in enumerate(prompts[:count])
            ),
        )

    return [
        part("chunked_prefill/first", together, len(prompts)),
        part("prefix_cache/again", together, len(prompts)),
        part("prefix_cache/again", 1, num_alone),
    ]
