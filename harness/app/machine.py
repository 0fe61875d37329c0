"""`fasttrack plan` and `doctor`: what would run, what is missing, what it costs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.util import find_spec

from harness.app.validate import read_question
from harness.audit.toolchain.disassembler import ADVICE, ToolMissingError, find_nvdisasm
from harness.checks.registry import all_checks
from harness.facts.environment import can_run, collect_environment
from harness.model.words import ExitCode, Tier
from harness.options import CommandResult, DoctorOptions, Format, PlanOptions

COSTS = {
    Tier.STATIC: "seconds, any machine; minutes where the manifest has [kernels] to compile",
    Tier.CPU: "minutes: three servers and three scripted runs of the miniature model, 2 cores, about 8 GiB of memory",
    Tier.GPU: "minutes on one GPU",
    Tier.NODE: "8 GPUs of one host",
    Tier.CLUSTER: "16 GPUs in one NVLink domain",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCheck:
    """One check and whether this run would decide it."""

    check: str
    title: str
    tier: Tier
    required: bool
    will_run: bool
    missing: str


def plan(options: PlanOptions) -> CommandResult:
    """What `validate` with the same options would run, and what keeps the rest from running."""
    question = read_question(options.change)
    required = set(question.policy.required_checks)
    planned: list[PlannedCheck] = []
    for check in sorted(all_checks(), key=lambda c: (c.tier.rank, c.id)):
        able, why_not = can_run(check.tier)
        if check.tier.rank > options.change.tier.rank:
            able, why_not = False, f"not asked for (--tier {options.change.tier})"
        planned.append(
            PlannedCheck(
                check=check.id,
                title=check.title,
                tier=check.tier,
                required=check.id in required,
                will_run=able,
                missing="" if able else why_not,
            )
        )
    head = question.change.head[:12]
    summary = f"{len(question.changed_files.files)} changed files up to {head} would be judged."
    return CommandResult(text=render_plan(planned, summary, options.output.format), exit_code=ExitCode.ADMIT)


def render_plan(planned: list[PlannedCheck], summary: str, form: Format) -> str:
    """The plan as text, Markdown or one JSON document."""
    if form == "json":
        checks = [
            {
                "check": p.check,
                "title": p.title,
                "tier": str(p.tier),
                "required": p.required,
                "will_run": p.will_run,
                "missing": p.missing,
            }
            for p in planned
        ]
        costs = {str(tier): cost for tier, cost in COSTS.items()}
        return json.dumps(
            {"schema_version": 1, "summary": summary, "checks": checks, "costs": costs}, indent=2
        )
    lines = [summary, ""]
    for tier in sorted({p.tier for p in planned}, key=lambda t: t.rank):
        group = [p for p in planned if p.tier is tier]
        lines.append(f"{'## ' if form == 'md' else ''}{tier} tier ({COSTS[tier]})")
        for p in group:
            word = "runs" if p.will_run else "does not run"
            need = "required" if p.required else "advisory"
            lines.append(f"{'- ' if form == 'md' else '  '}{p.check} {word}, {need}: {p.title}")
        if missing := next((p.missing for p in group if p.missing), ""):
            lines.append(f"{'- ' if form == 'md' else '  '}missing: {missing}")
        lines.append("")
    return "\n".join(lines)


def kernel_tools() -> dict[str, str]:
    """What compiles kernels in this interpreter and reads their machine code; where a tool is missing, how to get it.

    Another interpreter may have them: `--python` names it.
    """
    found = {
        name: "installed" if find_spec(module) is not None else f"missing. {ADVICE}"
        for name, module in (("CuTe DSL", "cutlass"), ("Triton", "triton"))
    }
    try:
        find_nvdisasm()
    except ToolMissingError as error:
        return found | {"nvdisasm": f"missing. {error.advice}"}
    return found | {"nvdisasm": "installed"}


def doctor(options: DoctorOptions) -> CommandResult:
    """What this machine can run, and how to get the rest."""
    environment = collect_environment(Tier.STATIC)
    tiers = [(tier, *can_run(tier)) for tier in Tier]
    if options.output.format == "json":
        document = {
            "schema_version": 1,
            "machine": environment.model_dump(
                mode="json", include={"cpu", "num_cores", "memory_gib", "gpus", "os", "python", "packages"}
            ),
            "kernels": kernel_tools(),
            "tiers": [{"tier": str(t), "can_run": able, "missing": why} for t, able, why in tiers],
        }
        return CommandResult(text=json.dumps(document, indent=2), exit_code=ExitCode.ADMIT)
    gpus = ", ".join(environment.gpus) or "no GPU"
    bullet = "- " if options.output.format == "md" else "  "
    lines = [
        f"{environment.cpu}, {environment.num_cores} cores, {environment.memory_gib:.0f} GiB, {gpus}",
        f"{environment.os}, {environment.python}",
        "",
        "Tiers:",
    ]
    lines += [f"{bullet}{t}: {'can run' if able else f'cannot run: {why}'}" for t, able, why in tiers]
    lines += ["", "Kernels, for the audit:"]
    lines += [f"{bullet}{tool}: {state}" for tool, state in kernel_tools().items()]
    lines += ["", "Packages:"]
    lines += [f"{bullet}{name} {number}" for name, number in sorted(environment.packages.items())]
    return CommandResult(text="\n".join(lines), exit_code=ExitCode.ADMIT)
