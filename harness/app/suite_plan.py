"""Which suites the cpu tier puts its arms through, and how much of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval_suites.aime import INSTRUCTION, parse_aime_row
from eval_suites.aime_generator import KINDS
from eval_suites.eval_set import EvalSet, build_suite, control_of, scope_concurrencies
from eval_suites.features import full_context_suite, sampling_suite, structured_suite
from eval_suites.loaded_rows import LoadedRows, load_rows
from eval_suites.mrcr import parse_mrcr_row
from eval_suites.prompts import long_prompt, select_prompts
from eval_suites.served_sets import ServedModel, build_aime_set, build_mrcr_set
from eval_suites.suite import Suite
from eval_suites.token_level import TokenIds, continuations_of, greedy_suite, teacher_forced_suite
from harness.app.feature_plan import plan_features
from harness.model.errors import ConfigurationError
from harness.model.evaluation import ChatMessage, SuiteItem
from harness.model.features import Feature
from harness.model.manifest import Manifest
from harness.options import Profile

SEED = 20_261
"""Seed of prompts and checkpoint."""
MAX_SEEDED_PROMPT = 128
"""Tokens. vLLM's CPU engine (0.32) dies of a seeded request whose prefill is split ("CPU Generator does not use
offset"), and prefills are split at the ends of the prefix cache's blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuSizes:
    """How much is asked of each arm; the defaults decide every required check of the cpu tier."""

    num_greedy_prompts: int = 64
    num_forced_prompts: int = 16
    num_tokens: int = 24
    num_sampling_prompts: int = 22
    num_sampling_tokens: int = 10
    sampling_seeds: tuple[int, ...] = (1, 2, 3, 4)
    sampling_temperatures: tuple[float, ...] = (0.3, 1.5)
    """So far apart that a sharp model, too, answers most draws otherwise: 52 that do are needed to decide."""
    num_structured_prompts: int = 12
    num_full_context_prompts: int = 3
    num_feature_prompts: int = 10
    """0 leaves the served features out."""
    num_features_alone: int = 4
    num_feature_tokens: int = 12
    features: tuple[Feature, ...] = ()
    """Those that are asked; none: every one."""
    num_mrcr_rows: int = 96
    num_aime_rows: int = 32
    num_aime_samples: int = 12
    """With 32 problems they let an engine that scores 0.75 % of its answers unlike pass in 99 of 100 runs."""
    num_control_requests: int = 32
    """Of each evaluation suite, asked once more with the candidate made wrong on purpose."""
    own_tests_s: float = 300.0
    """Seconds for the change's own tests as they are, and as many for all their runs with falsified answers."""
    with_probes: bool = True
    """Whether the scripted runs are made."""
    timing_pairs: int = 8
    """0 leaves decode untimed."""
    timing_tokens: int = 64


SIZES: Mapping[Profile, CpuSizes] = {
    "full": CpuSizes(),
    "smoke": CpuSizes(
        num_greedy_prompts=4,
        num_forced_prompts=4,
        num_tokens=8,
        num_sampling_prompts=2,
        num_sampling_tokens=6,
        sampling_seeds=(1,),
        num_structured_prompts=1,
        num_full_context_prompts=1,
        num_feature_prompts=0,
        num_mrcr_rows=4,
        num_aime_rows=4,
        num_aime_samples=1,
        num_control_requests=4,
        own_tests_s=30.0,
        with_probes=False,
        timing_pairs=0,
    ),
    "quick": CpuSizes(
        num_greedy_prompts=24,
        num_forced_prompts=12,
        num_tokens=16,
        num_sampling_prompts=12,
        num_structured_prompts=4,
        num_full_context_prompts=1,
        num_feature_prompts=6,
        num_features_alone=4,
        num_feature_tokens=8,
        num_mrcr_rows=36,
        num_aime_rows=16,
        num_aime_samples=4,
        num_control_requests=16,
        own_tests_s=30.0,
        with_probes=False,
        timing_pairs=0,
    ),
}
"""By profile: `smoke` shows that everything runs, `quick` soon what is badly wrong, `full` decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRows:
    """The rows of the evaluation suites that come from data sets; None where they are generated."""

    mrcr: LoadedRows | None
    aime: LoadedRows | None


def load_eval_rows(manifest: Manifest, root: Path) -> EvalRows:
    """Reads the data sets that the manifest names, relative to `root`.

    Raises:
        ConfigurationError: a data set cannot be had or holds bad rows, or a kind of problem does not exist.
    """
    evals, max_context = manifest.evals, manifest.scope.max_context
    instruction = INSTRUCTION if evals.aime.instruction is None else evals.aime.instruction
    if unknown := sorted(set(evals.aime.kinds) - set(KINDS)):
        known = ", ".join(KINDS)
        raise ConfigurationError(
            "eval-kinds", f"evals.aime.kinds: got {', '.join(unknown)}, expected some of {known}"
        )
    return EvalRows(
        mrcr=None if evals.mrcr.is_generated else load_rows(evals.mrcr, root, parse_mrcr_row, max_context),
        aime=None
        if evals.aime.is_generated
        else load_rows(
            evals.aime, root, lambda values, name: parse_aime_row(values, name, instruction), max_context
        ),
    )


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

    def eval_sets(
        self, rows: EvalRows, count_prompt: Callable[[Sequence[ChatMessage]], int]
    ) -> tuple[EvalSet, ...]:
        """The questions of MRCR and AIME that the served model can be asked."""
        evals, sizes = self._manifest.evals, self._sizes
        nano_context = self._manifest.nano_model.max_model_len
        model = ServedModel(
            count_prompt=count_prompt,
            count_text=lambda text: len(self._tokenize(text)),
            max_context=min(self._manifest.scope.max_context, nano_context),
            max_seeded_prompt=MAX_SEEDED_PROMPT,
        )
        return (
            build_mrcr_set(evals.mrcr, rows.mrcr, model, num_rows=sizes.num_mrcr_rows, seed=SEED + 10),
            build_aime_set(
                evals.aime,
                rows.aime,
                model,
                num_rows=sizes.num_aime_rows,
                num_samples=sizes.num_aime_samples,
                seed=SEED + 11,
            ),
        )

    def evaluation(self, eval_set: EvalSet) -> Suite:
        """The rows of an evaluation suite, each at one concurrency of the scope or at one beyond it."""
        return build_suite(eval_set, scope_concurrencies(self._max_batch))

    def controls(self, evaluations: Sequence[Suite]) -> tuple[Suite, ...]:
        """A slice of each evaluation suite, to be asked of the candidate made wrong on purpose."""
        count = self._sizes.num_control_requests
        return tuple(
            control_of(suite, max_batch=self._max_batch, num_requests=count) for suite in evaluations
        )

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
        """Seeded sampling at a low and a high temperature.

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

    def features(self, greedy_items: Sequence[SuiteItem]) -> Suite:
        """Every served feature, alone and at the scope's largest batch."""
        sizes = self._sizes
        return plan_features(
            self._manifest.scope,
            select_prompts(sizes.num_greedy_prompts, seed=SEED),
            greedy_items,
            self._tokenize,
            num_prompts=sizes.num_feature_prompts,
            num_alone=sizes.num_features_alone,
            num_tokens=sizes.num_feature_tokens,
            seed=SEED + 4,
            only=sizes.features,
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
