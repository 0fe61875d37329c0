"""What no case changes, run once: the baselines through the suites, and the scripted runs without the path."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from harness.app.cpu_tier import CpuRun, collect_cpu_tier, probe_run
from harness.app.probe_plans import plan_probes
from harness.app.probes import FinishedRun, record_runs, run_processes
from harness.app.selftest.catalogue import Case
from harness.app.suite_plan import SIZES as PROFILES
from harness.app.suite_plan import CpuSizes
from harness.engine.arm_spec import ArmSpec
from harness.engine.bystander import write_bystander
from harness.engine.probe.process import ProbeProcess
from harness.engine.probe.recording import Recording, read_recording
from harness.model.evidence import AnyEvidence, ArmEvidence, LedgerEvidence, SuiteEvidence
from harness.model.features import FEATURES, Feature
from harness.model.ledger import ImportedFile
from harness.model.manifest import Manifest
from harness.model.probe import ProbePlan
from harness.model.selftest import Stage
from harness.model.words import Arm
from harness.options import Asked

BASELINES = (Arm.BASELINE, Arm.BASELINE_AGAIN)
SIZES = CpuSizes(
    num_greedy_prompts=24,
    num_forced_prompts=8,
    num_sampling_prompts=22,
    num_structured_prompts=12,
    num_full_context_prompts=3,
    num_feature_prompts=8,
    num_mrcr_rows=0,
    num_aime_rows=0,
    with_probes=False,
    timing_pairs=0,
)
"""Enough to show a fault, and that a twin has none where a fault's expected checks look, evaluations aside, which a few
rows would not decide."""
EVALUATIONS = frozenset({"COR007", "COR008", "COR009", "COR010"})
"""Checks that rest on the evaluations alone."""
NOT_GREEDY = frozenset({"SCO001", "SCO002", "SCO005"})
"""Checks that rest on suites of their own, and on forced and full-context answers not at all."""
TIMED = replace(SIZES, num_sampling_prompts=1, num_feature_prompts=0, timing_pairs=8)
"""For a clean change beside the timed cells."""
MEASURED = replace(TIMED, num_greedy_prompts=64, num_structured_prompts=1)
"""For a bundle that is tampered with, in its greedy answers, their ledger and its timings: COR002 is to be decided
before."""
SLOW = replace(TIMED, num_greedy_prompts=8, num_forced_prompts=4, num_structured_prompts=1, timing_tokens=32)
"""For a fault that the timed cells alone are to show: as many blocks, which are half as long."""


def needs_evaluations(case: Case) -> bool:
    """Whether what it expects rests on them."""
    return not EVALUATIONS.isdisjoint(case.fault.expected)


def sizes_of(cases: Sequence[Case], profile: Asked) -> CpuSizes:
    """What the candidate is asked: of twins all that they might be rejected for, of a fault what can show it.

    Sampling is what SCO001 alone rests on, structured output SCO002. Of the features, where a fault names the one that
    is to fail, that one is asked. Evaluations are asked under the full profile, as many as that asks. At the stage
    `made` it is the profile's own sizes, untimed: time is not told beside kept arms.
    """
    full = PROFILES["full"]
    if any(case.fault.stage is Stage.MADE for case in cases):
        return replace(PROFILES[profile], timing_pairs=0)
    is_clean = any(case.is_twin for case in cases)
    found = SIZES
    if not any(case.fault.features for case in cases):
        found = replace(found, num_feature_prompts=0)
    if profile == "full":
        found = replace(found, num_mrcr_rows=full.num_mrcr_rows, num_aime_rows=full.num_aime_rows)
    if is_clean:
        return found
    expected = {check for case in cases for check in case.fault.expected}
    if expected <= NOT_GREEDY:
        found = replace(found, num_forced_prompts=0, num_full_context_prompts=0)
    return replace(
        found,
        features=_features_named_by(cases),
        num_sampling_prompts=found.num_sampling_prompts if "SCO001" in expected else 0,
        num_structured_prompts=found.num_structured_prompts if "SCO002" in expected else 0,
    )


def _features_named_by(cases: Sequence[Case]) -> tuple[Feature, ...]:
    """The features on which the first expected check is to fail; none, which asks all, where a case names no such.

    The last requests of the shorter suite may run beside fewer than the kept baseline's did: an error of SCO005.
    """
    named = {case.fault.subject for case in cases if case.fault.expected[:1] == ("SCO005",)}
    found = tuple(feature for feature in FEATURES if feature in named)
    return found if len(found) == len(cases) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptArms:
    """Evidence of the baselines on the clean tree."""

    records: tuple[AnyEvidence, ...]

    @classmethod
    def of(cls, records: Iterable[AnyEvidence]) -> KeptArms:
        """What the baselines left, of all that is in the clean tree's bundle."""
        kept = (ArmEvidence, LedgerEvidence, SuiteEvidence)
        return cls(records=tuple(r for r in records if isinstance(r, kept)))

    def collect_case(self, run: CpuRun, changed: frozenset[str], sizes: CpuSizes) -> None:
        """The candidate beside the kept baselines; all arms anew where a baseline imported what the case changes."""
        if imports_any(self.records, changed):
            collect_cpu_tier(replace(run, sizes=sizes))
            return
        for record in self.records:
            run.recorder.record(record)
        collect_cpu_tier(replace(run, arms=(Arm.CANDIDATE,), sizes=sizes))


def collect_baselines(run: CpuRun, sizes: CpuSizes) -> None:
    """Puts the baselines through the suites."""
    collect_cpu_tier(replace(run, arms=BASELINES, sizes=sizes))


def imports_any(records: Iterable[AnyEvidence], changed: frozenset[str]) -> bool:
    """Whether an arm imported one of the changed files."""
    return any(_paths(r.imported) & changed for r in records if isinstance(r, ArmEvidence))


def _paths(files: Iterable[ImportedFile]) -> set[str]:
    return {file.path for file in files}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRun:
    """A scripted run whose records are in its folder, for whichever process reads them."""

    spec: ArmSpec
    plan: ProbePlan

    def read(self) -> FinishedRun:
        """What it recorded."""
        recording = _recording_in(self.spec.ledger_dir, self.spec.nonce)
        return FinishedRun(process=ProbeProcess(self.spec, self.plan), recording=recording)


@cache
def _recording_in(folder: Path, nonce: str) -> Recording:
    """Read once a process."""
    return read_recording(folder, nonce)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRuns:
    """The scripted runs of the clean tree's twin and base."""

    folder: Path

    def collect_clean(self, run: CpuRun, tree: Path) -> dict[str, KeptRun]:
        """Runs both; `tree` is the clean tree's folder."""
        subject = self.folder / "subject"
        for root in run.manifest.paths.import_roots:
            shutil.copytree(tree / root, subject / root)
        run.build_model(replace(run, import_path=subject, workdir=self.folder))
        write_bystander(self.folder / "bystander")
        clean = probe_run(run, self._model)
        clean = replace(clean, head_path=subject, base_path=subject, workdir=self.folder / "clean")
        plans = self._plans(run.manifest)
        done = run_processes(clean, {name: plans[name] for name in ("twin", "base")})
        return {name: KeptRun(spec=found.process.spec, plan=plans[name]) for name, found in done.items()}

    @property
    def _model(self) -> Path:
        return self.folder / "nano"

    def _plans(self, manifest: Manifest) -> dict[str, ProbePlan]:
        return plan_probes(
            manifest, model_dir=self._model, bystander_dir=self.folder / "bystander", base_has_model=True
        )

    def collect_case(self, run: CpuRun, changed: frozenset[str], kept: Mapping[str, KeptRun]) -> None:
        """The candidate beside the kept twin and base; the twin anew where it imported what the case changes."""
        # Beside the clean run's, so that what they have in common, as a cache, is the same to both.
        probe = replace(probe_run(run, self._model), workdir=self.folder / run.workdir.parent.name)
        plans, done = self._plans(run.manifest), {name: known.read() for name, known in kept.items()}
        twin = done.get("twin")
        is_touched = twin is None or bool(_paths(twin.recording.ledger.imported) & changed)
        names = ("candidate", "twin") if is_touched else ("candidate",)
        record_runs(probe, done | run_processes(probe, {name: plans[name] for name in names}))
