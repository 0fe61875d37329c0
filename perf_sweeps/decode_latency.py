"""Decode latency at one batch: blocks of two arms in ABBA order, on servers that stay resident."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import ValidationError

from harness.model.completion import Completer, CompletionRequest
from harness.model.errors import EngineError
from harness.model.evaluation import SuiteItem
from harness.model.evidence import GpuState, ShownAnswers, TimingBlock, TimingEvidence
from harness.model.step_kernels import StepKernels
from harness.model.words import Arm, Tier

Progress = Callable[[int, int], None]
GIVEN_STRIDE = 37
"""Between where two requests begin in the given tokens: no two of a block are at the same place in one step."""
Profiler = Callable[[Arm, str], Mapping[str, Any]]
"""Tells an arm's worker "start" or "stop", and gives its answer."""


def plan_blocks(compares: tuple[Arm, Arm], num_pairs: int) -> tuple[tuple[int, Arm], ...]:
    """(pair, arm) of every block in the order of time: AB, BA, AB, ...

    Alternating the order inside neighbouring pairs cancels a drift that is linear in time.
    """
    first, second = compares
    order: list[tuple[int, Arm]] = []
    for pair in range(num_pairs):
        arms = (first, second) if pair % 2 == 0 else (second, first)
        order.extend((pair, arm) for arm in arms)
    return tuple(order)


def block_requests(
    prompts: Sequence[tuple[int, ...]],
    *,
    batch: int,
    position: int,
    num_tokens: int,
    given: Sequence[int] = (),
) -> tuple[CompletionRequest, ...]:
    """`batch` greedy, streamed requests of equal output length, given their tokens from `given` if there are any.

    The two blocks of a pair ask the same; prompts differ from pair to pair, so that nothing can be answered from
    memory. Item names carry the block's position, which keeps request ids distinct.
    """
    pair = position // 2
    return tuple(
        CompletionRequest(
            item=f"b{position}/r{index}",
            prompt_token_ids=prompts[(pair * batch + index) % len(prompts)],
            max_tokens=num_tokens,
            force_token_ids=cut_given(given, pair * batch + index, num_tokens),
            ignore_eos=True,
            stream=True,
        )
        for index in range(batch)
    )


def cut_given(given: Sequence[int], number: int, num_tokens: int) -> tuple[int, ...]:
    """The tokens of a cell's request of that number; none where none are given."""
    if not given:
        return ()
    return tuple(given[(number * GIVEN_STRIDE + step) % len(given)] for step in range(num_tokens))


def time_decode(
    completers: Mapping[Arm, Completer],
    prompts: Sequence[tuple[int, ...]],
    *,
    compares: tuple[Arm, Arm],
    batch: int,
    num_pairs: int,
    num_tokens: int,
    tier: Tier,
    hardware: str,
    recorded_at: Callable[[], str],
    given: Sequence[int] = (),
    wake: Callable[[Arm], None] | None = None,
    observe: Callable[[], GpuState | None] | None = None,
    profiler: Profiler | None = None,
    progress: Progress | None = None,
) -> TimingEvidence:
    """Runs one cell and returns its blocks; one warm-up block an arm comes first and is not recorded.

    With `given` tokens the arms' answers are alike whatever they compute: each arm then serves one block more, which is
    not timed, and tells how likely it held the tokens.

    `wake` is called before each block with the arm that is about to be timed: others may be put to sleep there.
    `observe` reads the GPU at both ends of each block. With a `profiler` each block says what the GPU did in its steps.
    Raises `EngineError` when a server dies, or tells no profile.
    """
    cell = f"{'profile' if profiler is not None else 'decode'}/b{batch}/{compares[0]}-{compares[1]}"

    def serve(
        arm: Arm, requests: Sequence[CompletionRequest], suite: str
    ) -> tuple[tuple[SuiteItem, ...], StepKernels | None]:
        if profiler is None:
            return completers[arm].complete_many(requests, concurrency=batch, suite=suite), None
        profiler(arm, "start")
        items = completers[arm].complete_many(requests, concurrency=batch, suite=suite)
        try:
            return items, StepKernels.model_validate(profiler(arm, "stop"))
        except ValidationError as error:
            raise EngineError("profile-unreadable", f"{arm} tells no profile: {error}") from error

    ask = partial(block_requests, prompts, batch=batch, num_tokens=num_tokens, given=given)
    shown: list[ShownAnswers] = []
    for arm in compares:
        if wake is not None:
            wake(arm)
        # Position -2 takes prompts from the end of the list: the first pair must not be answered from memory.
        serve(arm, ask(position=-2), f"{cell}/warm-up")
        if given:
            asked = [replace(request, logprobs=1) for request in ask(position=-2)]
            items = completers[arm].complete_many(asked, concurrency=batch, suite=f"{cell}/shown")
            shown.append(ShownAnswers(arm=arm, items=items))
    blocks: list[TimingBlock] = []
    order = plan_blocks(compares, num_pairs)
    for position, (pair, arm) in enumerate(order):
        requests = ask(position=position)
        if wake is not None:
            wake(arm)
        load = round(os.getloadavg()[0], 2)
        before = observe() if observe is not None else None
        items, profile = serve(arm, requests, cell)
        after = observe() if observe is not None else None
        block = TimingBlock(
            pair=pair,
            position=position,
            arm=arm,
            items=items,
            load_1min=load,
            gpu_before=before,
            gpu_after=after,
            profile=profile,
        )
        blocks.append(block)
        if progress is not None:
            progress(position + 1, len(order))
    return TimingEvidence(
        tier=tier,
        recorded_at=recorded_at(),
        hardware=hardware,
        cell=cell,
        batch=batch,
        num_output_tokens=num_tokens,
        compares=compares,
        blocks=tuple(blocks),
        tokens_given=bool(given),
        shown=tuple(shown),
    )
