"""The use case behind `fasttrack audit`: inputs to findings to text and exit code."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.audit.audit import audit_kernel
from harness.audit.compare_levels import explain_from_source, explain_hoisted
from harness.audit.decide import AuditResult
from harness.audit.findings import finding_of, unreadable_finding
from harness.audit.inputs import AuditedText, Inputs, collect_inputs
from harness.audit.program import Kernel, Level
from harness.audit.rendering import render_json, render_markdown, render_text
from harness.audit.roles import AuditOptions, parse_options
from harness.model.errors import ConfigurationError
from harness.model.finding import Finding
from harness.model.words import ExitCode, Outcome, Principle, Tier
from harness.options import CommandResult, OutputOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCommand:
    """What the command line asked for."""

    inputs: tuple[str, ...]
    roles: tuple[str, ...] = ()
    options_file: Path | None = None
    arches: tuple[str, ...] = ()
    launch: str = "unknown"
    dependents: str = "unknown"
    block: tuple[int, ...] = ()
    import_roots: tuple[Path, ...] = ()
    verbose: bool = False
    output: OutputOptions = field(default_factory=OutputOptions)


def run_audit(command: AuditCommand) -> CommandResult:
    """Audit everything that was named."""
    options = _options(command)
    inputs = collect_inputs(command.inputs, command.arches, command.import_roots, _progress(command.output))
    findings = audit_inputs(inputs, options, command.arches)
    code = exit_code_of(findings)
    if command.output.format == "json":
        text = render_json(findings, int(code))
    elif command.output.format == "md":
        text = render_markdown(findings)
    else:
        text = render_text(findings, color=command.output.color, verbose=command.verbose)
    return CommandResult(text=text, exit_code=code)


def _progress(output: OutputOptions) -> Callable[[str], None] | None:
    return None if output.quiet else lambda text: print(text, file=sys.stderr, flush=True)


def _options(command: AuditCommand) -> AuditOptions:
    data: Any = {}
    if command.options_file is not None:
        data = _read_table(command.options_file)
    common = parse_options(
        {"launch": command.launch, "dependents": command.dependents}
        | ({"block": list(command.block)} if command.block else {})
    )
    given = parse_options(data)
    return AuditOptions(entries=(*given.entries, *common.entries)).with_roles(list(command.roles))


def _read_table(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError("bad-options", f"{path}: {error}") from error


def audit_inputs(inputs: Inputs, options: AuditOptions, arches: Sequence[str] = ()) -> list[Finding]:
    """Findings on all texts; kernels of other architectures than `arches` are left out when it names any."""
    findings: list[Finding] = []
    results: dict[tuple[str, Level], list[AuditResult]] = {}
    ptx: dict[tuple[str, str], Kernel] = {}
    for text in sorted(inputs.texts, key=_ptx_first):
        if not text.kernels:
            findings.append(_empty(text))
        for kernel in text.kernels:
            if arches and kernel.arch not in arches:
                continue
            found = _audit(kernel, options, ptx, results)
            findings += [finding_of(r, text.evidence) for r in found]
    findings += [_not_run(subject, reason) for subject, reason in inputs.failures]
    return findings


def _ptx_first(text: AuditedText) -> bool:
    return any(k.level is Level.SASS for k in text.kernels)


def _audit(
    kernel: Kernel,
    options: AuditOptions,
    ptx: dict[tuple[str, str], Kernel],
    results: dict[tuple[str, Level], list[AuditResult]],
) -> list[AuditResult]:
    chosen = options.for_kernel(kernel.name)
    found = audit_kernel(kernel, chosen)
    if kernel.level is Level.PTX:
        ptx[kernel.name, _family(kernel.arch)] = kernel
        found = explain_from_source(kernel, found)
        results[kernel.name + _family(kernel.arch), Level.PTX] = found
        return found
    counterpart = ptx.get((kernel.name, _family(kernel.arch)))
    if counterpart is None:
        return found
    return explain_hoisted(counterpart, results[kernel.name + _family(kernel.arch), Level.PTX], found, chosen)


def _family(arch: str) -> str:
    return arch.rstrip("af")


def _empty(text: AuditedText) -> Finding:
    first = text.problems[0] if text.problems else None
    line, reason = (
        (first.line, f"{first.reason}: {first.text}") if first is not None else (1, "no kernel in this file")
    )
    return unreadable_finding(text.name, line, reason)


def _not_run(subject: str, reason: str) -> Finding:
    return Finding(
        check="PDL001",
        principle=Principle.CORRECTNESS,
        tier=Tier.STATIC,
        subject=subject,
        outcome=Outcome.NOT_RUN,
        message=reason,
    )


def exit_code_of(findings: Sequence[Finding]) -> ExitCode:
    """0 when everything passes or does not apply, 1 when anything fails, 3 when something is open or nothing ran."""
    outcomes = {f.outcome for f in findings}
    if Outcome.FAIL in outcomes:
        return ExitCode.REJECT
    if not outcomes or not all(o.lets_through for o in outcomes):
        return ExitCode.UNDECIDED
    return ExitCode.ADMIT
