"""What the audit says of one kernel and one rule."""

from __future__ import annotations

from dataclasses import dataclass

from harness.audit.program import Instruction, Kernel, Level, SourceLine
from harness.model.kernel_audit import Decision

__all__ = ["AuditResult", "Decision", "Site", "result_of", "site_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One instruction of a path, or the place of a fault."""

    line: int
    text: str
    note: str = ""
    source: SourceLine | None = None

    def __str__(self) -> str:
        place = f" ({self.source.file}:{self.source.line})" if self.source is not None else ""
        return f"line {self.line}: {self.text}{place}" + (f"  <- {self.note}" if self.note else "")


def site_of(instruction: Instruction, note: str = "") -> Site:
    """The site of an instruction."""
    called = "".join(f", called from line {line}" for line in instruction.call_lines[-1:])
    return Site(
        line=instruction.line,
        text=instruction.text,
        note=(note + called).removeprefix(", "),
        source=instruction.source,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """One decision. A fault's `sites` are its path, in order; the last one is where it goes wrong."""

    rule: str
    kernel: str
    arch: str
    level: Level
    decision: Decision
    reason: str
    sites: tuple[Site, ...] = ()
    subject: str = ""
    """The argument or barrier that the decision is about; empty when it is about the whole kernel."""
    arguments: tuple[tuple[int, int | None], ...] = ()
    """The kernel parameters concerned: number, and offset of the field."""
    source_file: str = ""
    assumptions: tuple[str, ...] = ()
    """What must hold outside of this kernel for the decision to mean what it says."""


def result_of(
    rule: str,
    kernel: Kernel,
    decision: Decision,
    reason: str,
    *,
    sites: tuple[Site, ...] = (),
    subject: str = "",
    arguments: tuple[tuple[int, int | None], ...] = (),
    assumptions: tuple[str, ...] = (),
) -> AuditResult:
    """A result about `kernel`."""
    return AuditResult(
        rule=rule,
        kernel=kernel.name,
        arch=kernel.arch,
        level=kernel.level,
        decision=decision,
        reason=reason,
        sites=sites,
        subject=subject,
        arguments=arguments,
        source_file=kernel.source_file,
        assumptions=assumptions,
    )
