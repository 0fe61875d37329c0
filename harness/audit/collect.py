"""Compiles the entry points of a manifest (or of the command line), audits what they gave, and records both."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.audit.entries import CompiledEntry, OptionsOf, Toolbox, compile_entries
from harness.audit.modules import Module, ModuleAudit
from harness.audit.pool import audit_modules
from harness.audit.progress import ProgressBar
from harness.audit.toolchain.compiler import CompileRequest
from harness.audit.toolchain.disassembler import ToolMissingError, find_nvdisasm
from harness.model.evidence import KernelAuditEvidence, KernelCompilationEvidence
from harness.model.kernel_audit import UnreadText
from harness.model.words import Tier

_TAIL_LINES = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryAudit:
    """What is recorded about one entry point for one architecture."""

    compilation: KernelCompilationEvidence
    audit: KernelAuditEvidence
    sources: tuple[Path, ...]
    """Source files that its process imported."""


def audit_entries(
    requests: Sequence[CompileRequest],
    options_of: OptionsOf,
    tools: Toolbox,
    *,
    subject: Path | None,
    recorded_at: str,
    quiet: bool,
) -> list[EntryAudit]:
    """Every request compiled and audited. `subject` is the folder whose files are the judged commit's."""
    compiled = compile_entries(requests, options_of, tools, quiet=quiet)
    modules = [module for entry in compiled for module in entry.modules]
    audits = iter(audit_with_progress(modules, tools, quiet=quiet))
    return [
        _recorded(entry, [next(audits) for _ in entry.modules], subject, recorded_at) for entry in compiled
    ]


def audit_with_progress(modules: Sequence[Module], tools: Toolbox, *, quiet: bool) -> list[ModuleAudit]:
    """All modules audited side by side; cubins say so where there is no disassembler."""
    if not modules:
        return []
    nvdisasm, missing = None, ""
    if any(module.cubins for module in modules):
        try:
            nvdisasm = find_nvdisasm(tools.python)
        except ToolMissingError as error:
            missing = f"{error.message} {error.advice}"
    with ProgressBar("auditing", len(modules), quiet=quiet) as bar:
        audits = audit_modules(
            modules,
            nvdisasm=nvdisasm,
            jobs=tools.jobs,
            done=lambda number, _: bar.advance(modules[number].name),
        )
    if not quiet:
        slowest = max(range(len(audits)), key=lambda number: audits[number].cpu_s)
        mean = sum(audit.cpu_s for audit in audits) / len(audits)
        line = f"{len(audits)} modules, {mean:.2f} s of CPU each, at most {audits[slowest].cpu_s:.2f} s"
        print(f"{line}: {modules[slowest].name}", file=sys.stderr, flush=True)
    return [_without_tool(m, a, missing) if missing else a for m, a in zip(modules, audits, strict=True)]


def _without_tool(module: Module, audit: ModuleAudit, missing: str) -> ModuleAudit:
    unread = tuple(UnreadText(text=text.name, line=1, reason=missing, missing=True) for text in module.cubins)
    return replace(audit, unread=(*audit.unread, *unread))


def _recorded(
    entry: CompiledEntry, audits: Iterable[ModuleAudit], subject: Path | None, recorded_at: str
) -> EntryAudit:
    outcome, request = entry.outcome, entry.outcome.request
    found = list(audits)
    command = ("fasttrack", "audit", request.entry, "--arch", request.arch)
    compilation = KernelCompilationEvidence(
        tier=Tier.STATIC,
        recorded_at=recorded_at,
        command=command,
        entry=request.entry,
        arch=request.arch,
        variants=tuple(made.variant for made in outcome.modules),
        failure=entry.failure,
        log_tail=_tail(outcome.stderr_tail, subject) if entry.failure else (),
        versions=outcome.versions,
        subject_files=_below(subject, outcome.sources),
    )
    audit = KernelAuditEvidence(
        tier=Tier.STATIC,
        recorded_at=recorded_at,
        command=command,
        entry=request.entry,
        arch=request.arch,
        kernels=tuple(k for one in found for k in one.kernels),
        unread=(*(u for one in found for u in one.unread), *map(_unasked, entry.unasked)),
    )
    return EntryAudit(compilation=compilation, audit=audit, sources=tuple(map(Path, outcome.sources)))


def _unasked(name: str) -> UnreadText:
    reason = "It was compiled, and no [[kernels.entries]] of the manifest matches it, so nobody looked at it."
    return UnreadText(text=name, line=1, reason=reason, missing=True)


def _tail(text: str, subject: Path | None) -> tuple[str, ...]:
    """The last lines, files of the subject by their path in the repository."""
    if subject is not None:
        text = text.replace(f"{subject.resolve()}/", "")
    return tuple(text.splitlines()[-_TAIL_LINES:])


def _below(folder: Path | None, sources: dict[str, str]) -> dict[str, str]:
    """The sources below a folder, by their path in it."""
    if folder is None:
        return {}
    root = folder.resolve()
    resolved = ((Path(path).resolve(), digest) for path, digest in sorted(sources.items()))
    return {p.relative_to(root).as_posix(): digest for p, digest in resolved if p.is_relative_to(root)}
