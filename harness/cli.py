"""The command line: reads options, calls one use case, prints its text, ends with its exit code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import click

from harness.audit.command import audit
from harness.cli_bundle import bundle_group, keygen, waive
from harness.cli_options import (
    PATH,
    change,
    change_options,
    option,
    output,
    output_options,
    profile_option,
    python_option,
    repo_option,
    report_output_options,
    sigstore_root_option,
    tier_option,
)
from harness.cli_sweep import job_group, sweep
from harness.github.command import github_group, submit
from harness.kernels.command import kernels
from harness.model.errors import FasttrackError
from harness.model.words import ExitCode, Tier
from harness.options import (
    CommandResult,
    DoctorOptions,
    GateOptions,
    PlanOptions,
    Profile,
    ReportOptions,
    SelftestOptions,
    ValidateOptions,
)
from harness.workflow_log import break_commands, in_github_job

_EPILOG = "Exit codes: 0 admit, 1 reject, 2 usage or configuration, 3 undecided, 4 the harness failed, 130 interrupted."


@click.group(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="fasttrack")
def cli() -> None:
    """Judge model-specific vLLM optimisations by evidence."""


@cli.command(epilog=_EPILOG)
@change_options
@option("--out", "Folder of the bundle.", type=PATH, default=Path("fasttrack-out"), show_default=True)
@option(
    "--resume", "Finish what a killed run began in --out; what it recorded is not run again.", is_flag=True
)
@profile_option
@python_option
@report_output_options
@click.option(
    "--kernel-tests",
    help="A record of `fasttrack kernels test`, for tier gpu; repeatable.",
    type=PATH,
    multiple=True,
)
@click.option(
    "--sweep",
    "sweeps",
    help="The folder of a `fasttrack sweep --tier gpu`, for tier gpu; repeatable.",
    type=PATH,
    multiple=True,
)
def validate(
    out: Path,
    python: Path,
    profile: Profile,
    resume: bool,
    kernel_tests: tuple[Path, ...],
    sweeps: tuple[Path, ...],
    **options: Any,
) -> CommandResult:
    """Collect the evidence for a change, judge it and write the bundle."""
    from harness.app import validate

    asked = ValidateOptions(
        change=change(options),
        out=out,
        output=output(options),
        python=python,
        profile=profile,
        resume=resume,
        kernel_tests=kernel_tests,
        sweeps=sweeps,
    )
    return validate.validate(asked)


@cli.command(epilog=_EPILOG)
@change_options
@output_options
def plan(**options: Any) -> CommandResult:
    """Show what validate would run, what is missing and what it costs."""
    from harness.app import machine

    return machine.plan(PlanOptions(change=change(options), output=output(options)))


@cli.command(epilog=_EPILOG)
@click.argument("bundle", type=PATH)
@click.option("--out", help="The HTML file.", type=PATH, show_default="report.html in the bundle")
@report_output_options
def report(bundle: Path, out: Path | None, **options: Any) -> CommandResult:
    """Write the report of a bundle."""
    from harness.app import bundles

    return bundles.report(ReportOptions(bundle=bundle, out=out, output=output(options)))


@cli.command(epilog=_EPILOG)
@click.argument("bundles", type=PATH, nargs=-1, required=True)
@repo_option
@option("--base", "What it is merged into.", show_default="the default branch")
@option("--head", "The commit that is about to be merged.", show_default="HEAD")
@click.option("--pr", "event", help="A pull request's event as JSON: it names base and head.", type=PATH)
@option("--policy", "Policy file.", type=PATH, show_default="the one of the merge base")
@click.option("--waiver", "waivers", help="File of `fasttrack waive`; repeatable.", type=PATH, multiple=True)
@click.option("--out", help="Folder for the report that shows the decision, and what it rests on.", type=PATH)
@sigstore_root_option
@output_options
def gate(
    bundles: tuple[Path, ...],
    repo: Path,
    base: str | None,
    head: str | None,
    event: Path | None,
    policy: Path | None,
    waivers: tuple[Path, ...],
    out: Path | None,
    sigstore_root: Path | None,
    **options: Any,
) -> CommandResult:
    """Decide from bundles whether a change may be merged."""
    from harness.app import gate

    if event is not None:
        from harness.github.event import named_commits

        base, head = named_commits(event, base, head)
    return gate.gate(
        GateOptions(
            bundles=bundles,
            repo=repo,
            base=base,
            head=head or "HEAD",
            policy=policy,
            output=output(options),
            waivers=waivers,
            out=out,
            sigstore_root=sigstore_root,
        )
    )


@cli.command(epilog=_EPILOG)
@output_options
def doctor(**options: Any) -> CommandResult:
    """Say what this machine can run and how to get the rest."""
    from harness.app import machine

    return machine.doctor(DoctorOptions(output=output(options)))


@cli.command(epilog="Exit codes: 0 as expected, 1 an escape or a false alarm, 2 usage, 4 a case broke.")
@repo_option
@click.option("--only", help="A fault of the catalogue; repeatable.", multiple=True)
@click.option(
    "--clean", help="Judge so many made clean changes, and no faults.", type=click.IntRange(0), default=0
)
@click.option(
    "--seed", help="Of the first made change.", type=click.IntRange(0), default=0, show_default=True
)
@click.option("--baselines", help="Where the made changes' baselines are kept between calls.", type=PATH)
@click.option(
    "--profile",
    help="What made changes are asked; with faults, full asks the evaluations too.",
    type=click.Choice(["quick", "full"]),
    default="quick",
    show_default=True,
)
@tier_option
@option("--jobs", "Cases at a time.", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--out", help="Write the report as JSON to this file.", type=PATH)
@click.option("--verbose", is_flag=True, help="Show each case's own progress.")
@python_option
@output_options
def selftest(only: tuple[str, ...], tier: str, **options: Any) -> CommandResult:
    """Put the judge to the test: seeded faults that it must find, and clean twins that it must not reject."""
    from harness.app.selftest import run

    taken = {name: options[name] for name in ("repo", "clean", "seed", "baselines", "profile")}
    taken |= {name: options[name] for name in ("jobs", "out", "verbose", "python")}
    return run.selftest(SelftestOptions(only=only, tier=Tier(tier), output=output(options), **taken))


for command in (audit, kernels, bundle_group, keygen, waive, submit, sweep, job_group, github_group):
    cli.add_command(command)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code; no exception leaves it."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _run(arguments)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return ExitCode.INTERRUPTED
    except click.ClickException as error:
        return _fail(arguments, "usage", error.format_message(), _usage_advice(error), ExitCode.USAGE)
    except FasttrackError as error:
        return _fail(arguments, error.slug, error.message, error.advice, error.exit_code)
    except OSError as error:
        message = f"The machine refused: {error}"
        return _fail(arguments, "system", message, _kept(arguments, error), ExitCode.HARNESS)
    except Exception as error:
        message = f"This is a bug in fasttrack: {type(error).__name__}: {error}"
        advice = f"Please report it. {_kept(arguments, error)}"
        return _fail(arguments, "bug", message, advice, ExitCode.HARNESS)
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(arguments: list[str]) -> int:
    result = cli.main(args=arguments, prog_name="fasttrack", standalone_mode=False)
    if not isinstance(result, CommandResult):
        return int(result or 0)
    _print(result.text, _asked(arguments, "--format", "FASTTRACK_FORMAT"))
    return result.exit_code


def _print(text: str, form: str | None) -> None:
    """Writes to stdout; a reader that went away does not change how the command ended."""
    if not text or sys.stdout is None:
        return
    if in_github_job():
        text = break_commands(text, form)
    try:
        encoding = sys.stdout.encoding or "ascii"
        text = text.encode(encoding, "backslashreplace").decode(encoding)
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(arguments: Sequence[str], slug: str, message: str, advice: str, code: ExitCode) -> int:
    click.echo(f"error[{slug}]: {_printable(message)}", err=True)
    if advice:
        click.echo(f"help: {_printable(advice)}", err=True)
    if _asked(arguments, "--format", "FASTTRACK_FORMAT") == "json":
        import json

        error = {"slug": slug, "message": message, "advice": advice}
        _print(json.dumps({"schema_version": 1, "verdict": None, "error": error}, indent=2), "json")
    return code


def _kept(arguments: Sequence[str], error: Exception) -> str:
    """Where the traceback is: on stderr with `--debug`, otherwise in a file."""
    import tempfile
    import traceback

    if "--debug" in arguments or os.environ.get("FASTTRACK_DEBUG"):
        traceback.print_exception(error)
        return "The traceback is above."
    try:
        with tempfile.NamedTemporaryFile(
            "w",
            prefix="fasttrack-crash-",
            suffix=".txt",
            delete=False,
            encoding="utf-8",
            errors="backslashreplace",
        ) as file:
            traceback.print_exception(error, file=file)
    except OSError:
        return "--debug shows the traceback."
    return f"The traceback is in {file.name}."


def _usage_advice(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    command = "fasttrack" if context is None else context.command_path
    return f"`{command} --help` lists what it takes."


def _asked(arguments: Sequence[str], option: str, variable: str) -> str | None:
    """An option's value before, or without, the parser: it must be known when parsing fails."""
    for index, argument in enumerate(arguments):
        if argument.startswith(f"{option}="):
            return argument.partition("=")[2]
        if argument == option and index + 1 < len(arguments):
            return arguments[index + 1]
    return os.environ.get(variable)


def _printable(text: str) -> str:
    """Text for a terminal: what could move the cursor or hide text is shown as an escape."""
    shown = "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
    return break_commands(shown) if in_github_job() else shown


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    """Once: `timeout` tells a process and then its whole group, and the second must not end what the first began."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt
