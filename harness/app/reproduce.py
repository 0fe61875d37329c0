"""`fasttrack bundle reproduce`: the commands that made a cell, and the cell made once more and compared."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from bundles.archive import opened
from bundles.cells import find_cells, name_cells, name_of
from bundles.contents import Bundle
from bundles.machine_names import this_machine
from bundles.reader import read_bundle
from harness.app.cell_commands import change_options, profile_of, render_commands
from harness.app.collector import collector_paused
from harness.app.cpu_tier import CpuRun, collect_cpu_tier
from harness.app.judging import decide
from harness.app.recorder import Progress, Recorder
from harness.app.same_again import (
    Comparison,
    Sameness,
    compare_findings,
    compare_records,
    compare_suites,
)
from harness.app.validate import Question, collect_static, read_question, run_cpu_tier
from harness.facts.environment import collect_environment
from harness.model.errors import FasttrackError
from harness.model.evidence import (
    AnyEvidence,
    ChangedFilesEvidence,
    DefaultOffEvidence,
    EnvironmentEvidence,
    HandoverEvidence,
    KernelAuditEvidence,
    KernelCompilationEvidence,
    OwnersEvidence,
    ProbeEvidence,
    SuiteEvidence,
    TaskScoresEvidence,
    TimingEvidence,
    WaitSourceEvidence,
    evidence_set,
)
from harness.model.words import Arm, ExitCode, Tier
from harness.options import CommandResult, OutputOptions, ReproduceOptions, ValidateOptions

_PROBES = (ProbeEvidence, HandoverEvidence, DefaultOffEvidence)
_KERNELS = (KernelCompilationEvidence, KernelAuditEvidence, WaitSourceEvidence)
_ALONE = (SuiteEvidence, TimingEvidence, TaskScoresEvidence, *_PROBES)
"""Kinds of the cpu tier that can be collected by themselves."""
_BY_PRODUCTS = frozenset({"arm", "ledger", "coverage", "environment", "gap", "source", "eval_set", "subject"})
_CODES = {
    Sameness.SAME: ExitCode.ADMIT,
    Sameness.DIFFERS: ExitCode.REJECT,
    Sameness.COULD_NOT_RUN: ExitCode.UNDECIDED,
}


@dataclass(slots=True)
class MemorySink:
    """Keeps records for as long as the command runs: a reproduction writes no bundle."""

    records: list[AnyEvidence] = field(default_factory=list)

    def add(self, record: AnyEvidence) -> str:
        """Keeps the record and returns its id."""
        self.records.append(record)
        return record.id


def reproduce(
    options: ReproduceOptions,
    *,
    collect_cpu: Callable[[CpuRun], None] = collect_cpu_tier,
    collect_static: Callable[[Question, ValidateOptions, Recorder], None] = collect_static,
) -> CommandResult:
    """Prints how a cell was made; with `run`, makes it once more and says whether it says the same.

    Without a cell, lists the cells. Ends with 0 when every cell says the same, 1 when one differs, 3 when one could not
    be made.

    Raises:
        BundleError: the bundle is not whole, or has no such cell.
    """
    with opened(options.bundle) as folder:
        with collector_paused():
            bundle = read_bundle(folder)
        if options.cell is None:
            lines = [f"{name}  {record.id}" for name, record in name_cells(bundle.records).items()]
            return CommandResult(text="\n".join(lines), exit_code=ExitCode.ADMIT)
        cells = find_cells(bundle, options.cell)
        if not options.run:
            return CommandResult(text=render_commands(options, bundle, cells), exit_code=ExitCode.ADMIT)
        again = _Reproduction(options, folder, bundle, collect_cpu, collect_static)
        found = [again.compare(name, record) for name, record in cells.items()]
    worst = min(
        (c.sameness for c in found), key=[Sameness.DIFFERS, Sameness.COULD_NOT_RUN, Sameness.SAME].index
    )
    return CommandResult(text=_render(found, _other_pins(bundle), options.output), exit_code=_CODES[worst])


class _Reproduction:
    """Collects cells of one bundle once more; everything that it does not collect is taken from the bundle."""

    def __init__(
        self,
        options: ReproduceOptions,
        folder: Path,
        bundle: Bundle,
        collect_cpu: Callable[[CpuRun], None],
        collect_static: Callable[[Question, ValidateOptions, Recorder], None],
    ) -> None:
        self._options = options
        self._bundle = bundle
        self._folder = folder
        self._collect_cpu = collect_cpu
        self._collect_static = collect_static
        self._static: dict[bool, Mapping[str, AnyEvidence]] = {}

    def compare(self, name: str, stored: AnyEvidence) -> Comparison:
        """The cell collected once more beside what the bundle says."""
        try:
            if stored.kind in _BY_PRODUCTS:
                reason = "it is made together with the cells of its tier; --run takes those"
                return Comparison(cell=name, sameness=Sameness.COULD_NOT_RUN, reason=reason)
            if stored.tier is Tier.STATIC:
                return self._compare_static(name, stored)
            if stored.tier is Tier.CPU and isinstance(stored, _ALONE):
                return self._compare_cpu(name, stored)
        except FasttrackError as error:
            return Comparison(cell=name, sameness=Sameness.COULD_NOT_RUN, reason=error.message)
        reason = f"this fasttrack collects nothing of the {stored.tier} tier"
        return Comparison(cell=name, sameness=Sameness.COULD_NOT_RUN, reason=reason)

    def _compare_static(self, name: str, stored: AnyEvidence) -> Comparison:
        if isinstance(stored, ChangedFilesEvidence):
            question = self._question()
            return compare_records(name, stored, question.published.record(question.changed_files))
        is_kernel = isinstance(stored, _KERNELS)
        if is_kernel not in self._static:
            # What stands for the other half is in evidence, and so is not collected.
            kept = [
                r
                for r in self._bundle.records
                if isinstance(r, OwnersEvidence if is_kernel else WaitSourceEvidence)
            ]
            recorder, question = self._recorder(kept), self._question()
            self._collect_static(question, self._validate_options(Tier.STATIC), recorder)
            self._static[is_kernel] = name_cells(recorder.records[len(kept) :])
        again = self._static[is_kernel].get(name)
        if again is None:
            return Comparison(cell=name, sameness=Sameness.COULD_NOT_RUN, reason="it was not collected again")
        return compare_records(name, stored, again)

    def _compare_cpu(self, name: str, stored: AnyEvidence) -> Comparison:
        left_out = _PROBES if isinstance(stored, _PROBES) else ()
        kept = [r for r in self._bundle.records if r.id != stored.id and not isinstance(r, left_out)]
        recorder = self._recorder(kept)
        arms = (stored.arm,) if isinstance(stored, SuiteEvidence | TaskScoresEvidence) else tuple(Arm)
        with tempfile.TemporaryDirectory(prefix="fasttrack-again-", ignore_cleanup_errors=True) as workdir:
            run_cpu_tier(
                self._question(),
                self._validate_options(Tier.CPU),
                recorder,
                Path(workdir),
                lambda run: self._collect_cpu(replace(run, arms=arms)),
            )
        new = recorder.records[len(kept) :]
        again = next((r for r in new if name_of(r) == name_of(stored)), None)
        if again is None:
            gaps = [f"{r.what}: {r.reason}" for r in new if r.kind == "gap"]
            reason = "; ".join(gaps) or "it was not collected again"
            return Comparison(cell=name, sameness=Sameness.COULD_NOT_RUN, reason=reason)
        if isinstance(stored, SuiteEvidence) and isinstance(again, SuiteEvidence):
            evidence = evidence_set(self._bundle.records)
            return compare_suites(name, stored, again, evidence, self._bundle.policy)
        bundle = self._bundle
        judged = decide(bundle.manifest_text, bundle.policy_text, bundle.change, recorder.records)
        return compare_findings(
            name,
            [f for f in bundle.judgement.findings if stored.id in f.evidence],
            [f for f in judged.findings if again.id in f.evidence],
        )

    def _recorder(self, kept: Sequence[AnyEvidence]) -> Recorder:
        here = collect_environment(Tier.STATIC)
        return Recorder(
            sink=MemorySink(),
            progress=Progress(quiet=self._options.output.quiet),
            hardware=here.machine,
            scrub=this_machine(public=self._question().public_text).record,
            records=list(kept),
        )

    def _question(self) -> Question:
        return read_question(change_options(self._bundle, self._options.repo, self._folder, Tier.CPU))

    def _validate_options(self, tier: Tier) -> ValidateOptions:
        return ValidateOptions(
            change=change_options(self._bundle, self._options.repo, self._folder, tier),
            out=self._folder,
            output=self._options.output,
            python=self._options.python,
            profile=profile_of(self._bundle),
        )


def _other_pins(bundle: Bundle) -> list[str]:
    """In what this machine is not the one that made the bundle."""
    here = collect_environment(Tier.STATIC)
    made = [record for record in bundle.records if isinstance(record, EnvironmentEvidence)]
    fields = ("cpu", "num_cores", "python", "packages", "harness_sha256", "engine_sha256")
    return [name for name in fields if made and all(getattr(r, name) != getattr(here, name) for r in made)]


def _render(found: Sequence[Comparison], pins: Sequence[str], output: OutputOptions) -> str:
    if output.format == "json":
        document = {"schema_version": 1, "cells": [asdict(c) for c in found], "other_here": list(pins)}
        return json.dumps(document, indent=2, allow_nan=False)
    lines = [f"{c.cell}: {c.sameness}: {c.reason}" for c in found]
    if pins:
        lines.append(f"here is another {', '.join(pins)} than where the bundle was made")
    return "\n".join(lines)
