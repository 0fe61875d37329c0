"""From what was recorded about one entry point to findings: pure, for the command and for the judge's checks."""

from __future__ import annotations

from fnmatch import fnmatchcase

from harness.audit.findings import kernel_findings, static_finding, unread_finding
from harness.model.evidence import KernelAuditEvidence, KernelCompilationEvidence
from harness.model.finding import Finding
from harness.model.kernel_audit import AuditedKernel
from harness.model.kernels import KernelsSection
from harness.model.words import Outcome

_LEVELS = {"ptx": "PTX", "sass": "machine code"}


def entry_findings(rule: str, audit: KernelAuditEvidence) -> list[Finding]:
    """What one rule says of every kernel that the entry point compiled."""
    return [f for k in audit.kernels for f in kernel_findings(k, audit.id) if f.check == rule]


def missing_findings(
    rule: str, compilation: KernelCompilationEvidence, audit: KernelAuditEvidence
) -> list[Finding]:
    """What keeps the entry point from being decided: it did not compile, a level is missing, a text was not read."""
    name = f"{compilation.entry} ({compilation.arch})"
    evidence = (compilation.id, audit.id)
    found: list[Finding] = []
    if compilation.failure:
        found.append(
            static_finding(
                rule,
                Outcome.NOT_RUN,
                name,
                f"Not all was compiled: {compilation.failure}",
                advice="See the last lines of its output below. Where a package is missing, install the extra 'audit', "
                "or name an interpreter that has it with --python (FASTTRACK_PYTHON).",
                evidence=evidence,
                details=compilation.log_tail,
            )
        )
    found += [unread_finding(unread, rule, evidence) for unread in audit.unread]
    found += [
        _foreign(rule, k, compilation.arch, evidence) for k in audit.kernels if k.arch != compilation.arch
    ]
    for level, words in _LEVELS.items():
        unread = {u.text for u in audit.unread}
        seen = {(k.text, k.kernel) for k in audit.kernels if k.level == level}
        named = {(k.text, k.kernel) for k in audit.kernels if k.text not in unread}
        lacking = sorted({text for text, _ in named - seen})
        if lacking or (not audit.kernels and not found):
            subject = lacking[0] if len(lacking) == 1 else f"{name}, {len(lacking)} variants"
            message = f"There is no {words} of it, so nothing is known about its order there."
            found.append(static_finding(rule, Outcome.NOT_RUN, subject, message, evidence=evidence))
    return found


def idle_findings(
    rule: str, section: KernelsSection, compilation: KernelCompilationEvidence
) -> list[Finding]:
    """What the manifest says of variants that do not exist: a name that changed takes its roles with it."""
    if compilation.failure:
        return []
    found = []
    for number, entry in enumerate(section.entries):
        asked = entry.entry == compilation.entry and compilation.arch in entry.arches
        if asked and not any(fnmatchcase(variant, entry.variants) for variant in compilation.variants):
            message = f'variants = "{entry.variants}" matches none of {len(compilation.variants)} variants.'
            found.append(
                static_finding(
                    rule,
                    Outcome.INCONCLUSIVE,
                    f"kernels.entries[{number}] of the manifest, {compilation.entry} ({compilation.arch})",
                    message,
                    advice="Take the entry out of the manifest, or correct its glob.",
                    evidence=(compilation.id,),
                    details=tuple(f"variant: {variant}" for variant in compilation.variants),
                )
            )
    return found


def _foreign(rule: str, kernel: AuditedKernel, arch: str, evidence: tuple[str, ...]) -> Finding:
    message = f"The entry point was asked for {arch} and compiled {kernel.kernel} for {kernel.arch}."
    advice = "Compile for the architecture that CUTE_DSL_ARCH names."
    return static_finding(rule, Outcome.INCONCLUSIVE, kernel.text, message, advice=advice, evidence=evidence)
