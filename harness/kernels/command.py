"""`fasttrack kernels`: options only; the work is imported when a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.cli_options import PATH, combined, option, output, output_options, python_option
from harness.options import CommandResult

_EPILOG = (
    "Exit codes: 0 all in order, 1 a fault was shown, 2 usage, 3 something is open, 4 the harness failed."
)
_subject_options = combined(
    option("--manifest", "Manifest file.", type=PATH, default=Path("fasttrack.toml"), show_default=True),
    python_option,
    option("--out", "Also write the run's record, as JSON, to this file.", type=PATH),
)
_match = click.option("--match", default="*", show_default=True, help="Only what this glob names.")
_rounds = click.option(
    "--rounds", type=click.IntRange(min=5), default=15, show_default=True, help="Timed replays of each."
)


@click.group("kernels")
def kernels() -> None:
    """List, compile, test, time and tune the kernels that a manifest names."""


@kernels.command("list", epilog=_EPILOG)
@_subject_options
@output_options
def list_(**options: Any) -> CommandResult:
    """List every kernel variant: what it serves, and the role of each argument."""
    from harness.kernels.commands import list_variants

    return list_variants(output=output(options), **_subject(options))


@kernels.command("compile", epilog=_EPILOG)
@_subject_options
@_match
@click.option("--arch", "arches", multiple=True, help="Only this architecture; repeatable.")
@click.option("--jobs", type=click.IntRange(min=1), show_default="the cores", help="Compilations at a time.")
@click.option("--no-cache", is_flag=True, help="Compile what an earlier run has compiled as well.")
@output_options
def compile_(
    match: str, arches: tuple[str, ...], jobs: int | None, no_cache: bool, **options: Any
) -> CommandResult:
    """Compile every variant for every architecture, without a GPU.

    Entry points that can give none of the variants of --match, by `variants` in the manifest, are left out.
    """
    from harness.kernels.commands import compile_variants

    return compile_variants(
        match=match,
        arches=arches,
        jobs=jobs or 0,
        uses_cache=not no_cache,
        output=output(options),
        **_subject(options),
    )


@kernels.command("test", epilog=_EPILOG, context_settings={"ignore_unknown_options": True})
@_subject_options
@click.option(
    "--match", default="*", show_default=True, help="Variants that the tests must launch, as a glob."
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Pytest processes at a time, each with a share of the tests.",
)
@click.option(
    "--memcheck",
    "with_memcheck",
    is_flag=True,
    help="Run them under compute-sanitizer's memcheck, once it has found a planted fault.",
)
@output_options
@click.argument("pytest_args", nargs=-1, type=click.UNPROCESSED)
def test(
    match: str, jobs: int, with_memcheck: bool, pytest_args: tuple[str, ...], **options: Any
) -> CommandResult:
    """Run the kernels' tests and record what each launched; further arguments go to pytest.

    Arguments that select tests (-k, -m) want a --match that names the variants of that selection.
    """
    from harness.kernels.commands import run_kernel_tests

    return run_kernel_tests(
        match=match,
        pytest_args=pytest_args,
        jobs=jobs,
        with_memcheck=with_memcheck,
        output=output(options),
        **_subject(options),
    )


@kernels.command("bench", epilog=_EPILOG)
@_subject_options
@_match
@_rounds
@output_options
def bench(match: str, rounds: int, **options: Any) -> CommandResult:
    """Time the kernels against their baselines on this machine's GPU."""
    from harness.kernels.commands import bench_cells

    return bench_cells(match=match, rounds=rounds, output=output(options), **_subject(options))


@kernels.command("tune", epilog=_EPILOG)
@_subject_options
@_match
@_rounds
@output_options
def tune(match: str, rounds: int, **options: Any) -> CommandResult:
    """Time every choice of the kernels' tables on this GPU, and save the fastest."""
    from harness.kernels.commands import tune_tables

    return tune_tables(match=match, rounds=rounds, output=output(options), **_subject(options))


def _subject(options: dict[str, Any]) -> dict[str, Any]:
    return {name: options[name] for name in ("manifest", "python", "out")}
