"""The use case behind `fasttrack audit`: inputs to findings to text and exit code."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.audit.collect import EntryAudit, audit_entries, audit_with_progress
from harness.audit.entries import OptionsOf, Toolbox
from harness.audit.entry_findings import entry_findings, idle_findings, missing_findings
from harness.audit.findings import kernel_findings, statement_finding, unread_finding
from harness.audit.inputs import NamedInputs, collect_inputs
from harness.audit.kernel_manifest import declared_options
from harness.audit.modules import ModuleAudit
from harness.audit.pool import available_cores
from harness.audit.rendering import Audited, render_json, render_markdown, render_text
from harness.audit.roles import AuditOptions, parse_options
from harness.audit.rules import RULES
from harness.audit.sources import lint_files, source_name
from harness.audit.toolchain.compiler import CompileRequest
from harness.config import load_kernels, read_configuration
from harness.model.errors import ConfigurationError
from harness.model.finding import Finding
from harness.model.kernels import ARCHES, KernelsSection
from harness.options import CommandResult, OutputOptions

UNREAD_RULE = "PDL001"
"""What stands for all rules where none could be run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCommand:
    """What the command line asked for."""

    inputs: tuple[str, ...] = ()
    manifest: Path | None = None
    roles: tuple[str, ...] = ()
    options_file: Path | None = None
    arches: tuple[str, ...] = ()
    launch: str = "unknown"
    dependents: str = "unknown"
    block: tuple[int, ...] = ()
    grid: tuple[int, ...] = ()
    import_roots: tuple[Path, ...] = ()
    python: Path = field(default_factory=lambda: Path(sys.executable))
    jobs: int = 0
    """0: as many as there are cores."""
    timeout_s: float = 600.0
    """For each compilation of an entry point."""
    uses_cache: bool = True
    verbose: bool = False
    output: OutputOptions = field(default_factory=OutputOptions)


def run_audit(command: AuditCommand) -> CommandResult:
    """Audit everything that was named."""
    options = _options(command)
    if command.manifest is not None:
        audited = _audit_manifest(command, command.manifest, options)
    else:
        audited = _audit_named(command, collect_inputs(command.inputs, options, command.arches), options)
    if command.output.format == "json":
        text = render_json(audited)
    elif command.output.format == "md":
        text = render_markdown(audited)
    else:
        text = render_text(audited, color=command.output.color, verbose=command.verbose)
    return CommandResult(text=text, exit_code=audited.exit_code)


def _audit_named(command: AuditCommand, named: NamedInputs, options: AuditOptions) -> Audited:
    tools, quiet = _tools(command), command.output.quiet
    found = audit_with_progress(named.modules, tools, quiet=quiet)
    findings = [f for audit in found for f in _module_findings(audit)]
    kernels = [k for audit in found for k in audit.kernels]
    if found and command.arches and not kernels and not findings:
        message = f"None of the named files holds a kernel for {', '.join(command.arches)}."
        raise ConfigurationError("no-kernels", message, "Leave --arch out to see all kernels.")
    findings += _source_findings((path.as_posix(), path) for path in named.sources)
    unknown = [arch for arch in command.arches if arch not in ARCHES] if named.entries else []
    if unknown:
        raise ConfigurationError(
            "unknown-arch", f"--arch: got {unknown[0]}, expected one of {', '.join(ARCHES)}"
        )
    requests = [
        CompileRequest(entry=entry, arch=arch, import_roots=command.import_roots)
        for entry in named.entries
        for arch in command.arches or ARCHES
    ]
    compiled = _entries(command, requests, lambda *_: options)
    return Audited(
        kernels=(*kernels, *(k for entry in compiled for k in entry.audit.kernels)),
        findings=(*findings, *_compiled_findings(command, compiled)),
    )


def _audit_manifest(command: AuditCommand, path: Path, options: AuditOptions) -> Audited:
    section = load_kernels(read_configuration(path, "manifest"), path.as_posix())
    requests = _requests(command, section, path)

    def options_of(entry: str, arch: str, variant: str) -> AuditOptions | None:
        declared = declared_options(section, entry, arch, variant)
        return None if declared is None else AuditOptions(entries=(*declared.entries, *options.entries))

    compiled = _entries(command, requests, options_of)
    idle = [f for entry in compiled for f in idle_findings(UNREAD_RULE, section, entry.compilation)]
    return Audited(
        kernels=tuple(k for entry in compiled for k in entry.audit.kernels),
        findings=(*idle, *_compiled_findings(command, compiled)),
    )


def _requests(command: AuditCommand, section: KernelsSection, path: Path) -> list[CompileRequest]:
    """The manifest's entry points, those that the command line names where it names any."""
    declared = section.requests()
    if not declared:
        raise ConfigurationError(
            "no-kernels",
            f"{path} declares no entry point under [kernels].",
            "docs/manifest.md describes them; PTX files and folders can be named without a manifest.",
        )
    known = {entry for entry, _ in declared}
    for name in command.inputs:
        if name not in known:
            message = f"{name} is no entry point of {path}; it has {', '.join(sorted(known))}"
            raise ConfigurationError("no-such-input", message)
    wanted = [
        (entry, arch)
        for entry, arch in declared
        if entry in (command.inputs or known) and arch in (command.arches or ARCHES)
    ]
    if not wanted:
        message = f"{path} asks for none of its entry points for {', '.join(command.arches)}"
        raise ConfigurationError("no-such-input", message)
    roots = tuple((path.parent / root).resolve() for root in section.import_roots)
    environment = tuple(sorted(section.environment.items()))
    return [
        CompileRequest(
            entry=entry, arch=arch, import_roots=(*roots, *command.import_roots), environment=environment
        )
        for entry, arch in wanted
    ]


def _entries(
    command: AuditCommand, requests: Sequence[CompileRequest], options_of: OptionsOf
) -> list[EntryAudit]:
    if not requests:
        return []
    return audit_entries(
        requests, options_of, _tools(command), subject=None, recorded_at="", quiet=command.output.quiet
    )


def _tools(command: AuditCommand) -> Toolbox:
    return Toolbox(
        python=command.python,
        jobs=command.jobs or available_cores(),
        timeout_s=command.timeout_s,
        uses_cache=command.uses_cache,
    )


def _module_findings(audit: ModuleAudit) -> list[Finding]:
    found = [f for k in audit.kernels for f in kernel_findings(k, _evidence(k.text_sha256))]
    return found + [unread_finding(unread, UNREAD_RULE) for unread in audit.unread]


def _compiled_findings(command: AuditCommand, compiled: Sequence[EntryAudit]) -> list[Finding]:
    roots = (Path.cwd(), *command.import_roots)
    found: list[Finding] = []
    for entry in compiled:
        found += missing_findings(UNREAD_RULE, entry.compilation, entry.audit)
        for rule in RULES:
            found += entry_findings(rule.id, entry.audit)
    sources = sorted({path for entry in compiled for path in entry.sources})
    return found + _source_findings((source_name(path, roots), path) for path in sources)


def _source_findings(files: Iterable[tuple[str, Path]]) -> list[Finding]:
    _, statements = lint_files(files)
    return [statement_finding(s, f"audit:{s.path}:{s.line}") for s in statements]


def _evidence(sha256: str) -> str:
    """A text's identifier among evidence."""
    return f"audit:{sha256[:16]}"


def _options(command: AuditCommand) -> AuditOptions:
    data: Any = {}
    if command.options_file is not None:
        data = _read_table(command.options_file)
    common = parse_options(
        {"launch": command.launch, "dependents": command.dependents}
        | {name: list(sizes) for name, sizes in (("block", command.block), ("grid", command.grid)) if sizes}
    )
    given = parse_options(data)
    return AuditOptions(entries=(*given.entries, *common.entries)).with_roles(list(command.roles))


def _read_table(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError("bad-options", f"{path}: {error}") from error
