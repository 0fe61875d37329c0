"""The use cases behind `fasttrack kernels`: a run, its record, its text, its exit code."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar, cast

import click

from harness.kernels import rendering
from harness.kernels.bench_run import run_bench, run_tune
from harness.kernels.compile_run import run_compile
from harness.kernels.records import (
    BenchRun,
    CompileRun,
    InventoryRun,
    TuneRun,
)
from harness.kernels.subject import KernelSubject, load_subject
from harness.kernels.tests_run import run_tests
from harness.model.errors import ConfigurationError
from harness.model.kernel_tests import (
    KernelTestRun,
)
from harness.model.kernels import ARCHES, Arch
from harness.model.record import Record
from harness.model.words import ExitCode
from harness.options import CommandResult, OutputOptions

R = TypeVar("R", bound=Record)


def list_variants(*, manifest: Path, python: Path, out: Path | None, output: OutputOptions) -> CommandResult:
    """Every variant of the inventory."""
    run = InventoryRun(variants=_subject(manifest, python, out).inventory())
    return _result(run, lambda r: rendering.render_inventory(r.variants), ExitCode.ADMIT, out, output)


def compile_variants(
    *,
    manifest: Path,
    python: Path,
    out: Path | None,
    output: OutputOptions,
    match: str,
    arches: Sequence[str],
    jobs: int,
    uses_cache: bool,
) -> CommandResult:
    """Every variant compiled; a spill above its allowance or a failure is a fault, a missing kernel too."""
    unknown = [arch for arch in arches if arch not in ARCHES]
    if unknown:
        raise ConfigurationError(
            "unknown-arch", f"--arch: got {unknown[0]}, expected one of {', '.join(ARCHES)}"
        )
    wanted = cast(Sequence[Arch], arches)
    subject = _subject(manifest, python, out)
    run = run_compile(subject, wanted, match=match, jobs=jobs, uses_cache=uses_cache, quiet=output.quiet)
    return _result(run, rendering.render_compile, compile_code(run), out, output)


def compile_code(run: CompileRun) -> ExitCode:
    """1 when a kernel is missing or above its allowance, 3 when there is none at all."""
    if run.failures or run.missing or any(not kernel.is_within_allowance for kernel in run.kernels):
        return ExitCode.REJECT
    return ExitCode.ADMIT if run.kernels else ExitCode.UNDECIDED


def run_kernel_tests(
    *,
    manifest: Path,
    python: Path,
    out: Path | None,
    output: OutputOptions,
    match: str,
    pytest_args: Sequence[str],
    jobs: int,
    with_memcheck: bool,
) -> CommandResult:
    """The tests' outcomes and variant coverage, and what memcheck saw where it is asked for."""
    subject = _subject(manifest, python, out)
    run = run_tests(subject, pytest_args, match, jobs=jobs, with_memcheck=with_memcheck)
    return _result(run, rendering.render_tests, tests_code(run), out, output)


def tests_code(run: KernelTestRun) -> ExitCode:
    """1 when a test failed or memcheck reported something.

    3 when a test was not run, a variant was launched by none that passed, memcheck lost sight of a process, or the run
    was interrupted.
    """
    outcomes, checked = {test.outcome for test in run.tests}, run.memcheck
    if outcomes & {"failed", "error"} or (checked and checked.num_errors):
        return ExitCode.REJECT
    if run.stopped_by:
        return ExitCode.UNDECIDED
    if run.exit_status not in (0, 5):
        return ExitCode.REJECT
    if outcomes != {"passed"} or run.never_launched or (checked and not checked.is_clean):
        return ExitCode.UNDECIDED
    return ExitCode.ADMIT


def bench_cells(
    *, manifest: Path, python: Path, out: Path | None, output: OutputOptions, match: str, rounds: int
) -> CommandResult:
    """Times; a lost cell is shown, and is no fault by itself."""
    run = run_bench(_subject(manifest, python, out), match, rounds)
    return _result(run, rendering.render_bench, bench_code(run), out, output)


def bench_code(run: BenchRun) -> ExitCode:
    """3 when a cell's own kernel could not be timed, or the run ended early."""
    is_open = bool(run.stopped_by) or any(cell.candidate is None for cell in run.cells)
    return ExitCode.UNDECIDED if is_open else ExitCode.ADMIT


def tune_tables(
    *, manifest: Path, python: Path, out: Path | None, output: OutputOptions, match: str, rounds: int
) -> CommandResult:
    """The fastest choices, saved by the subject."""
    run = run_tune(_subject(manifest, python, out), match, rounds)
    return _result(run, rendering.render_tune, tune_code(run), out, output)


def tune_code(run: TuneRun) -> ExitCode:
    """3 when no choice of a task ran, or the run ended early."""
    is_open = bool(run.stopped_by) or any(choice.chosen is None for choice in run.choices)
    return ExitCode.UNDECIDED if is_open else ExitCode.ADMIT


def _subject(manifest: Path, python: Path, out: Path | None) -> KernelSubject:
    """The subject, once it is known that the record can be written: a run may take minutes of a GPU."""
    if out is not None:
        _check_writable(out)
    return load_subject(manifest, python)


def _check_writable(out: Path) -> None:
    """Raises ConfigurationError where the file cannot be opened; leaves no file that was not there."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        was_there = os.path.lexists(out)
        out.open("a").close()
        if not was_there:
            out.unlink()
    except OSError as error:
        raise ConfigurationError("out", f"--out: {out} cannot be written: {error.strerror}") from error


def _result(
    run: R, render: Callable[[R], str], code: ExitCode, out: Path | None, output: OutputOptions
) -> CommandResult:
    record = run.model_dump_json(indent=1)
    text = record if output.format == "json" else render(run)
    try:
        if out is not None:
            out.write_text(record + "\n", encoding="utf-8")
    except OSError as error:
        # The result is there and may have cost a GPU: it is shown all the same.
        click.echo(f"error[out]: --out: {out} was not written: {error.strerror}", err=True)
        return CommandResult(text=text, exit_code=ExitCode.HARNESS)
    return CommandResult(text=text, exit_code=code)
