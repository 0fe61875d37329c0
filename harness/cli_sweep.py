"""`fasttrack sweep` and `fasttrack job`: options only; the work is imported when a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import click

from harness.cli_options import (
    PATH,
    change,
    combined,
    option,
    output,
    output_options,
    policy_option,
    repo_option,
)
from harness.model.words import Tier
from harness.options import CommandResult, JobRunOptions, JobTakeOptions, SweepOptions

_EPILOG = (
    "Exit codes: 0 every required cell passes and every stated number holds, 1 a cell or a number is refuted, 2 usage, "
    "3 undecided, 4 the harness failed, 130 interrupted: what was measured is kept."
)
_cells = combined(
    option("--preset", "Named set of cells.", default="cpu-quick", show_default=True),
    click.option("--match", default="*", show_default=True, help="Only cells whose name this glob takes."),
    click.option(
        "--blocks", "num_blocks", type=click.IntRange(min=2), default=5, show_default=True, help="A cell."
    ),
    click.option("--seed", type=int, default=0, show_default=True, help="Of prompts."),
    click.option(
        "--load",
        type=click.Choice(["client", "vllm-bench"]),
        default="client",
        show_default=True,
        help="Who sends the requests: fasttrack's client, or `vllm bench serve` with an independent check.",
    ),
    click.option(
        "--tier",
        type=click.Choice(["cpu", "gpu"]),
        help="Where the arms are served.",
        show_default="where the manifest's scope lies",
    ),
    click.option("--gpu-type", default="", help="Custom resource that a machine of the cluster must offer."),
)
_base = option("--base", "As for validate: where the policy comes from.", show_default="the default branch")
_head = option("--head", "The commit whose code is served.", default="HEAD", show_default=True)
_files = combined(
    option("--manifest", "Manifest file.", type=PATH, show_default="fasttrack.toml of the clone"),
    policy_option,
)
_place = combined(
    option("--out", "The sweep's folder.", type=PATH, default=Path("fasttrack-sweep"), show_default=True),
    click.option("--resume", is_flag=True, help="Measure only what the folder does not hold yet."),
    option(
        "--address",
        "A Ray cluster; 'local' starts one here, 'none' measures in this process.",
        show_default="local where Ray is installed",
    ),
    click.option(
        "--lanes",
        "num_lanes",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Hosts of one engine configuration side by side.",
    ),
)
_DEFAULTS: dict[str, Any] = {
    "preset": "cpu-quick",
    "match": "*",
    "num_blocks": 5,
    "seed": 0,
    "base": None,
    "head": "HEAD",
    "manifest": None,
    "policy": None,
    "out": Path("fasttrack-sweep"),
}
"""Of what a command has no option for: a job's words take their place."""
_TIERS: dict[str, Literal[Tier.CPU, Tier.GPU]] = {"cpu": Tier.CPU, "gpu": Tier.GPU}
_SHARED = ("color", "quiet", "format", "repo", "paths", "tier", "base", "head", "manifest", "policy")


def _options(given: dict[str, Any]) -> SweepOptions:
    """What a command was given, and the defaults for what it does not ask."""
    about = _DEFAULTS | given | {"paths": (), "tier": str(Tier.CPU)}
    asked = {name: value for name, value in (_DEFAULTS | given).items() if name not in _SHARED}
    return SweepOptions(
        change=change(about), output=output(given), tier=_TIERS.get(given.get("tier", "")), **asked
    )


@click.command(epilog=_EPILOG)
@_cells
@click.option("--plan", "is_plan", is_flag=True, help="Say what the sweep would cost and start nothing.")
@repo_option
@_base
@_head
@_files
@_place
@click.option("--prompts", type=PATH, help="File of your own prompts.")
@click.option(
    "--random-tokens",
    "has_random_tokens",
    is_flag=True,
    help="Random token ids in place of text; they choose other experts.",
)
@click.option("--trace", type=PATH, help="Conversations to replay in place of a preset's cells.")
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Of --trace: requests in flight.",
)
@click.option(
    "--experts",
    "routers",
    multiple=True,
    metavar="MODULE:FUNCTION",
    help="Routing function of the served model: count each cell's experts by what it returns.",
)
@click.option(
    "--kernels",
    "times_kernels",
    is_flag=True,
    help="On a GPU: profile decode steps of each cell before it is timed, for their kernels.",
)
@click.option("--pr-text", type=PATH, help="A description: each of its numbers is held against the cells.")
@click.option(
    "--simulate",
    type=click.FloatRange(min=0.1, max=10),
    metavar="RATIO",
    help="Rehearse without engines: candidate's time over the baseline's.",
)
@click.option(
    "--floor-ms",
    type=click.FloatRange(min=0, min_open=True),
    help="What reading the bytes of one decode step takes: growth is shown over it, too.",
)
@click.option("--step-ms", type=click.FloatRange(min=0, min_open=True), help="For the plan: one decode step.")
@click.option("--start-s", type=click.FloatRange(min=0), help="For the plan: start of a server.")
@output_options
def sweep(**options: Any) -> CommandResult:
    """Time both arms over a set of cells, in mirrored blocks beside an A/A, and judge each cell."""
    from harness.app import sweep as use_case

    return use_case.sweep(_options(options))


@click.group("job")
def job_group() -> None:
    """Ask another machine for a sweep, and compare what several return."""


@job_group.command(epilog=_EPILOG)
@_cells
@repo_option
@_base
@_head
@_files
@option("--out", "The job's file.", type=PATH, default=Path("sweep-job.json"), show_default=True)
@output_options
def make(**options: Any) -> CommandResult:
    """Write the file by which another machine measures the same sweep; nothing is started."""
    from harness.app import sweep_job

    return sweep_job.make(_options(options))


@job_group.command(epilog=_EPILOG)
@click.argument("job", type=PATH)
@repo_option
@_place
@option("--key", "The private key that signs the return.", type=PATH, required=True)
@click.option("--passphrase", envvar="FASTTRACK_KEY_PASSPHRASE", default="", help="Of the private key.")
@output_options
def run(job: Path, key: Path, passphrase: str, **options: Any) -> CommandResult:
    """Measure a job here, and pack the signed return."""
    from harness.app import sweep_job

    asked = JobRunOptions(job=job, sweep=_options(options), key=key, passphrase=passphrase)
    return sweep_job.run(asked)


@job_group.command(epilog=_EPILOG)
@click.argument("job", type=PATH)
@click.argument("returns", type=PATH, nargs=-1, required=True)
@repo_option
@policy_option
@output_options
def take(job: Path, returns: tuple[Path, ...], **options: Any) -> CommandResult:
    """Verify the returns of a job, judge each anew, and admit what two known signers replicate."""
    from harness.app import sweep_job

    return sweep_job.take(JobTakeOptions(job=job, returns=returns, sweep=_options(options)))
