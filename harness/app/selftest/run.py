"""Runs the catalogue through the real pipeline, and counts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NoReturn

from bundles.layout import SHA256SUMS
from bundles.reader import read_bundle
from bundles.readings import content_of
from harness.app.collector import collect_again
from harness.app.cpu_tier import CpuRun
from harness.app.own_tests import collect_own_tests
from harness.app.recorder import Progress
from harness.app.selftest.catalogue import CATALOGUE, Case, load_catalogue
from harness.app.selftest.clean_cases import make_clean_cases
from harness.app.selftest.judging import answer, not_run_at, parts_to_ask, result_of
from harness.app.selftest.kept import (
    SLOW,
    TIMED,
    KeptArms,
    KeptRuns,
    collect_baselines,
    collect_timed,
    sizes_of,
)
from harness.app.selftest.pool import interruptible_pool, run_in_child
from harness.app.selftest.report import exit_code_of, render_report, report_of
from harness.app.selftest.tampering import Tampering
from harness.app.selftest.workplace import Workplace, changed_paths, find_root, head_of
from harness.app.validate import validate
from harness.engine.supervisor import adopt_orphans, kill_tree
from harness.facts.environment import can_run, collect_environment
from harness.model.errors import ConfigurationError, FasttrackError
from harness.model.evidence import EnvironmentEvidence
from harness.model.selftest import (
    CaseResult,
    CaseVerdict,
    Stage,
)
from harness.model.words import ExitCode, Tier
from harness.options import (
    ChangeOptions,
    CommandResult,
    OutputOptions,
    SelftestOptions,
    ValidateOptions,
)

SUBJECT = ("specialized_path/**",)
_ENGINES = (Stage.PROBE, Stage.ARM, Stage.TIMING, Stage.GPU)
_ROUNDS = (
    (Stage.STATIC, Stage.BUNDLE),
    (Stage.TESTS, Stage.EVIDENCE, Stage.PROBE, Stage.ARM),
    (Stage.QUICK,),
    (Stage.TIMING,),
    (Stage.GPU,),
)
"""Stages that go together: those without an engine, those with one, those with baselines of the quick profile, and what
must have the machine, or its GPU, for itself."""
_ALONE = (Stage.TIMING, Stage.GPU)
_TIERS = {Stage.STATIC: Tier.STATIC, Stage.GPU: Tier.GPU}
"""How far a change is judged where not up to the cpu tier."""


def selftest(options: SelftestOptions) -> CommandResult:
    """Runs the faults and twins that this machine can run, and gives the table with both rates.

    Exit code 0 when every fault that was run is found or known to escape and no twin is rejected, 1 otherwise, 4 when a
    case broke.
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
    with tempfile.TemporaryDirectory(prefix="fasttrack-selftest-", ignore_cleanup_errors=True) as folder:
        if options.clean:
            cases = make_clean_cases(root, Path(folder), options.clean, options.seed)
        run = Selftest(Workplace(root=root, folder=Path(folder)), options, progress)
        try:
            run.run_all(cases)
        except KeyboardInterrupt:
            print(render_report(report_of(root, run.results), options), flush=True)
            progress.say(f"interrupted: {len(run.results)} of {len(cases)} cases have a verdict")
            abandon(Path(folder))
    report = report_of(root, run.results)
    return CommandResult(text=render_report(report, options), exit_code=exit_code_of(report))


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
    arms: KeptArms = field(default_factory=KeptArms)
    runs: KeptRuns = field(init=False)
    tampering: Mapping[Stage, Tampering] = field(init=False)
    not_run_before: frozenset[str] = frozenset()
    """Static checks that are not run on the clean tree."""
    results: list[CaseResult] = field(default_factory=list)
    """Of the cases that are done."""

    def __post_init__(self) -> None:
        self.runs = KeptRuns(folder=self.workplace.folder / "runs")
        self.tampering = {
            Stage.BUNDLE: Tampering(self.workplace, "honest", Tier.STATIC, collect_timed),
            Stage.EVIDENCE: Tampering(self.workplace, "measured", Tier.CPU, collect_timed),
        }

    def run_all(self, cases: Iterable[Case]) -> None:
        """Every case, those without an engine first, as many at a time as was asked for.

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
        for stages in _ROUNDS:
            chosen = [case for case in todo if case.fault.stage in stages]
            if chosen:
                self._prepare(chosen)
                self._run_round(chosen, 1 if stages[0] in _ALONE else self.options.jobs)

    def _run_round(self, chosen: Sequence[Case], at_a_time: int) -> None:
        """The cases in processes of their own, which have what was prepared."""
        with interruptible_pool(at_a_time, self.run_group) as pool:
            running = {pool.submit(run_in_child, group): group for group in self._group(chosen)}
            try:
                for done in as_completed(running):
                    self.results += self._outcome(done, running.pop(done))
            except KeyboardInterrupt:
                for done in [future for future in running if future.done()]:
                    self.results += self._outcome(done, running[done])
                raise

    def _outcome(self, done: Future[list[CaseResult]], group: list[Case]) -> list[CaseResult]:
        """What a group gave; for one that an error of another's kind ended, that."""
        error = done.exception()
        if error is None:
            return done.result()
        reason = f"{type(error).__name__}: {error}"
        self.progress.say(f"{', '.join(case.name for case in group)}: {reason}")
        return [answer(case, CaseVerdict.ERROR, reason=reason) for case in group]

    def _group(self, cases: Sequence[Case]) -> list[list[Case]]:
        """A fault is alone, since one could hide another; clean twins that take an engine share it.

        Those that ask for features come first: they take longest.
        """
        shared = [c for c in cases if c.is_twin and c.fault.stage in _ENGINES and c.base is None]
        groups = [[c] for c in cases if c not in shared]
        for stage in _ENGINES:
            twins = {c.edit: c for c in shared if c.fault.stage is stage}
            if twins:
                together = self.workplace.group(f"twins-{stage}", twins)
                groups += [[twins[edit] for edit in edits] for edits in together]
        return sorted(groups, key=lambda group: not any(c.fault.features for c in group))

    def _why_not(self, case: Case) -> str:
        """Why this machine, or this call, cannot run a case."""
        tier = case.fault.tier
        if tier.rank > self.options.tier.rank:
            return f"tier {tier} was not asked for (--tier {self.options.tier})"
        able, why_not = can_run(tier)
        if not able:
            return why_not
        if case.fault.needs_kernel_compiler and not has_kernel_compiler(self.options.python):
            return f"{self.options.python} has no CuTe DSL; name one that has it with --python"
        return ""

    def _prepare(self, cases: Sequence[Case]) -> None:
        """Runs what the cases share."""
        stages = {case.fault.stage for case in cases}
        for stage in stages & set(self.tampering):
            self.progress.say(f"the honest bundle of the stage {stage}")
            self.tampering[stage].prepare()
        behind_servers = [case for case in cases if case.fault.stage in (Stage.ARM, Stage.QUICK)]
        if not behind_servers and Stage.PROBE not in stages:
            return

        def collect(run: CpuRun) -> None:
            if Stage.PROBE in stages:
                self.progress.say("the clean tree's scripted runs")
                self.runs.collect_clean(run, self.workplace.clean)
            if behind_servers:
                self.progress.say("the clean tree's baselines")
                collect_baselines(run, sizes_of(behind_servers))

        kept = self.options.baselines or self.workplace.folder / "bundles" / "clean"
        if not self._is_of_this_tree(kept):
            self._judge(self.workplace.clean, "empty", kept, Tier.CPU, collect, paths=SUBJECT)
        bundle = read_bundle(kept)
        self.arms.keep(bundle.records)
        self.not_run_before = not_run_at(bundle.judgement, Tier.STATIC)

    def _is_of_this_tree(self, kept: Path) -> bool:
        """Whether an earlier call left a bundle there, of the same files and in the same environment."""
        if self.options.baselines is None or not (kept / SHA256SUMS).is_file():
            return False
        bundle = read_bundle(kept)
        found = {content_of(r) for r in bundle.records if isinstance(r, EnvironmentEvidence)}
        is_here = found == {content_of(collect_environment(Tier.STATIC))}
        return is_here and bundle.change.head == head_of(self.workplace.clean)

    def run_group(self, cases: list[Case]) -> list[CaseResult]:
        """What is said of each of the cases, brought as one change."""
        started = time.monotonic()
        try:
            results = self._judge_group(cases, started)
        except FasttrackError as error:
            seconds, reason = time.monotonic() - started, f"{error.message} {error.advice}".strip()
            results = [answer(case, CaseVerdict.ERROR, seconds, reason=reason) for case in cases]
        collect_again()
        again = parts_to_ask(cases, results)
        asked = {case.name for part in again for case in part}
        for case, result in zip(cases, results, strict=True):
            if case.name not in asked:
                self.progress.say(f"{case.name}: {result.verdict} ({result.seconds:.0f} s)")
        kept = [result for case, result in zip(cases, results, strict=True) if case.name not in asked]
        return kept + [result for part in again for result in self.run_group(part)]

    def _judge_group(self, cases: list[Case], started: float) -> list[CaseResult]:
        stage = cases[0].fault.stage
        name = cases[0].name if len(cases) == 1 else f"{cases[0].name}-and-{len(cases) - 1}-more"
        if stage in self.tampering:
            return [self.tampering[stage].judge(case, started) for case in cases]
        repo = self.workplace.commit_on_top(name, [case.edit for case in cases], cases[0].base)
        changed = changed_paths(repo)

        def collect(run: CpuRun) -> None:
            if stage is Stage.PROBE:
                self.runs.collect_case(run, changed)
            elif stage is Stage.TESTS:
                assert run.own_tests is not None
                collect_own_tests(run.own_tests)
            elif stage in (Stage.ARM, Stage.QUICK):
                self.arms.collect_case(run, changed, sizes_of(cases))
            elif stage is Stage.GPU:
                run.recorder.gap(Tier.CPU, f"tier {Tier.CPU}", "the case is of the gpu tier", broke=False)
            else:
                collect_timed(run, TIMED if any(case.is_twin for case in cases) else SLOW)

        tier = _TIERS.get(stage, Tier.CPU)
        out = self.workplace.folder / "bundles" / name
        self._judge(repo, "HEAD~1", out, tier, collect)
        judgement = read_bundle(out).judgement
        seconds = time.monotonic() - started
        return [result_of(case, judgement, seconds, not_run_before=self.not_run_before) for case in cases]

    def _judge(
        self,
        repo: Path,
        base: str,
        out: Path,
        tier: Tier,
        collect: Callable[[CpuRun], None],
        *,
        paths: tuple[str, ...] = (),
    ) -> None:
        """Leaves the bundle of a change in `out`."""
        change = ChangeOptions(repo=repo, base=base, tier=tier, paths=paths)
        options = ValidateOptions(
            change=change,
            out=out,
            output=OutputOptions(quiet=not self.options.verbose),
            python=self.options.python,
            profile="quick" if tier is Tier.GPU else "full",
        )
        if validate(options, collect_cpu=collect).exit_code is ExitCode.INTERRUPTED:
            raise KeyboardInterrupt


@cache
def has_kernel_compiler(python: Path) -> bool:
    """Whether an interpreter can import the DSL in which kernels are written."""
    probe = [str(python), "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('cutlass') is None)"]
    return subprocess.run(probe, capture_output=True, timeout=60, cwd=sys.prefix).returncode == 0
