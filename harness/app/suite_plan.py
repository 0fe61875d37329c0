"""Which suites the cpu tier puts its arms through, and how much of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eval_suites.features import full_context_suite, sampling_suite, structured_suite
from eval_suites.prompts import long_prompt, select_prompts
from eval_suites.suite import Suite
from eval_suites.token_level import TokenIds, continuations_of, greedy_suite, teacher_forced_suite
from harness.model.evaluation import SuiteItem
from harness.model.manifest import Manifest

SEED = 20_261
"""Seed of prompts and checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuSizes:
    """How much is asked of each arm; the defaults decide every required check of the cpu tier."""

    num_greedy_prompts: int = 64
    num_forced_prompts: int = 16
    num_tokens: int = 24
    num_sampling_prompts: int = 22
    num_sampling_tokens: int = 10
    sampling_seeds: tuple[int, ...] = (1, 2, 3, 4)
    sampling_temperatures: tuple[float, ...] = (0.3, 1.0)
    num_structured_prompts: int = 12
    num_full_context_prompts: int = 3
    timing_pairs: int = 8
    timing_tokens: int = 64


class SuiteBuilder:
    """Builds the suites for one manifest; prompts are chosen by seed and tokenised by the served model."""

    def __init__(self, manifest: Manifest, sizes: CpuSizes, tokenize: Callable[[str], TokenIds]) -> None:
        self._manifest = manifest
        self._sizes = sizes
        self._tokenize = tokenize
        self._max_batch = manifest.scope.max_batch
        self._prompts = self._select(sizes.num_greedy_prompts, 0)

    def _select(self, count: int, offset: int, max_bytes: int = 160) -> tuple[TokenIds, ...]:
        texts = select_prompts(count, seed=SEED + offset, max_bytes=max_bytes)
        return tuple(self._tokenize(text) for text in texts)

    def greedy(self) -> Suite:
        """Greedy at concurrency 1 and at the scope's largest batch."""
        return greedy_suite(
            self._prompts, concurrencies=(1, self._max_batch), num_tokens=self._sizes.num_tokens, seed=SEED
        )

    def teacher_forced(self, greedy_items: Sequence[SuiteItem]) -> Suite:
        """The baseline's continuations, forced at concurrency 1, 2 and the largest batch."""
        concurrencies = sorted({1, min(2, self._max_batch), self._max_batch})
        prompts = self._prompts[: self._sizes.num_forced_prompts]
        return teacher_forced_suite(
            prompts, continuations_of(greedy_items), concurrencies=concurrencies, seed=SEED
        )

    def sampling(self) -> Suite:
        """Seeded sampling at a low and a plain temperature.

        Prompts stay within one block of the prefix cache, since vLLM's CPU engine (0.32) dies of a seeded request
        whose prefill is split ("CPU Generator does not use offset").
        """
        return sampling_suite(
            self._select(self._sizes.num_sampling_prompts, 1, max_bytes=96),
            seeds=self._sizes.sampling_seeds,
            temperatures=self._sizes.sampling_temperatures,
            num_tokens=self._sizes.num_sampling_tokens,
            concurrency=min(4, self._max_batch),
            seed=SEED + 1,
        )

    def structured(self) -> Suite:
        """Answers that obey a JSON schema, alone and four at a time."""
        return structured_suite(
            self._select(self._sizes.num_structured_prompts, 2),
            concurrencies=sorted({1, min(4, self._max_batch)}),
            max_tokens=96,
            seed=SEED + 2,
        )

    def full_context(self, continuations: Sequence[TokenIds]) -> Suite:
        """Prompts that end, with their output, at the whole declared context."""
        max_context = self._manifest.scope.max_context
        text = long_prompt(8 * max_context, seed=SEED + 3)[: 4 * max_context]
        return full_context_suite(
            self._tokenize(text),
            max_context=max_context,
            num_tokens=self._sizes.num_tokens,
            num_prompts=self._sizes.num_full_context_prompts,
            seed=SEED + 3,
            continuations=continuations,
        )
