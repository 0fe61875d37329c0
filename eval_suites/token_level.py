"""Greedy continuations, and the same continuations forced token by token through the decode path.

Forcing happens in the sampler, one step at a time, since a prompt that already holds the continuation would be
computed by the prefill path and say nothing about decode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

from eval_suites.suite import Suite, SuitePart
from harness.model.completion import CompletionRequest
from harness.model.evaluation import SuiteItem

TOP_LOGPROBS = 20
NUM_LENGTHS = 8
"""Different lengths of the greedy continuations."""
TOKENS_TOGETHER = 96
"""At a concurrency: some more than the 64 at a batch that policies ask for by default."""

TokenIds = tuple[int, ...]


def greedy_suite(
    prompts: Sequence[TokenIds], *, concurrencies: Sequence[int], num_tokens: int, seed: int
) -> Suite:
    """Free-running greedy continuations, every prompt at every concurrency.

    Lengths run from `num_tokens` down in steps of one, so that requests leave a full batch one by one and the
    smaller batches occur as well.
    """
    parts = tuple(
        SuitePart(
            concurrency=concurrency,
            requests=tuple(
                CompletionRequest(
                    item=f"p{index}@c{concurrency}",
                    prompt_token_ids=prompt,
                    max_tokens=max(1, num_tokens - index % NUM_LENGTHS),
                    logprobs=TOP_LOGPROBS,
                    ignore_eos=True,
                )
                for index, prompt in enumerate(prompts)
            ),
        )
        for concurrency in concurrencies
    )
    return Suite(name="greedy", parts=parts, seed=seed)


def continuations_of(greedy_items: Sequence[SuiteItem]) -> dict[int, TokenIds]:
    """The baseline's own continuation of each prompt index, from its greedy answers at the lowest concurrency."""
    found: dict[int, TokenIds] = {}
    for item in greedy_items:
        index = int(item.item.split("@")[0].removeprefix("p"))
        if item.token_ids and index not in found:
            found[index] = item.token_ids
    return found


def forced_requests(
    prompts: Sequence[TokenIds], continuations: Mapping[int, TokenIds], *, concurrency: int
) -> tuple[CompletionRequest, ...]:
    """Requests that walk the given continuations, logprobs reported at every step."""
    return tuple(
        CompletionRequest(
            item=f"p{index}@c{concurrency}",
            prompt_token_ids=prompts[index],
            max_tokens=len(tokens),
            force_token_ids=tokens,
            logprobs=TOP_LOGPROBS,
            ignore_eos=True,
        )
        for index, tokens in sorted(continuations.items())
        if index < len(prompts)
    )


def teacher_forced_suite(
    prompts: Sequence[TokenIds],
    continuations: Mapping[int, TokenIds],
    *,
    concurrencies: Sequence[int],
    seed: int,
) -> Suite:
    """Every prompt's continuation forced at every concurrency.

    At each, so many full batches start together that `TOKENS_TOGETHER` tokens come of steps of that size on any
    machine, if there are prompts enough; the others join and leave as they come.
    """
    parts = []
    for concurrency in concurrencies:
        requests = forced_requests(prompts, continuations, concurrency=concurrency)
        steps = min((r.max_tokens - 1 for r in requests), default=0)
        num_batches = ceil(TOKENS_TOGETHER / (concurrency * max(1, steps)))
        first, others = requests[: num_batches * concurrency], requests[num_batches * concurrency :]
        parts.append(SuitePart(concurrency=concurrency, requests=first, together=concurrency > 1))
        parts.append(SuitePart(concurrency=concurrency, requests=others))
    return Suite(name="teacher_forced", parts=tuple(part for part in parts if part.requests), seed=seed)
