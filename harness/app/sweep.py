"""`fasttrack sweep`: plans, measures and judges performance cells of a change."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from harness.app.recorder import Progress
from harness.app.sweep_arms import CpuArms, write_subject
from harness.app.sweep_text import render_sweep
from harness.app.validate import Question, read_question
from harness.config import read_configuration
from harness.facts.packages import digest_of_judge
from harness.model.errors import ConfigurationError
from harness.model.words import ExitCode, Verdict
from harness.options import CommandResult, SweepOptions
from perf_sweeps.analysis import Margins, SweepResult, analyse
from perf_sweeps.block import Block, Failure, SweepPlan
from perf_sweeps.cell import find_misfits, require_in_scope
from perf_sweeps.claims import ClaimResult, Support, match_claim, match_text
from perf_sweeps.journal import Journal, RecordIndex
from perf_sweeps.measure import OpenHost, run_here
from perf_sweeps.presets import preset_cells
from perf_sweeps.price import Rates, price_sweep, render_price
from perf_sweeps.prompts import read_prompt_file, shipped_passages
from perf_sweeps.ray_run import LOCAL, RayOptions, run_on_ray
from perf_sweeps.simulated import Simulation
from perf_sweeps.tables import write_tables

HERE = "none"
CPU_RATES = {"step_ms": 10.0, "prefill_tok_s": 1500.0, "start_s": 30.0}
"""For a miniature model on two cores; GPUs have `Rates`'s own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sweep:
    """A sweep that was asked for, with what it is about."""

    question: Question
    code_digest: str
    """Of the judge's code, as it was when the command started."""
    plan: SweepPlan
    passages: tuple[str, ...]
    misfits: tuple[str, ...]
    uses_gpus: bool


def sweep(options: SweepOptions) -> CommandResult:
    """Plans or runs a sweep. Interrupted, it leaves what was measured, and `--resume` goes on from there."""
    asked = _read(options)
    if options.is_plan:
        return _show_plan(asked, options)
    if options.simulate is None:
        require_in_scope(asked.plan.cells, asked.question.manifest.scope)
        if asked.uses_gpus:
            raise ConfigurationError(
                "no-gpu-host",
                "This version of fasttrack starts no arms on a GPU for a sweep.",
                "--plan prices it; --simulate rehearses it.",
            )
    progress = Progress(quiet=options.output.quiet)
    journal = Journal(options.out, asked.plan, resume=options.resume)
    try:
        _measure(asked, options, journal, progress)
    finally:
        journal.close()
        progress.say(f"{options.out} holds what was measured")
    return _show_result(asked, options)


def _read(options: SweepOptions) -> _Sweep:
    question = read_question(options.change)
    scope = question.manifest.scope
    cells = preset_cells(options.preset, scope, options.match)
    passages = read_prompt_file(options.prompts) if options.prompts else shipped_passages()
    subject = question.change.head if options.simulate is None else f"simulated, ratio {options.simulate:g}"
    digest = hashlib.sha256("\0".join(passages).encode()).hexdigest() if options.prompts else ""
    plan = SweepPlan(
        subject=subject, cells=cells, num_blocks=options.num_blocks, seed=options.seed, prompts_digest=digest
    )
    is_cpu = scope.platforms == ("cpu",)
    return _Sweep(
        question=question,
        code_digest=digest_of_judge(),
        plan=plan,
        passages=passages,
        misfits=find_misfits(cells, scope),
        uses_gpus=not is_cpu,
    )


def _show_plan(asked: _Sweep, options: SweepOptions) -> CommandResult:
    given = {"step_ms": options.step_ms, "start_s": options.start_s}
    assumed = ({} if asked.uses_gpus or asked.misfits else CPU_RATES) | {k: v for k, v in given.items() if v}
    price = price_sweep(asked.plan, Rates.model_validate(assumed))
    if options.output.format == "json":
        document = {
            "schema_version": 1,
            "price": price.model_dump(mode="json"),
            "outside_scope": asked.misfits,
        }
        return CommandResult(text=json.dumps(document, indent=2, allow_nan=False), exit_code=ExitCode.ADMIT)
    lines = [render_price(price, unit="GPU-min" if asked.uses_gpus or asked.misfits else "min")]
    if asked.misfits:
        lines += ["", f"{len(asked.misfits)} cells lie outside the manifest's scope and would be refused:"]
        lines += [f"  {line}" for line in asked.misfits]
    return CommandResult(text="\n".join(lines), exit_code=ExitCode.ADMIT)


def _measure(asked: _Sweep, options: SweepOptions, journal: Journal, progress: Progress) -> None:
    tasks = journal.open_tasks()
    progress.say(f"{len(tasks)} of {len(asked.plan.tasks())} blocks are to be measured")
    if not tasks:
        return
    sweep_digest, done = asked.plan.digest, [0]

    def keep(record: Block | Failure) -> None:
        journal.add(record)
        done[0] += 1
        if isinstance(record, Failure):
            progress.say(f"{record.cell}, block {record.index}: {record.cause}: {record.message}")
        elif record.index == asked.plan.num_blocks - 1:
            progress.say(f"{record.cell}: measured ({done[0]}/{len(tasks)} blocks)")

    with _arms(asked, options, progress) as open_host:
        address = options.address or (LOCAL if find_spec("ray") else HERE)
        if address == HERE:
            run_here(tasks, open_host, keep, sweep=sweep_digest, code_digest=asked.code_digest)
            return
        ray_options = RayOptions(
            address=address,
            num_lanes=options.num_lanes,
            gpu_type=options.gpu_type,
            uses_gpus=asked.uses_gpus and options.simulate is None,
        )
        run_on_ray(
            tasks, open_host, keep, sweep=sweep_digest, code_digest=digest_of_judge, options=ray_options
        )


@contextmanager
def _arms(asked: _Sweep, options: SweepOptions, progress: Progress) -> Iterator[OpenHost]:
    """What opens hosts, with the files that they need for as long as they need them."""
    if options.simulate is not None:
        yield Simulation(ratio=options.simulate)
        return
    question = asked.question
    with tempfile.TemporaryDirectory(prefix="fasttrack-sweep-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        write_subject(question.repository, question.change, question.manifest, folder, progress)
        yield CpuArms(
            manifest=question.manifest, folder=folder, passages=asked.passages, seed=asked.plan.seed
        )


def _show_result(asked: _Sweep, options: SweepOptions) -> CommandResult:
    policy = asked.question.policy
    margins = Margins(margin=policy.itl_margin, alpha=policy.alpha, min_blocks=policy.min_timing_blocks)
    result = analyse(asked.plan, RecordIndex(options.out).of, margins, code_digest=asked.code_digest)
    if options.simulate is not None and result.verdict is Verdict.ADMIT:
        # A rehearsal shows how a sweep goes, and nothing about the change.
        result = result.model_copy(update={"verdict": Verdict.UNDECIDED})
    claims = [
        match_claim(c, result.cells, margins.margin) for c in asked.question.manifest.performance.claims
    ]
    if options.pr_text is not None:
        text = read_configuration(options.pr_text, "description").decode("utf-8", "replace")
        claims += match_text(text, result.cells, margins.margin)
    tables = write_tables(result, options.out)
    document = {
        "schema_version": 1,
        "result": result.model_dump(mode="json"),
        "claims": [c.model_dump(mode="json") for c in claims],
    }
    rendered = json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False)
    (options.out / "result.json").write_text(rendered + "\n", encoding="utf-8")
    if options.output.format == "json":
        return CommandResult(text=rendered, exit_code=exit_code(result, claims))
    return CommandResult(text=render_sweep(result, claims, tables), exit_code=exit_code(result, claims))


def exit_code(result: SweepResult, claims: Sequence[ClaimResult]) -> ExitCode:
    """A refuted cell or number rejects; one that nothing shows leaves the sweep undecided."""
    if result.verdict is Verdict.REJECT or any(c.support is Support.CONTRADICTED for c in claims):
        return ExitCode.REJECT
    if result.verdict is Verdict.ADMIT and all(c.support is Support.SUPPORTED for c in claims):
        return ExitCode.ADMIT
    return ExitCode.UNDECIDED
