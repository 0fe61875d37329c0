"""Runs the catalogue through the real pipeline, and counts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import NoReturn

from harness.app.recorder import Progress
from harness.app.selftest.case_runs import CaseRuns, Made
from harness.app.selftest.catalogue import CATALOGUE, Case, load_catalogue
from harness.app.selftest.clean_cases import make_clean_cases
from harness.app.selftest.gpu_room import NOT_MEASURED, GpuMemory
from harness.app.selftest.judging import answer
from harness.app.selftest.kept import needs_evaluations
from harness.app.selftest.pool import interruptible_pool, run_in_child
from harness.app.selftest.report import exit_code_of, render_report, report_of
from harness.app.selftest.schedule import Task, next_task, plan_tasks
from harness.app.selftest.workplace import Workplace, find_root, head_of
from harness.engine.supervisor import adopt_orphans, kill_tree
from harness.facts.environment import can_run
from harness.model.errors import ConfigurationError
from harness.model.selftest import NOT_ASKED, STOPPED, CaseResult, CaseVerdict, Stage
from harness.model.words import ExitCode
from harness.options import CommandResult, SelftestOptions

_SHARED = (Stage.TESTS, Stage.PROBE, Stage.ARM, Stage.TIMING, Stage.GPU)
"""Stages whose twins are brought together where their patches can be merged."""


def selftest(options: SelftestOptions) -> CommandResult:
    """Runs the faults and twins that this machine can run, and gives the table with both rates.

    Exit code 0 when every fault is found or known to escape and every twin clean, 1 when one is not, 3 when one that
    was asked for could not be run or a twin is undecided, 4 when a case broke.
    """
    root = find_root(options.repo)
    if options.only if options.clean else options.baselines:
        raise ConfigurationError(
            "clean-or-catalogue",
            "Made clean changes and the catalogue are two runs: --baselines goes with --clean, --only does not.",
            "Leave one of them out.",
        )
    cases = () if options.clean else load_catalogue(root / CATALOGUE, options.only)
    progress = Progress(quiet=options.output.quiet)
    report = partial(report_of, root, options=options, commit=head_of(root))
    done: CommandResult | None = None
    try:
        with tempfile.TemporaryDirectory(prefix="fasttrack-selftest-", ignore_cleanup_errors=True) as folder:
            if options.clean:
                cases = make_clean_cases(root, Path(folder), options.clean, options.seed)
            run = Selftest(Workplace(root=root, folder=Path(folder)), options, progress)
            try:
                run.run_all(cases)
            except KeyboardInterrupt:
                print(render_report(report([*run.results, *run.stopped(cases)]), options), flush=True)
                progress.say(f"interrupted: {len(run.results)} of {len(cases)} cases have a verdict")
                abandon(Path(folder))
            found = report(run.results)
            done = CommandResult(text=render_report(found, options), exit_code=exit_code_of(found))
    except KeyboardInterrupt:
        # While the folder was removed: what was found stays found.
        if done is None:
            raise
    return done


def abandon(folder: Path) -> NoReturn:
    """Ends this process, and whatever it started, at once.

    Another program takes this process over, and removes the folder.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    adopt_orphans()
    kill_tree()
    script = f'rm -rf -- "$1"; exit {ExitCode.INTERRUPTED.value}'
    os.execv("/bin/sh", ["sh", "-c", script, "sh", str(folder)])


@dataclass(slots=True)
class Selftest:
    """One run over cases."""

    workplace: Workplace
    options: SelftestOptions
    progress: Progress
    made: Made = field(default_factory=Made)
    """What the shared runs left that are done."""
    results: list[CaseResult] = field(default_factory=list)
    """Of the cases that are done."""
    gpu: GpuMemory = NOT_MEASURED

    def run_all(self, cases: Iterable[Case]) -> None:
        """Every case, as many at a time as was asked for.

        A case that breaks, by whatever error, is a row of its own.
        """
        todo = []
        for case in cases:
            reason = self._why_not(case)
            if reason:
                self.results.append(answer(case, CaseVerdict.NOT_RUN, reason=reason))
            else:
                todo.append(case)
        if not todo:
            return
        self.workplace.copy_tree()
        (self.workplace.folder / "runs").mkdir()
        if any(case.fault.stage is Stage.GPU for case in todo):
            self.gpu = GpuMemory.measured()
        waiting = plan_tasks(self._group(todo))
        while waiting:
            self._do(waiting)

    def stopped(self, cases: Iterable[Case]) -> list[CaseResult]:
        """Rows of the cases that have no verdict: what takes longest would be missing else."""
        known = {(result.id, result.is_twin) for result in self.results}
        without = [case for case in cases if (case.id, case.is_twin) not in known]
        return [answer(case, CaseVerdict.NOT_RUN, reason=STOPPED) for case in without]

    def _do(self, waiting: list[Task]) -> None:
        """The tasks, in processes of their own; until there are none, or one of the processes has died."""
        running: dict[Future[list[CaseResult] | Made], Task] = {}
        is_whole, jobs = True, self.options.jobs
        with interruptible_pool(jobs, self._begin_child) as pool:
            try:
                while running or (waiting and is_whole):
                    while is_whole and len(running) < jobs:
                        task = next_task(waiting, running.values(), self.made.shared, jobs)
                        if task is None:
                            break
                        running[pool.submit(run_in_child, task, self.made)] = task
                        waiting.remove(task)
                    for done in wait(running, return_when=FIRST_COMPLETED).done:
                        self._take(running.pop(done), done, waiting)
                        is_whole = is_whole and not isinstance(done.exception(), BrokenProcessPool)
            except BrokenProcessPool:
                # One died while the next task was handed over: what ran has died with it.
                for done, task in running.items():
                    self._take(task, done, waiting)
            except KeyboardInterrupt:
                for done in [future for future in running if future.done()]:
                    self._take(running[done], done, waiting)
                raise

    def _begin_child(self) -> Callable[[Task, Made], list[CaseResult] | Made]:
        """What a process of the pool calls."""
        return CaseRuns(self.workplace, self.options, self.progress, self.gpu).work

    def _take(self, task: Task, done: Future[list[CaseResult] | Made], waiting: list[Task]) -> None:
        """Keeps what a task gave; where an error ended it, that is said of its cases."""
        error = done.exception()
        if error is None:
            given = done.result()
            if isinstance(given, Made):
                self.made = self.made.with_more(given)
            else:
                self.results += given
            return
        reason = f"{type(error).__name__}: {error}"
        self.progress.say(f"{task.makes or ', '.join(case.name for case in task.cases)}: {reason}")
        self.results += [answer(case, CaseVerdict.ERROR, reason=reason) for case in task.cases]
        if task.makes is not None:
            waiting[:] = [other for other in waiting if other.needs is not task.makes]

    def _group(self, cases: Sequence[Case]) -> list[list[Case]]:
        """A fault is alone, since one could hide another; clean twins that take an engine, or run tests, share that.

        Those come first: nothing is to be left that waits for the longest.
        """
        shared = [c for c in cases if c.is_twin and c.fault.stage in _SHARED and c.base is None]
        groups: list[list[Case]] = []
        for stage in _SHARED:
            twins = {c.edit: c for c in shared if c.fault.stage is stage}
            if twins:
                together = self.workplace.group(f"twins-{stage}", twins)
                groups += [[twins[edit] for edit in edits] for edits in together]
        return groups + [[c] for c in cases if c not in shared]

    def _why_not(self, case: Case) -> str:
        """Why this machine, or this call, cannot run a case."""
        tier = case.fault.tier
        if tier.rank > self.options.tier.rank:
            return f"tier {tier} was {NOT_ASKED} (--tier {self.options.tier})"
        if needs_evaluations(case) and self.options.profile != "full":
            return f"evaluations were {NOT_ASKED} (--profile full)"
        able, why_not = can_run(tier)
        if not able:
            return why_not
        if case.fault.needs_kernel_compiler and not has_kernel_compiler(self.options.python):
            return f"{self.options.python} has no CuTe DSL; name one that has it with --python"
        return ""


@cache
def has_kernel_compiler(python: Path) -> bool:
    """Whether an interpreter can import the DSL in which kernels are written."""
    probe = [str(python), "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('cutlass') is None)"]
    return subprocess.run(probe, capture_output=True, timeout=60, cwd=sys.prefix).returncode == 0
