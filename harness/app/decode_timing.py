"""Times decode on resident arms, one of them busy at a time: on servers of the cpu tier, on engines of the gpu tier."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from eval_suites.prompts import select_prompts
from harness.app.recorder import Recorder, utc_now
from harness.app.suite_plan import SEED
from harness.model.completion import Completer
from harness.model.errors import EngineError
from harness.model.evidence import GpuState, TimingEvidence
from harness.model.manifest import Manifest
from harness.model.words import Arm, Tier
from perf_sweeps.decode_latency import Profiler, time_decode

PROFILED_TOKENS = 24
"""Of each answer of a profiled block: the steps that a worker profiles, and some before and after them."""


class TimedArm(Protocol):
    """A started arm as the timing sees it."""

    @property
    def alive(self) -> bool:
        """Whether it can be asked something."""
        ...

    @property
    def completer(self) -> Completer:
        """Sends requests to it."""
        ...

    def tokenize(self, text: str) -> tuple[int, ...]:
        """The served model's tokens of `text`, nothing added."""
        ...

    def end_coverage(self) -> None:
        """Nothing slows it from now on."""
        ...

    def pause(self) -> None:
        """It takes no time from others."""
        ...

    def resume(self) -> None:
        """It can be asked again."""
        ...


def collect_timing(
    manifest: Manifest,
    recorder: Recorder,
    sessions: Mapping[Arm, TimedArm],
    *,
    tier: Tier,
    num_pairs: int,
    num_tokens: Callable[[int], int],
    observe: Callable[[], GpuState | None] | None = None,
    profiler: Profiler | None = None,
    gives_tokens: bool = False,
) -> None:
    """Times decode at each batch of the manifest, candidate and A/A, with coverage off.

    Cells that are in evidence are not timed again. Profiled cells come last: what has profiled may be slower after it.

    Args:
        manifest: As the tier takes it.
        recorder: Takes a record a cell, or a gap.
        sessions: The arms.
        tier: Of the evidence.
        num_pairs: Of blocks, a cell.
        num_tokens: Of each answer, by the batch.
        observe: Reads the GPU's state.
        profiler: Makes an arm's worker profile its steps; None where there is no GPU, and no cell is profiled.
        gives_tokens: Whether all arms can be told which tokens to go on with, and are.
    """
    timed = recorder.evidence.of(TimingEvidence, tier=tier)
    done = {(cell.is_profiled, cell.batch, cell.compares) for cell in timed}
    cells = [
        (is_profiled, batch, compares)
        for is_profiled in (False, True)[: 1 if profiler is None else 2]
        for batch in manifest.performance.batches
        for compares in ((Arm.BASELINE, Arm.BASELINE_AGAIN), (Arm.BASELINE, Arm.CANDIDATE))
        if (is_profiled, batch, compares) not in done
    ]
    missing = [arm for arm in Arm if arm not in sessions or not sessions[arm].alive]
    if cells and missing:
        names = ", ".join(missing)
        recorder.gap(tier, "timing", f"needs all arms; not running: {names}", broke=False)
        return
    if cells:
        for session in sessions.values():
            session.end_coverage()
    texts = select_prompts(64, seed=SEED + 4, min_bytes=24, max_bytes=48)

    def wake(awake: Arm) -> None:
        for arm, session in sessions.items():
            if arm is not awake:
                session.pause()
        sessions[awake].resume()

    given: tuple[int, ...] = ()

    for is_profiled, batch, compares in cells:
        what = (
            f"{'profile' if is_profiled else 'timing'} at batch {batch}, {compares[0]} against {compares[1]}"
        )
        recorder.progress.say(what)
        try:
            wake(Arm.BASELINE)
            if gives_tokens and not given:
                given = given_tokens(sessions[Arm.BASELINE].tokenize)
            cell = time_decode(
                {arm: session.completer for arm, session in sessions.items()},
                [sessions[Arm.BASELINE].tokenize(text) for text in texts],
                compares=compares,
                batch=batch,
                num_pairs=num_pairs,
                num_tokens=PROFILED_TOKENS if is_profiled else num_tokens(batch),
                tier=tier,
                hardware=recorder.hardware,
                recorded_at=utc_now,
                given=given,
                wake=wake,
                observe=observe,
                profiler=profiler if is_profiled else None,
            )
        except EngineError as error:
            recorder.broken(tier, what, error)
        else:
            recorder.record(cell)


def given_tokens(tokenize: Callable[[str], tuple[int, ...]]) -> tuple[int, ...]:
    """Tokens of texts that are no prompts, one after the other: what all arms go on with, chosen beforehand."""
    texts = select_prompts(64, seed=SEED + 5, min_bytes=24, max_bytes=48)
    return tuple(token for text in texts for token in tokenize(text))
