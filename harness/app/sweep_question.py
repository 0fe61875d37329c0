"""What a sweep is asked: the change, the cells, and with which prompts, trace and load generator."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.app.validate import Question, read_question
from harness.facts.packages import digest_of_judge
from harness.model.errors import ConfigurationError
from harness.model.words import Tier
from harness.options import SweepOptions
from perf_sweeps.agent_trace import Conversation, read_trace, render_trace, trace_cell
from perf_sweeps.block import LoadGenerator, SweepPlan
from perf_sweeps.cell import Cell, Workload, find_misfits
from perf_sweeps.presets import OVERHEAD, preset_cells
from perf_sweeps.prompts import read_prompt_file, shipped_passages


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedSweep:
    """A sweep that was asked for, with what it is about."""

    question: Question
    """Its manifest as the tier takes it."""
    code_digest: str
    """Of the judge's code, as it was when the command started."""
    plan: SweepPlan
    passages: tuple[str, ...]
    trace: tuple[Conversation, ...]
    misfits: tuple[str, ...]
    is_overhead: bool
    """Whether the judge's own tracer is timed, and nothing about the change."""


def read_sweep(options: SweepOptions) -> AskedSweep:
    """What is asked; raises `ConfigurationError` for anything that cannot be used."""
    question = read_question(options.change)
    is_cpu = question.manifest.scope.platforms == ("cpu",)
    tier = options.tier or (Tier.CPU if is_cpu else Tier.GPU)
    question = replace(question, manifest=question.manifest.at(tier))
    scope = question.manifest.scope
    trace = read_trace(options.trace) if options.trace else ()
    cells = (
        (trace_cell(trace, options.concurrency),)
        if trace
        else preset_cells(options.preset, scope, options.match)
    )
    if options.has_random_tokens:
        cells = _with_random_tokens(cells, options.load)
    passages = read_prompt_file(options.prompts) if options.prompts else shipped_passages()
    subject = question.change.head if options.simulate is None else f"simulated, ratio {options.simulate:g}"
    is_overhead = options.preset == OVERHEAD and not trace
    if is_overhead:
        subject = f"the tracer's overhead, {subject}"
    digest = hashlib.sha256("\0".join(passages).encode()).hexdigest() if options.prompts else ""
    plan = SweepPlan(
        subject=subject,
        tier=tier,
        cells=cells,
        num_blocks=options.num_blocks,
        seed=options.seed,
        prompts_digest=digest,
        load=options.load,
        trace_digest=hashlib.sha256(render_trace(trace)).hexdigest() if trace else "",
    )
    return AskedSweep(
        question=question,
        code_digest=digest_of_judge(),
        plan=plan,
        passages=passages,
        trace=trace,
        misfits=find_misfits(cells, scope),
        is_overhead=is_overhead,
    )


def _with_random_tokens(cells: Sequence[Cell], load: LoadGenerator) -> tuple[Cell, ...]:
    if load != "client" or any(cell.workload is Workload.AGENT for cell in cells):
        raise ConfigurationError(
            "random-tokens",
            "Random tokens have no text: neither `vllm bench serve` nor a replay can send them.",
            "Leave out --random-tokens, or choose --load client and other cells.",
        )
    return tuple(cell.model_copy(update={"prompts": "random"}) for cell in cells)
