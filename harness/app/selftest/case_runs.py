"""What one process of a selftest does: runs that many cases share, and cases with what those left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

from bundles.contents import Bundle
from bundles.layout import SHA256SUMS
from bundles.reader import read_bundle
from bundles.readings import content_of
from harness.app.collector import collect_again
from harness.app.cpu_tier import CpuRun, collect_cpu_tier
from harness.app.gpu_tier import GpuRequest, collect_gpu_tier
from harness.app.own_tests import collect_own_tests
from harness.app.recorder import Progress
from harness.app.selftest.catalogue import Case
from harness.app.selftest.gpu_asks import asked_of, shares_of
from harness.app.selftest.gpu_room import NOT_MEASURED, GpuMemory, GpuRoom
from harness.app.selftest.judging import answer, not_run_at, parts_to_ask, result_of
from harness.app.selftest.kept import (
    MEASURED,
    SLOW,
    TIMED,
    KeptArms,
    KeptRun,
    KeptRuns,
    collect_baselines,
    sizes_of,
)
from harness.app.selftest.kept_models import KeptModels
from harness.app.selftest.schedule import NEEDED, Shared, Task, is_timed_twin
from harness.app.selftest.shared_machine import SharedMachine
from harness.app.selftest.tampering import Tampering
from harness.app.selftest.workplace import Workplace, changed_paths, head_of
from harness.app.suite_plan import CpuSizes
from harness.app.validate import validate
from harness.facts.environment import collect_environment
from harness.model.errors import FasttrackError
from harness.model.evidence import EnvironmentEvidence
from harness.model.selftest import CaseResult, CaseVerdict, Stage
from harness.model.words import ExitCode, Tier
from harness.options import ChangeOptions, OutputOptions, SelftestOptions, ValidateOptions

SUBJECT = ("specialized_path/**",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What the shared runs left, as far as they are done: small, since each task is given it."""

    open_before: Mapping[Shared, frozenset[str]] = field(default_factory=dict)
    """What keeps the gate shut before a bundle is tampered with."""
    runs: Mapping[str, KeptRun] = field(default_factory=dict)
    """The scripted runs of the clean tree's twin and base, by name."""
    measured: frozenset[str] = frozenset()
    """Names of the twins that are part of the change whose bundle of all arms, timed, is tampered with."""
    is_clean_kept: bool = False
    """Whether the clean tree's bundle is written."""

    @property
    def shared(self) -> frozenset[Shared]:
        """The shared runs that are done."""
        return frozenset(self.open_before) | ({Shared.CLEAN} if self.is_clean_kept else set())

    def with_more(self, other: Made) -> Made:
        """Both together."""
        return Made(
            open_before={**self.open_before, **other.open_before},
            runs={**self.runs, **other.runs},
            measured=self.measured | other.measured,
            is_clean_kept=self.is_clean_kept or other.is_clean_kept,
        )


class CaseRuns:
    """The tasks of one selftest, as a process of its pool does them."""

    def __init__(
        self,
        workplace: Workplace,
        options: SelftestOptions,
        progress: Progress,
        gpu: GpuMemory = NOT_MEASURED,
    ) -> None:
        self._workplace, self._options, self._progress = workplace, options, progress
        self._room = GpuRoom(workplace.folder, gpu)
        self._machine = SharedMachine(workplace.folder)
        self._runs = KeptRuns(folder=workplace.folder / "runs")
        self._models = KeptModels(workplace.folder / "models")
        self._tampering = {
            shared: Tampering(workplace, shared, tier, self._keeping_models(self._collect_timed))
            for shared, tier in ((Shared.HONEST, Tier.STATIC), (Shared.MEASURED, Tier.CPU))
        }

    def work(self, task: Task, made: Made) -> list[CaseResult] | Made:
        """What is said of the task's cases, or what its shared run leaves."""
        with self._machine.beside_others():
            return self.run_group(task.cases, made) if task.makes is None else self._make(task)

    def _make(self, task: Task) -> Made:
        shared, cases = task.makes, task.cases
        if shared in self._tampering:
            self._progress.say(f"an honest change's bundle to tamper with: {shared}")
            return self._make_honest(shared, [case for case in cases if is_timed_twin(case)])
        behind_servers = [case for case in cases if case.fault.stage is not Stage.PROBE]
        is_scripted = len(behind_servers) < len(cases) or self._sizes_of(cases).with_probes
        is_kept = self._is_of_this_tree(self._clean_bundle)
        runs: dict[str, KeptRun] = {}

        def collect(run: CpuRun) -> None:
            if is_scripted:
                self._progress.say("the clean tree's scripted runs")
                runs.update(self._runs.collect_clean(run, self._workplace.clean))
            if behind_servers and not is_kept:
                self._progress.say("the clean tree's baselines")
                collect_baselines(run, self._sizes_of(behind_servers))

        if is_scripted or not is_kept:
            # Scripted runs are made by every call: what they leave is no part of a bundle.
            out = self._workplace.folder / "bundles" / "scripted" if is_kept else self._clean_bundle
            self._judge(self._workplace.clean, "empty", out, Tier.CPU, collect, paths=SUBJECT)
        return Made(runs=runs, is_clean_kept=True)

    def _make_honest(self, shared: Shared, twins: Sequence[Case]) -> Made:
        """The bundle that is tampered with; twins whose patches fit are part of the change."""
        tampering = self._tampering[shared]
        patches = [tampering.patch, *(case.edit for case in twins)]
        fitting = self._workplace.group(f"{shared}-fitting", patches)[0] if twins else patches
        brought = [case for case in twins if case.edit in fitting and tampering.patch in fitting]
        open_before = tampering.prepare([case.edit for case in brought])
        return Made(open_before={shared: open_before}, measured=frozenset(case.name for case in brought))

    def _sizes_of(self, cases: Sequence[Case]) -> CpuSizes:
        return sizes_of(cases, self._options.profile)

    @property
    def _clean_bundle(self) -> Path:
        kept = self._options.baselines
        return kept / self._options.profile if kept else self._workplace.folder / "bundles" / "clean"

    def _is_of_this_tree(self, kept: Path) -> bool:
        """Whether an earlier call left a bundle there, of the same files and in the same environment."""
        if self._options.baselines is None or not (kept / SHA256SUMS).is_file():
            return False
        bundle = read_bundle(kept)
        found = {content_of(r) for r in bundle.records if isinstance(r, EnvironmentEvidence)}
        is_here = found == {content_of(collect_environment(Tier.STATIC))}
        return is_here and bundle.change.head == head_of(self._workplace.clean)

    def run_group(self, cases: Sequence[Case], made: Made) -> list[CaseResult]:
        """What is said of each of the cases, brought as one change."""
        started = time.monotonic()
        is_on_gpu = cases[0].fault.stage is Stage.GPU
        try:
            results = (
                self._judge_on_a_gpu(cases, started) if is_on_gpu else self._judge_group(cases, made, started)
            )
        except FasttrackError as error:
            seconds, reason = time.monotonic() - started, f"{error.message} {error.advice}".strip()
            results = [answer(case, CaseVerdict.ERROR, seconds, reason=reason) for case in cases]
        collect_again()
        again = parts_to_ask(cases, results)
        asked = {case.name for part in again for case in part}
        for case, result in zip(cases, results, strict=True):
            if case.name not in asked:
                self._progress.say(f"{case.name}: {result.verdict} ({result.seconds:.0f} s)")
        for part in again:
            said = next(r for case, r in zip(cases, results, strict=True) if case is part[0])
            names = ", ".join(case.name for case in part)
            self._progress.say(f"asked again, since {said.verdict} ({said.reason[:400]}): {names}")
        kept = [result for case, result in zip(cases, results, strict=True) if case.name not in asked]
        return kept + [result for part in again for result in self.run_group(part, made)]

    def _judge_group(self, cases: Sequence[Case], made: Made, started: float) -> list[CaseResult]:
        stage = cases[0].fault.stage
        name = _name_of(cases)
        if stage.is_tampering:
            shared = NEEDED[stage]
            tampering = self._tampering[shared]
            return [tampering.judge(case, started, made.open_before[shared]) for case in cases]
        if known := self._measured(cases, made, started):
            return known
        kept = _bundle_of(self._clean_bundle) if NEEDED.get(stage) is Shared.CLEAN else None
        repo = self._workplace.commit_on_top(name, [case.edit for case in cases], cases[0].base)
        changed = changed_paths(repo)

        def collect(run: CpuRun) -> None:
            if stage is Stage.PROBE:
                self._runs.collect_case(run, changed, made.runs)
            elif stage is Stage.TESTS:
                assert run.own_tests is not None
                collect_own_tests(run.own_tests)
            elif kept is not None:
                scripted = replace(
                    run, collect_probes=lambda _: self._runs.collect_case(run, changed, made.runs)
                )
                KeptArms.of(kept.records).collect_case(scripted, changed, self._sizes_of(cases))
            else:
                self._collect_timed(run, TIMED if any(case.is_twin for case in cases) else SLOW)

        out = self._workplace.folder / "bundles" / name
        self._judge(repo, "HEAD~1", out, Tier.STATIC if stage is Stage.STATIC else Tier.CPU, collect)
        judgement = read_bundle(out).judgement
        seconds = time.monotonic() - started
        not_run_before = frozenset() if kept is None else not_run_at(kept.judgement, Tier.STATIC)
        results = [result_of(case, judgement, seconds, not_run_before=not_run_before) for case in cases]
        return [result.model_copy(update={"change": judgement.verdict}) for result in results]

    def _measured(self, cases: Sequence[Case], made: Made, started: float) -> list[CaseResult]:
        """What is said of twins that are part of the measured change; nothing where the rest could have a share."""
        if not made.measured.issuperset(case.name for case in cases):
            return []
        judgement = self._tampering[Shared.MEASURED].judgement()
        results = [result_of(case, judgement, time.monotonic() - started) for case in cases]
        for case, result in zip(cases, results, strict=True):
            if result.verdict not in (CaseVerdict.CLEAN, CaseVerdict.UNDECIDED):
                why = f"{result.verdict} with the honest change ({result.reason[:400]})"
                self._progress.say(f"{case.name}: {why}: measured again without")
                return []
        return results

    def _judge_on_a_gpu(self, cases: Sequence[Case], started: float) -> list[CaseResult]:
        name = _name_of(cases)
        asked = asked_of(cases)

        def leave_out(run: CpuRun) -> None:
            run.recorder.gap(Tier.CPU, f"tier {Tier.CPU}", "the case is of the gpu tier", broke=False)

        # Before anything else is done: who needs most is to come first.
        with self._room.announced(shares_of(asked)) as announced:
            request = GpuRequest(
                engines=asked, memory_share=self._room.memory.share, room_for=announced.taken
            )
            repo = self._workplace.commit_on_top(name, [case.edit for case in cases], cases[0].base)
            out = self._workplace.folder / "bundles" / name
            on_gpu = partial(collect_gpu_tier, request=request)
            self._judge(repo, "HEAD~1", out, Tier.GPU, leave_out, collect_gpu=on_gpu)
        judgement = read_bundle(out).judgement
        seconds = time.monotonic() - started
        results = [result_of(case, judgement, seconds) for case in cases]
        return [result.model_copy(update={"change": judgement.verdict}) for result in results]

    def _collect_timed(self, run: CpuRun, sizes: CpuSizes = MEASURED) -> None:
        """All arms, with few requests and all timed cells; nothing runs beside those."""
        collect_cpu_tier(replace(run, sizes=sizes, while_timed=self._machine.alone))

    def _keeping_models(self, collect: Callable[[CpuRun], None]) -> Callable[[CpuRun], None]:
        """The same, but that the miniature model is built once of the same files."""
        return lambda run: collect(replace(run, build_model=self._models.build))

    def _judge(
        self,
        repo: Path,
        base: str,
        out: Path,
        tier: Tier,
        collect: Callable[[CpuRun], None],
        *,
        paths: tuple[str, ...] = (),
        collect_gpu: Callable[[CpuRun], None] = collect_gpu_tier,
    ) -> None:
        """Leaves the bundle of a change in `out`."""
        change = ChangeOptions(repo=repo, base=base, tier=tier, paths=paths)
        options = ValidateOptions(
            change=change,
            out=out,
            output=OutputOptions(quiet=not self._options.verbose),
            python=self._options.python,
            profile="quick" if tier is Tier.GPU else "full",
        )
        keeping = self._keeping_models(collect)
        if validate(options, collect_cpu=keeping, collect_gpu=collect_gpu).exit_code is ExitCode.INTERRUPTED:
            raise KeyboardInterrupt


def _name_of(cases: Sequence[Case]) -> str:
    """Of their common change."""
    return cases[0].name if len(cases) == 1 else f"{cases[0].name}-and-{len(cases) - 1}-more"


@cache
def _bundle_of(folder: Path) -> Bundle:
    """The clean tree's, read once a process."""
    return read_bundle(folder)
