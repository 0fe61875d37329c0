"""`fasttrack report`, `bundle verify` and `gate`: what can be done with a bundle alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from bundles.contents import Bundle
from bundles.reader import read_bundle
from bundles.verify import Difference, VerifyResult, verify_bundle
from harness.app.inward import InwardEvidence, collect_without_collector
from harness.app.judging import decide, render_report
from harness.app.validate import Question, read_question, render_judgement, static_question
from harness.model.errors import ConfigurationError
from harness.model.evidence import ChangedFilesEvidence
from harness.model.finding import Finding
from harness.model.judgement import Judgement
from harness.model.words import ExitCode, Outcome, Principle, Tier, Verdict
from harness.options import ChangeOptions, CommandResult, GateOptions, ReportOptions, VerifyOptions

_WORST_FIRST = (Verdict.REJECT, Verdict.UNDECIDED, Verdict.ADMIT)


def report(options: ReportOptions) -> CommandResult:
    """Shows a bundle's judgement and, with `--out`, renders its report into another file."""
    bundle = read_bundle(options.bundle)
    judgement = bundle.judgement
    if options.out is not None:
        if options.out.resolve().is_relative_to(options.bundle.resolve()):
            raise ConfigurationError(
                "out-in-bundle",
                f"{options.out} lies in the bundle, which holds a report already.",
                "Name another file.",
            )
        options.out.write_text(render_report(bundle), encoding="utf-8")
    text = render_judgement(judgement, options.bundle, options.output)
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

    Nothing that can be recomputed is believed: change, diff, manifest and policy are read from the gating
    repository, each bundle is verified and held against them, and judged again under that policy. One bundle that
    does not fit leaves nothing to decide on.
    """
    terms = read_question(
        ChangeOptions(repo=options.repo, base=options.base, head=options.head, policy=options.policy)
    )
    inward = collect_without_collector(static_question(terms))
    lines: list[str] = [f"change: {terms.change.merge_base[:12]}..{terms.change.head[:12]}"]
    findings: list[Finding] = []
    verdicts: list[Verdict] = []
    codes: list[ExitCode] = []
    for folder in options.bundles:
        judgement, problems = judge_for_gate(folder, terms, inward)
        findings += problems
        lines += [f"{folder.name}: {p.subject}: {p.message}" for p in problems]
        if judgement is None:
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


def judge_for_gate(
    folder: Path, terms: Question, inward: Sequence[InwardEvidence]
) -> tuple[Judgement | None, list[Finding]]:
    """The bundle's judgement under the gate's terms; None, and why, when it cannot be used.

    What the gate reads in its own repository, `inward`, stands for what the bundle says of it.
    """
    result = verify_bundle(folder, decide, render_report)
    if not result.intact:
        return None, [difference_finding(d) for d in result.differences]
    bundle = read_bundle(folder)
    misfits = find_misfits(bundle, terms)
    if misfits:
        return None, [difference_finding(m) for m in misfits]
    records = [r for r in bundle.records if not isinstance(r, InwardEvidence)]
    return decide(terms.manifest_text, terms.policy_text, bundle.change, [*records, *inward]), []


def find_misfits(bundle: Bundle, terms: Question) -> list[Difference]:
    """Where the bundle speaks of another change than the one at the gate, or of a part of it."""
    change, found = bundle.change, []
    if change.head != terms.change.head:
        text = f"It judges {change.head[:12]}, the head is {terms.change.head[:12]}: it is stale."
        found.append(Difference(slug="bundle-stale", where="change.json#/head", message=text))
    if change.merge_base != terms.change.merge_base:
        text = f"It compares with {change.merge_base[:12]}, the merge base is {terms.change.merge_base[:12]}."
        found.append(Difference(slug="bundle-other-base", where="change.json#/merge_base", message=text))
    if change.limited_to:
        text = "It was made with --paths and leaves out a part of the change."
        found.append(Difference(slug="bundle-of-a-part", where="change.json#/limited_to", message=text))
    if bundle.manifest_text != terms.manifest_text:
        text = "Its manifest is not the one of the head commit."
        found.append(Difference(slug="bundle-other-manifest", where="fasttrack.toml", message=text))
    records = [r for r in bundle.records if isinstance(r, ChangedFilesEvidence)]
    if len(records) != 1 or records[0].files != terms.changed_files.files or records[0].num_not_judged:
        text = "Its list of changed files is not the diff of the gating repository."
        found.append(Difference(slug="bundle-other-diff", where="evidence", message=text))
    return found
