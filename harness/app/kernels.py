"""Collects what the static tier shows about the kernels of `[kernels]`: compiled as committed, then audited."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.app.reaching import StaticQuestion
from harness.app.recorder import Recorder, utc_now
from harness.audit.collect import EntryAudit, audit_entries
from harness.audit.entries import Toolbox
from harness.audit.kernel_manifest import declared_options
from harness.audit.pool import available_cores
from harness.audit.sources import lint_files, source_name
from harness.audit.toolchain.compiler import CompileRequest
from harness.engine.arm_spec import PASSED_ON
from harness.facts.git import Repository
from harness.facts.kernel_sources.read import find_kernel_sources
from harness.facts.python_source.deep_stack import on_deep_stack
from harness.facts.python_source.tree import SourceTree
from harness.model.evidence import (
    KernelAuditEvidence,
    KernelCompilationEvidence,
    KernelSourcesEvidence,
    WaitSourceEvidence,
)
from harness.model.kernels import KernelsSection
from harness.model.paths import PathClass
from harness.model.words import Tier

COMPILE_TIMEOUT_S = 1200.0
"""For one entry point and architecture."""
GAP = "kernels"
"""What the gap is called that concerns all kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRun:
    """What is compiled, from which commit, with what."""

    section: KernelsSection
    repository: Repository
    commit: str
    manifest: Path | None
    """The manifest's file where one was named; None for the commit's own."""
    python: Path
    """The interpreter that has the DSL."""
    quiet: bool


@on_deep_stack
def collect_kernel_sources(question: StaticQuestion) -> KernelSourcesEvidence:
    """Which files of the change hold kernels, whatever its manifest says of them; reads git's objects only."""
    repository, head, rules = question.repository, question.change.head, question.rules
    changed = {f.path for f in question.changed.files}

    def is_concerned(path: str) -> bool:
        if path not in changed:
            return rules.is_a(path, PathClass.OWNED)
        return rules.classify(path).path_class not in (PathClass.TEST, PathClass.DOCS)

    files = repository.contents(head, is_concerned)
    python = repository.contents(head, lambda path: path.endswith(".py"))
    found, unreadable = find_kernel_sources(files, SourceTree(python))
    return KernelSourcesEvidence(
        tier=Tier.STATIC,
        recorded_at=utc_now(),
        commit=head,
        num_files=len(files),
        files=found,
        unreadable=unreadable,
    )


def collect_kernels(run: KernelRun, recorder: Recorder) -> None:
    """Records compilation and audit of every entry point, and the lint of the sources that they imported.

    An interrupt leaves a gap and is raised again.
    """
    if not run.section.entries:
        return
    recorder.progress.say("kernels: compiling and auditing the entry points of the manifest")
    with tempfile.TemporaryDirectory(prefix="fasttrack-kernels-", ignore_cleanup_errors=True) as folder:
        head = Path(folder) / "head"
        try:
            run.repository.export(run.commit, ["**"], head)
            audited = audit_entries(
                _requests(run, head),
                lambda entry, arch, variant: declared_options(run.section, entry, arch, variant),
                _tools(run, Path(folder)),
                subject=head,
                recorded_at=utc_now(),
                quiet=run.quiet,
            )
            _record(audited, recorder, head)
        except KeyboardInterrupt:
            recorder.gap(Tier.STATIC, GAP, "the run was interrupted", broke=False)
            raise


def _tools(run: KernelRun, home: Path) -> Toolbox:
    """Compilers whose processes run the change's code: they see nothing of the harness's own environment."""
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return Toolbox(
        python=run.python,
        jobs=available_cores(),
        timeout_s=COMPILE_TIMEOUT_S,
        uses_cache=False,
        environment=passed | {"HOME": str(home), "TMPDIR": str(home)},
    )


def _requests(run: KernelRun, head: Path) -> list[CompileRequest]:
    base = _manifest_folder(run, head)
    roots = (*((base / root).resolve() for root in run.section.import_roots), head.resolve())
    environment = tuple(sorted(run.section.environment.items()))
    return [
        CompileRequest(entry=entry, arch=arch, import_roots=roots, environment=environment)
        for entry, arch in run.section.requests()
    ]


def _manifest_folder(run: KernelRun, head: Path) -> Path:
    """What import roots are relative to: for a manifest inside the repository the same folder as committed."""
    if run.manifest is None:
        return head
    folder, top = run.manifest.resolve().parent, run.repository.top
    return head / folder.relative_to(top) if folder.is_relative_to(top) else folder


def _record(audited: Iterable[EntryAudit], recorder: Recorder, head: Path) -> None:
    kinds = (KernelCompilationEvidence, KernelAuditEvidence)
    # A killed run that was taken up has recorded some; compiled again they took another time, and each is told once.
    told = {(r.kind, r.entry, r.arch) for r in recorder.records if isinstance(r, kinds)}
    sources: set[Path] = set()
    for entry in audited:
        for record in (entry.compilation, entry.audit):
            if (record.kind, record.entry, record.arch) not in told:
                recorder.record(record)
        sources.update(entry.sources)
    names = [(source_name(path, [head]), path) for path in sorted(sources)]
    num_files, statements = lint_files(names)
    recorder.record(
        WaitSourceEvidence(
            tier=Tier.STATIC, recorded_at=utc_now(), num_files=num_files, statements=tuple(statements)
        )
    )
