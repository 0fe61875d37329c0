"""`fasttrack audit`: options only; the work is imported when the command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.cli_options import PATH, option, output, output_options, python_option
from harness.options import CommandResult

_EPILOG = (
    "Exit codes: 0 all in order, 1 a fault was shown, 2 usage, 3 something is open, 4 the harness failed."
)


@click.command("audit", epilog=_EPILOG)
@click.argument("inputs", nargs=-1)
@click.option(
    "--manifest", type=PATH, help="Compile and audit the entry points of its [kernels]; INPUTS choose some."
)
@click.option("--role", "roles", multiple=True, help="NAME=ROLE, or KERNEL_GLOB/NAME=ROLE; repeatable.")
@click.option("--roles", "roles_file", type=PATH, help="JSON or TOML file: roles and launch facts by kernel.")
@click.option(
    "--arch", "arches", multiple=True, help="Architectures to compile for, or to look at; repeatable."
)
@click.option(
    "--launch",
    type=click.Choice(["unknown", "pdl", "plain"]),
    default="unknown",
    show_default=True,
    help="With programmatic stream serialisation or not; unknown: as the kernel's PTX tells.",
)
@click.option(
    "--dependents",
    type=click.Choice(["unknown", "wait"]),
    default="unknown",
    show_default=True,
    help="wait: the grids launched after read only after their own wait.",
)
@click.option("--block", multiple=True, type=click.IntRange(min=1), help="Threads of a CTA; once an axis.")
@click.option("--grid", multiple=True, type=click.IntRange(min=1), help="CTAs of the launch; once an axis.")
@click.option(
    "--import-root",
    "import_roots",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder from which entry points, and what they compile, are imported; repeatable.",
)
@python_option
@option("--jobs", "Processes at a time.", type=click.IntRange(min=0), default=0, show_default="one a core")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    help="Seconds for the compilation of one entry point.",
)
@click.option("--no-cache", is_flag=True, help="Compile even what is unchanged since an earlier run.")
@click.option(
    "--verbose", is_flag=True, help="Show every kernel, what does not apply, resources, all details."
)
@output_options
def audit(inputs: tuple[str, ...], **options: Any) -> CommandResult:
    """Find reads that can run before their data is there, in compiled kernels, without a GPU.

    INPUTS are PTX, SASS and cubin files, folders of them, sources with inline assembly, or MODULE:FUNCTION entry
    points.
    """
    from harness.audit.run import AuditCommand, run_audit

    if not inputs and options["manifest"] is None:
        raise click.UsageError("Name a file, a folder or MODULE:FUNCTION, or a manifest with --manifest.")
    taken = ("roles_file", "no_cache", "format", "color", "quiet")
    chosen = {name: value for name, value in options.items() if name not in taken}
    command = AuditCommand(
        inputs=inputs,
        options_file=options["roles_file"],
        uses_cache=not options["no_cache"],
        output=output(options),
        **chosen,
    )
    return run_audit(command)
