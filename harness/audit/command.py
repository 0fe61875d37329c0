"""`fasttrack audit`: options only; the work is imported when the command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.cli_options import PATH, output, output_options
from harness.options import CommandResult

_EPILOG = (
    "Exit codes: 0 all in order, 1 a fault was shown, 2 usage, 3 something is open, 4 the harness failed."
)


@click.command("audit", epilog=_EPILOG)
@click.argument("inputs", nargs=-1, required=True)
@click.option("--role", "roles", multiple=True, help="NAME=ROLE, or KERNEL_GLOB/NAME=ROLE; repeatable.")
@click.option("--roles", "roles_file", type=PATH, help="JSON or TOML file: roles and launch facts by kernel.")
@click.option(
    "--arch", "arches", multiple=True, help="Architectures to compile for, or to look at; repeatable."
)
@click.option(
    "--launch", type=click.Choice(["unknown", "pdl", "plain"]), default="unknown", show_default=True
)
@click.option("--dependents", type=click.Choice(["unknown", "wait"]), default="unknown", show_default=True)
@click.option("--block", multiple=True, type=click.IntRange(min=1), help="Threads of a CTA; once an axis.")
@click.option(
    "--import-root", "import_roots", multiple=True, type=PATH, help="Where entry points are imported from."
)
@click.option("--verbose", is_flag=True, help="Show what does not apply, and all details.")
@output_options
def audit(inputs: tuple[str, ...], **options: Any) -> CommandResult:
    """Find reads that can run before their data is there, in PTX files, cubins, folders or MODULE:FUNCTION."""
    from harness.audit.run import AuditCommand, run_audit

    names = ("arches", "launch", "dependents", "block", "import_roots", "verbose")
    chosen = {name: options[name] for name in names}
    file: Path | None = options["roles_file"]
    command = AuditCommand(
        inputs=inputs, roles=options["roles"], options_file=file, output=output(options), **chosen
    )
    return run_audit(command)
