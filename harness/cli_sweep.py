"""`fasttrack sweep`: options only; the work is imported when the command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.cli_options import PATH, change, option, output, output_options, policy_option, repo_option
from harness.model.words import Tier
from harness.options import CommandResult, SweepOptions

_EPILOG = (
    "Exit codes: 0 every required cell passes and every stated number holds, 1 a cell or a number is refuted, 2 usage, "
    "3 undecided, 4 the harness failed, 130 interrupted: what was measured is kept."
)
_ASKED = (
    "preset",
    "match",
    "out",
    "num_blocks",
    "seed",
    "is_plan",
    "resume",
    "address",
    "num_lanes",
    "gpu_type",
)
_MORE = ("prompts", "pr_text", "simulate", "step_ms", "start_s")


@click.command(epilog=_EPILOG)
@option("--preset", "Named set of cells.", default="cpu-quick", show_default=True)
@click.option("--match", default="*", show_default=True, help="Only cells whose name this glob takes.")
@click.option("--plan", "is_plan", is_flag=True, help="Say what the sweep would cost and start nothing.")
@click.option(
    "--blocks", "num_blocks", type=click.IntRange(min=2), default=5, show_default=True, help="A cell."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of prompts.")
@repo_option
@option("--base", "As for validate: where the policy comes from.", show_default="the default branch")
@option("--head", "The commit whose code is served.", default="HEAD", show_default=True)
@option("--manifest", "Manifest file.", type=PATH, show_default="fasttrack.toml of the clone")
@policy_option
@option("--out", "The sweep's folder.", type=PATH, default=Path("fasttrack-sweep"), show_default=True)
@click.option("--resume", is_flag=True, help="Measure only what the folder does not hold yet.")
@option(
    "--address",
    "A Ray cluster; 'local' starts one here, 'none' measures in this process.",
    show_default="local where Ray is installed",
)
@click.option(
    "--lanes",
    "num_lanes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Hosts of one engine configuration side by side.",
)
@click.option("--gpu-type", default="", help="Custom resource that a machine of the cluster must offer.")
@click.option("--prompts", type=PATH, help="File of your own prompts.")
@click.option("--pr-text", type=PATH, help="A description: each of its numbers is held against the cells.")
@click.option(
    "--simulate",
    type=click.FloatRange(min=0.1, max=10),
    metavar="RATIO",
    help="Rehearse without engines: candidate's time over the baseline's.",
)
@click.option("--step-ms", type=click.FloatRange(min=0, min_open=True), help="For the plan: one decode step.")
@click.option("--start-s", type=click.FloatRange(min=0), help="For the plan: start of a server.")
@output_options
def sweep(**options: Any) -> CommandResult:
    """Time both arms over a set of cells, in mirrored blocks beside an A/A, and judge each cell."""
    from harness.app import sweep as use_case

    asked = {name: options[name] for name in (*_ASKED, *_MORE)}
    about = options | {"paths": (), "tier": str(Tier.CPU)}
    return use_case.sweep(SweepOptions(change=change(about), output=output(options), **asked))
