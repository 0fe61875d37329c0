"""`fasttrack sweep`: plans, measures and judges performance cells of a change."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from harness.app.recorder import Progress
from harness.app.sweep_arms import CpuArms, GpuArms, OverheadArms, ShippedArms, count_gpus, write_subject
from harness.app.sweep_question import AskedSweep, read_sweep
from harness.app.sweep_result import show_result
from harness.app.validate import scrubber_for
from harness.facts.environment import can_run
from harness.facts.packages import digest_of_judge
from harness.model.errors import ConfigurationError
from harness.model.words import ExitCode, Tier
from harness.options import CommandResult, SweepOptions
from perf_sweeps.block import Block, Failure
from perf_sweeps.cell import Workload, require_in_scope
from perf_sweeps.journal import Journal
from perf_sweeps.measure import OpenHost, run_here
from perf_sweeps.price import Rates, price_sweep, render_price
from perf_sweeps.ray_run import LOCAL, RayOptions, run_on_ray
from perf_sweeps.simulated import Simulation

HERE = "none"
CPU_RATES = {"step_ms": 10.0, "prefill_tok_s": 1500.0, "start_s": 30.0}
"""For a miniature model on two cores; GPUs have `Rates`'s own."""


def sweep(options: SweepOptions) -> CommandResult:
    """Plans or runs a sweep. Interrupted, it leaves what was measured, and `--resume` goes on from there."""
    asked = read_sweep(options)
    if options.is_plan:
        return _show_plan(asked, options)
    if options.simulate is None:
        require_in_scope(asked.plan.cells, asked.question.manifest.scope)
        _require_served(asked, options)
    progress = Progress(quiet=options.output.quiet)
    journal = Journal(options.out, asked.plan, resume=options.resume)
    try:
        _measure(asked, options, journal, progress)
    except KeyboardInterrupt:
        journal.close()
        _ = show_result(asked, options)
        raise
    finally:
        journal.close()
        progress.say(f"{options.out} holds what was measured")
    return show_result(asked, options)


def _require_served(asked: AskedSweep, options: SweepOptions) -> None:
    """Raises `ConfigurationError` for what nothing serves here; a cluster's machines are not known before."""
    if asked.plan.tier is not Tier.GPU:
        if options.times_kernels:
            message = "Kernels are a GPU's: the arms of the cpu tier have none."
            raise ConfigurationError("no-kernels", message, "Leave out --kernels, or ask for --tier gpu.")
        return
    agents = [cell.name for cell in asked.plan.cells if cell.workload is Workload.AGENT]
    if agents or asked.plan.load != "client":
        raise ConfigurationError(
            "no-api-server",
            "Arms on a GPU are given their requests directly: conversations and `vllm bench serve` need an API server.",
            "Leave out --load and cells of agents, or ask for --tier cpu.",
        )
    is_able, why_not = can_run(Tier.GPU)
    if not is_able and options.address in (None, HERE, LOCAL):
        advice = "--plan prices it; --simulate rehearses it; --address measures it on a cluster."
        raise ConfigurationError("no-gpu-host", f"Not on this machine: {why_not}.", advice)
    widest = max(asked.plan.cells, key=lambda cell: cell.engine.tensor_parallel)
    if options.address in (None, HERE, LOCAL) and widest.engine.tensor_parallel > (num_gpus := count_gpus()):
        message = (
            f"{widest.name} needs {widest.engine.tensor_parallel} GPUs of one machine, and has {num_gpus}."
        )
        raise ConfigurationError(
            "too-few-gpus", message, "Choose cells with --match, or join a cluster with --address."
        )


def assumed_rates(asked: AskedSweep, options: SweepOptions) -> Rates:
    """What the price assumes, with what the user knows better in its place."""
    given = {"step_ms": options.step_ms, "start_s": options.start_s}
    usual = {} if asked.plan.tier is Tier.GPU or asked.misfits else CPU_RATES
    return Rates.model_validate(usual | {k: v for k, v in given.items() if v})


def _show_plan(asked: AskedSweep, options: SweepOptions) -> CommandResult:
    price = price_sweep(asked.plan, assumed_rates(asked, options))
    if options.output.format == "json":
        document = {
            "schema_version": 1,
            "price": price.model_dump(mode="json"),
            "outside_scope": asked.misfits,
        }
        return CommandResult(text=json.dumps(document, indent=2, allow_nan=False), exit_code=ExitCode.ADMIT)
    lines = [render_price(price, unit="GPU-min" if asked.plan.tier is Tier.GPU or asked.misfits else "min")]
    if asked.misfits:
        lines += ["", f"{len(asked.misfits)} cells lie outside the manifest's scope and would be refused:"]
        lines += [f"  {line}" for line in asked.misfits]
    return CommandResult(text="\n".join(lines), exit_code=ExitCode.ADMIT)


def _measure(asked: AskedSweep, options: SweepOptions, journal: Journal, progress: Progress) -> None:
    tasks = journal.open_tasks()
    progress.say(f"{len(tasks)} of {len(asked.plan.tasks())} blocks are to be measured")
    if not tasks:
        return
    sweep_digest, done = asked.plan.digest, [0]
    scrubber = scrubber_for(asked.question)

    def keep(record: Block | Failure) -> None:
        journal.add(scrubber.record(record))
        done[0] += 1
        if isinstance(record, Failure):
            progress.say(f"{record.cell}, block {record.index}: {record.cause}: " + "\n  ".join(record.lines))
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
            uses_gpus=asked.plan.tier is Tier.GPU and options.simulate is None,
        )
        run_on_ray(
            tasks, open_host, keep, sweep=sweep_digest, code_digest=digest_of_judge, options=ray_options
        )


@contextmanager
def _arms(asked: AskedSweep, options: SweepOptions, progress: Progress) -> Iterator[OpenHost]:
    """What opens hosts, with the files that they need for as long as they need them."""
    if options.simulate is not None:
        yield Simulation(ratio=options.simulate)
        return
    question = asked.question
    with tempfile.TemporaryDirectory(prefix="fasttrack-sweep-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        manifest, subject = question.manifest, (question.repository, question.change)
        write_subject(*subject, manifest, folder, progress, asked.plan.tier)
        arms: CpuArms | GpuArms | OverheadArms
        if asked.is_overhead and asked.plan.tier is Tier.CPU:
            arms = OverheadArms.on_a_cpu(manifest, folder, asked.passages, asked.plan.seed)
        elif asked.plan.tier is Tier.GPU:
            arms = GpuArms(
                manifest=manifest,
                folder=folder,
                passages=asked.passages,
                seed=asked.plan.seed,
                routers=options.routers,
                times_kernels=options.times_kernels,
            )
            arms = OverheadArms(arms=arms) if asked.is_overhead else arms
        else:
            arms = CpuArms(
                manifest=manifest,
                folder=folder,
                passages=asked.passages,
                seed=asked.plan.seed,
                load=asked.plan.load,
                trace=asked.trace,
                routers=options.routers,
            )
        yield arms if options.address in (None, HERE, LOCAL) else ShippedArms.of(arms)
