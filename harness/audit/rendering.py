"""An audit as text, JSON or Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.audit.findings import group_findings, subject_of
from harness.model.finding import Finding
from harness.model.kernel_audit import AuditedKernel
from harness.model.words import ExitCode, Outcome, Verdict

_COLORS = {Outcome.PASS: "32", Outcome.FAIL: "31", Outcome.INCONCLUSIVE: "33", Outcome.NOT_RUN: "34"}
_ORDER = (
    Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE, Outcome.NOT_RUN, Outcome.PASS, Outcome.NOT_APPLICABLE
)  # fmt: skip
_OPEN = (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE, Outcome.NOT_RUN)
_SHOWN_STEPS = 10
"""Lines of a finding's details that text shows at either end."""
_MANY = 8
"""Subjects above which text and Markdown show each cause once instead of each kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """Everything that was found."""

    kernels: tuple[AuditedKernel, ...]
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """Reject when a fault was shown; admit when all passes or does not apply, and something was looked at."""
        outcomes = {f.outcome for f in self.findings}
        if Outcome.FAIL in outcomes:
            return Verdict.REJECT
        if not outcomes or not all(o.lets_through for o in outcomes):
            return Verdict.UNDECIDED
        return Verdict.ADMIT

    @property
    def exit_code(self) -> ExitCode:
        """As for a judgement; 4 when what keeps it undecided is a failure of the audit itself."""
        if self.verdict is Verdict.UNDECIDED:
            broken = any(f.outcome is Outcome.ERROR for f in self.findings)
            return ExitCode.HARNESS if broken else ExitCode.UNDECIDED
        return ExitCode.REJECT if self.verdict is Verdict.REJECT else ExitCode.ADMIT

    @property
    def reason(self) -> str:
        """One sentence: what decided."""
        texts = f"{len(self.kernels)} {'text' if len(self.kernels) == 1 else 'texts'} of kernels"
        counts = count_outcomes(self.findings)
        if not self.findings:
            return "Nothing was audited."
        if set(counts) == {Outcome.NOT_APPLICABLE.value}:
            return f"No rule applies to {texts}: nothing says that they are launched dependently."
        open_ones = [f"{counts[o.value]} {o.value}" for o in _OPEN if o.value in counts]
        if not open_ones:
            return f"All {counts.get(Outcome.PASS.value, 0)} findings that apply to {texts} pass."
        rules = sorted({f.check for f in self.findings if f.outcome in _OPEN})
        return f"{', '.join(open_ones)} of {len(self.findings)} findings on {texts} ({', '.join(rules)})."


def count_outcomes(findings: Sequence[Finding]) -> dict[str, int]:
    """How many findings there are of each outcome that occurs, worst first."""
    counts = {o.value: sum(f.outcome is o for f in findings) for o in _ORDER}
    return {name: count for name, count in counts.items() if count}


def _shown(audited: Audited, verbose: bool) -> list[Finding]:
    """Kernel by kernel where there are few, cause by cause where there are many."""
    many = len({f.subject for f in audited.findings}) > _MANY
    return group_findings(audited.findings) if many and not verbose else list(audited.findings)


def render_text(audited: Audited, *, color: bool = False, verbose: bool = False) -> str:
    """Worst first; paths for what is not in order; what does not apply, and resources, only when `verbose`."""
    lines: list[str] = []
    by_subject: dict[str, list[Finding]] = {}
    for finding in sorted(_shown(audited, verbose), key=lambda f: _ORDER.index(f.outcome)):
        by_subject.setdefault(finding.subject, []).append(finding)
    resources = {subject_of(k): _resource_line(k) for k in audited.kernels if k.resources is not None}
    for subject, mine in by_subject.items():
        shown = [f for f in mine if verbose or f.outcome is not Outcome.NOT_APPLICABLE]
        if not shown:
            continue
        lines.append(_plain(subject))
        if verbose and subject in resources:
            lines.append(f"  {resources[subject]}")
        for finding in shown:
            lines.append(f"  {_paint(finding.outcome, color)}  {finding.check}  {_plain(finding.message)}")
            if finding.outcome in _OPEN or verbose:
                details = finding.details if verbose else _without_middle(finding.details)
                lines += [f"        {_plain(detail)}" for detail in details]
                lines += [f"        help: {_plain(finding.advice)}"] if finding.advice else []
        lines.append("")
    return "\n".join([*lines, f"{audited.verdict}: {_plain(audited.reason)}"]) + "\n"


def _without_middle(details: Sequence[str]) -> list[str]:
    """Where it begins and where it goes wrong; `--verbose` and JSON have the whole path."""
    if len(details) <= 2 * _SHOWN_STEPS:
        return list(details)
    left_out = len(details) - 2 * _SHOWN_STEPS + 1
    return [
        *details[: _SHOWN_STEPS - 1],
        f"… {left_out} more lines, shown by --verbose",
        *details[-_SHOWN_STEPS:],
    ]


def _resource_line(kernel: AuditedKernel) -> str:
    found = kernel.resources
    if found is None:
        return ""
    parts = [
        f"{_number(found.registers)} registers",
        f"{found.spill_stores} spills, {found.spill_loads} refills",
        f"{_number(found.static_shared_bytes)} bytes of static shared memory",
        f"{_number(found.stack_bytes)} bytes of stack",
        f"{found.instructions} instructions",
    ]
    if found.ctas_per_sm is not None:
        parts.append(f"at most {found.ctas_per_sm} CTAs an SM (by {found.limited_by})")
    mix = ", ".join(f"{name} {count}" for name, count in found.mix.items())
    return f"{'; '.join(parts)}; {mix}"


def _number(value: int | None) -> str:
    return "unknown" if value is None else str(value)


def _paint(outcome: Outcome, color: bool) -> str:
    word = f"{outcome.value:<14}"
    return f"\x1b[{_COLORS.get(outcome, '2')}m{word}\x1b[0m" if color else word


def _plain(text: str) -> str:
    """Names come from the audited files: what could move the cursor is shown as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def render_json(audited: Audited) -> str:
    """One document: every finding, and the resources of every kernel of which machine code was read."""
    document: dict[str, Any] = {
        "schema_version": 1,
        "verdict": audited.verdict.value,
        "reason": audited.reason,
        "exit_code": int(audited.exit_code),
        "outcomes": count_outcomes(audited.findings),
        "kernels": [
            k.model_dump(mode="json", exclude={"results"}) | {"decisions": _decisions(k)}
            for k in audited.kernels
        ],
        "findings": [f.model_dump(mode="json") for f in audited.findings],
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _decisions(kernel: AuditedKernel) -> dict[str, dict[str, int]]:
    """By rule: how many results have each decision."""
    counts: dict[str, dict[str, int]] = {}
    for result in kernel.results:
        of_rule = counts.setdefault(result.rule, {})
        of_rule[result.decision.value] = of_rule.get(result.decision.value, 0) + 1
    return counts


def render_markdown(audited: Audited) -> str:
    """The verdict, a table of what was decided, then the paths."""
    lines = [f"**{audited.verdict}**: {_cell(audited.reason)}", ""]
    lines += ["| outcome | check | kernel | what |", "|---|---|---|---|"]
    shown = [f for f in _shown(audited, False) if f.outcome is not Outcome.NOT_APPLICABLE]
    shown.sort(key=lambda f: _ORDER.index(f.outcome))
    lines += [f"| {f.outcome.value} | {f.check} | {_cell(f.subject)} | {_cell(f.message)} |" for f in shown]
    for finding in shown:
        if finding.outcome in _OPEN and finding.details:
            lines += ["", f"**{finding.check}** {_cell(finding.subject)}", "", "```text"]
            lines += [_plain(d).replace("```", "'''") for d in finding.details]
            lines += ["```"]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    for mark in "\\|`*_<>[]":
        text = text.replace(mark, f"\\{mark}")
    return _plain(text)
