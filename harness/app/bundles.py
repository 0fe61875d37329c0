"""`fasttrack report`, `bundle verify` and `gate`: what can be done with a bundle alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from bundles.reader import read_bundle
from bundles.verify import Difference, VerifyResult, verify_bundle
from harness.app.judging import decide, known_checks, render_report
from harness.app.validate import render_judgement
from harness.config import DEFAULT_POLICY, decode_configuration, load_policy, read_configuration
from harness.facts.git import Repository
from harness.model.finding import Finding
from harness.model.judgement import Judgement
from harness.model.words import ExitCode, Outcome, Principle, Tier, Verdict
from harness.options import CommandResult, GateOptions, ReportOptions, VerifyOptions

_WORST_FIRST = (Verdict.REJECT, Verdict.UNDECIDED, Verdict.ADMIT)


def report(options: ReportOptions) -> CommandResult:
    """Renders the report of a bundle; the bundle's own copy is only written when it is missing from `--out`."""
    bundle = read_bundle(options.bundle)
    judgement = bundle.judgement
    if options.out is not None:
        options.out.write_text(render_report(bundle), encoding="utf-8")
    text = render_judgement(judgement, options.bundle, options.output.format, color=options.output.color)
    return CommandResult(text=text, exit_code=judgement.exit_code)


def verify(options: VerifyOptions) -> CommandResult:
    """Rebuilds findings, verdict and report from the evidence and says what differs."""
    result = verify_bundle(options.bundle, decide, render_report)
    findings = [difference_finding(d) for d in result.differences]
    code = ExitCode.ADMIT if result.intact else ExitCode.HARNESS
    if options.output.format == "json":
        return CommandResult(text=render_verify_json(result, findings), exit_code=code)
    if result.intact and result.rebuilt is not None:
        lines = [
            f"intact: {result.num_files} files, {result.num_evidence} evidence records; findings, verdict and "
            f"report come out the same when made again.",
            f"verdict of the bundle: {result.rebuilt.verdict}",
        ]
    else:
        lines = [f"NOT intact: {len(result.differences)} differences."]
        lines += [f"  {d.where or '(bundle)'}: {d.message} [{d.slug}]" for d in result.differences]
    return CommandResult(text="\n".join(lines), exit_code=code)


def difference_finding(difference: Difference) -> Finding:
    """A difference in the shape of every other finding: evidence that cannot be trusted is an error."""
    return Finding(
        check="BUNDLE",
        principle=Principle.CORRECTNESS,
        tier=Tier.STATIC,
        subject=difference.where or "bundle",
        outcome=Outcome.ERROR,
        message=f"{difference.message} [{difference.slug}]",
        advice="Get the bundle again from where it was made.",
    )


def render_verify_json(result: VerifyResult, findings: Sequence[Finding]) -> str:
    """One JSON document: whether the bundle is intact, its rebuilt verdict, and what differs."""
    intact = result.intact and result.rebuilt is not None
    document = {
        "schema_version": 1,
        "intact": result.intact,
        "verdict": str(result.rebuilt.verdict) if intact and result.rebuilt else None,
        "reason": "findings, verdict and report come out the same" if intact else "the bundle is not intact",
        "num_files": result.num_files,
        "num_evidence": result.num_evidence,
        "findings": [f.model_dump(mode="json") for f in findings],
    }
    return json.dumps(document, indent=2, allow_nan=False)


def gate(options: GateOptions) -> CommandResult:
    """Decides from bundles whether a change may be merged.

    Nothing that can be recomputed is believed: each bundle is verified and judged again under the gate's own
    policy. One bundle that is not intact or of another commit leaves nothing to decide on.
    """
    policy_text, head = gate_terms(options)
    load_policy(policy_text, known_checks=known_checks())
    lines: list[str] = []
    findings: list[Finding] = []
    verdicts: list[Verdict] = []
    codes: list[ExitCode] = []
    for folder in options.bundles:
        judgement, problems = judge_for_gate(folder, policy_text, head)
        findings += problems
        lines += [f"{folder.name}: {p.subject}: {p.message}" for p in problems]
        if judgement is None or problems:
            codes.append(ExitCode.HARNESS)
            verdicts.append(Verdict.UNDECIDED)
            continue
        findings += judgement.findings
        verdicts.append(judgement.verdict)
        codes.append(judgement.exit_code)
        lines.append(f"{folder.name}: {judgement.verdict}: {judgement.reason}")
    verdict = min(verdicts, key=_WORST_FIRST.index)
    code = codes[verdicts.index(verdict)] if verdict is not Verdict.UNDECIDED else max(codes)
    if options.output.format == "json":
        document = {
            "schema_version": 1,
            "verdict": str(verdict),
            "reason": " ".join(lines),
            "findings": [f.model_dump(mode="json") for f in findings],
        }
        return CommandResult(text=json.dumps(document, indent=2, allow_nan=False), exit_code=code)
    return CommandResult(text="\n".join([f"gate: {verdict}", *lines]), exit_code=code)


def gate_terms(options: GateOptions) -> tuple[str, str | None]:
    """The policy text of the gating repository and the commit that is about to be merged."""
    head = None
    if options.head is not None:
        head = Repository(options.repo).resolve(options.head)
    path = options.policy or options.repo / DEFAULT_POLICY
    return decode_configuration(read_configuration(path, "policy"), str(path), "policy"), head


def judge_for_gate(
    folder: Path, policy_text: str, head: str | None
) -> tuple[Judgement | None, list[Finding]]:
    """The bundle's judgement under the gate's policy, and why it cannot be used where that is so."""
    result = verify_bundle(folder, decide, render_report)
    problems = [difference_finding(d) for d in result.differences]
    if not result.intact:
        return None, problems
    bundle = read_bundle(folder)
    if head is not None and bundle.change.head != head:
        stale = Difference(
            slug="bundle-stale",
            where="change.json#/head",
            message=f"The bundle judges {bundle.change.head[:12]}, the head is {head[:12]}: it is stale.",
        )
        return None, [difference_finding(stale)]
    return decide(bundle.manifest_text, policy_text, bundle.change, bundle.records), []
