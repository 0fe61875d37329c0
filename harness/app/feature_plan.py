"""Which prompts the suite of served features asks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from eval_suites.feature_cases import FeaturePrompt
from eval_suites.feature_suite import feature_suite
from eval_suites.prompts import long_prompt
from eval_suites.suite import Suite
from eval_suites.token_level import TokenIds
from harness.model.evaluation import SuiteItem
from harness.model.manifest import ScopeSection

MAX_PROMPT_BYTES = 96
"""Of a short prompt: vLLM's CPU engine (0.32) dies of a seeded request whose prefill is split."""
LONG_PROMPT = 560
"""Tokens: several cache blocks, and as many prompts as the scope's batch are more than one step's budget."""
_LONG_STRIDE = 37
"""Tokens between the beginnings of two long prompts: each shares no whole block of its beginning with another."""


def plan_features(
    scope: ScopeSection,
    texts: Sequence[str],
    greedy: Sequence[SuiteItem],
    tokenize: Callable[[str], TokenIds],
    *,
    num_prompts: int,
    num_alone: int,
    num_tokens: int,
    seed: int,
    only: Collection[str] = (),
) -> Suite:
    """Short prompts of the greedy suite with the baseline's continuations, and long ones of their own.

    Those with the most different tokens in the continuation come first: an answer that repeats one token has no place
    for a stop, and leaves nothing to chance.

    Args:
        scope: What the change declares.
        texts: The greedy suite's prompts, in its order.
        greedy: The baseline's greedy answers, whose items are named `p3@c1`.
        tokenize: The served model's tokens of a text.
        num_prompts: How many short prompts are sent together, at most; 0 leaves every request out.
        num_alone: How many of them are also sent alone.
        num_tokens: Tokens of an answer.
        seed: Of the requests.
        only: Features that are asked; none: every one.
    """
    answers = {
        item.item.partition("@")[0]: item for item in greedy if item.concurrency == 1 and item.token_ids
    }
    known = [(text, answers[f"p{index}"]) for index, text in enumerate(texts) if f"p{index}" in answers]
    short = [pair for pair in known if len(pair[0].encode()) <= MAX_PROMPT_BYTES]
    chosen = sorted(short, key=lambda pair: -len(set(pair[1].token_ids)))[:num_prompts]
    prompts = tuple(
        FeaturePrompt(
            text=text,
            token_ids=tokenize(text),
            continuation=answer.token_ids,
            continuation_text=answer.text,
        )
        for text, answer in chosen
    )
    length = min(LONG_PROMPT, scope.max_context // 2)
    tokens = tokenize(long_prompt(8 * (length + scope.max_batch * _LONG_STRIDE), seed=seed))
    starts = [index * _LONG_STRIDE for index in range(scope.max_batch)]
    return feature_suite(
        prompts,
        [tokens[start : start + length] for start in starts] if num_prompts else (),
        max_batch=scope.max_batch,
        num_alone=num_alone,
        num_tokens=num_tokens,
        seed=seed,
        only=only,
    )
