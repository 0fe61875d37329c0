"""`fasttrack report`, and `fasttrack bundle`: what can be done with bundles alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bundles.archive import opened
from bundles.compare import compare_bundles
from bundles.contents import Bundle
from bundles.keys import parse_public_key
from bundles.merge import is_missing_tier, list_choices, merged_records, other_terms, require_one_question
from bundles.reader import read_bundle
from bundles.scrub import TakenOver
from bundles.verify import JUDGED_BY_OTHERS, Difference, VerifyResult, verify_bundle
from bundles.writer import EvidenceStore, require_outside
from harness.app.collector import collector_paused
from harness.app.intact import JUDGE_AGAIN, exit_code_of, read_intact
from harness.app.judgement_text import render_judgement
from harness.app.judging import decide, render_report
from harness.app.sealing import judge_and_seal
from harness.config import read_configuration
from harness.facts.packages import digest_of_judge
from harness.model.errors import ConfigurationError
from harness.model.evidence import AnyEvidence, SourceEvidence
from harness.model.finding import Finding
from harness.model.judgement import Judgement
from harness.model.words import ExitCode, Outcome, Principle, Tier, Verdict
from harness.options import CombineOptions, CommandResult, ReportOptions, VerifyOptions
from reports.shown import visible

GET_AGAIN = "get the bundle again from where it was made."


def report(options: ReportOptions) -> CommandResult:
    """Shows a bundle's judgement and, with `--out`, renders its report into another file.

    Raises:
        BundleError: the bundle is not intact: nothing is shown of what its evidence does not give.
    """
    with opened(options.bundle) as folder:
        bundle = read_intact(folder).bundle
    judgement = bundle.judgement
    if options.out is not None:
        require_outside(options.out)
        options.out.write_text(render_report(bundle), encoding="utf-8")
    text = render_judgement(judgement, options.bundle, options.output, bundle)
    return CommandResult(text=text, exit_code=judgement.exit_code)


def verify(options: VerifyOptions) -> CommandResult:
    """Rebuilds findings, verdict and report from the evidence, and says what differs and who signed."""
    with opened(options.bundle) as folder, collector_paused():
        result = verify_bundle(
            folder,
            decide,
            render_report,
            judge_sha256=digest_of_judge(),
            sigstore_root=options.sigstore_root,
        )
    result = replace(result, differences=(*result.differences, *_missing_signature(result, options.keys)))
    findings = [difference_finding(d) for d in result.differences]
    code = exit_code_of(result)
    if options.output.format == "json":
        return CommandResult(text=render_verify_json(result, findings), exit_code=code)
    if result.intact and result.rebuilt is not None:
        lines = [
            f"intact: {result.num_files} files, {result.num_evidence} evidence records; findings, verdict and "
            f"report come out the same when made again.",
            f"verdict of the bundle: {result.rebuilt.verdict}",
            *(f"signed by {a.signer.fingerprint} as {a.claimed_trust}" for a in result.attestations),
        ]
    else:
        lines = _say_differences(result)
    return CommandResult(text="\n".join(lines), exit_code=code)


def _say_differences(result: VerifyResult) -> list[str]:
    """Lines for what is not as it should be, and what to do about it; none for an intact bundle."""
    if result.intact:
        return []
    number = len(result.differences)
    lines = [f"NOT intact: {number} difference{'s' if number > 1 else ''}.", f"  next: {GET_AGAIN}"]
    if result.judged_by_others and result.rebuilt is not None:
        lines = [
            f"judged by another fasttrack: {result.num_files} files and {result.num_evidence} evidence records are as "
            "they were sealed; findings, verdict or report come out otherwise with the fasttrack that runs here.",
            f"  verdict of its evidence here: {result.rebuilt.verdict}: {result.rebuilt.reason}",
            f"  next: {JUDGE_AGAIN}",
        ]
    lines += [f"  {d.where or '(bundle)'}: {d.message} [{d.slug}]" for d in result.differences]
    return list(map(visible, lines))


def _missing_signature(result: VerifyResult, files: Sequence[Path]) -> list[Difference]:
    """A difference, when keys were named and none of them signed."""
    keys = {
        parse_public_key(read_configuration(file, "public key").decode("utf-8", "replace")) for file in files
    }
    signers = {attestation.signer for attestation in result.attestations}
    if not keys or keys & signers:
        return []
    if not signers:
        return [Difference(slug="bundle-unsigned", where="", message="Nobody signed it.")]
    by = ", ".join(sorted(key.fingerprint for key in signers))
    message = f"None of the named keys signed it; signed by {by}."
    return [Difference(slug="bundle-wrong-key", where="", message=message)]


def difference_finding(difference: Difference) -> Finding:
    """A difference in the shape of every other finding: evidence that cannot be trusted is an error."""
    return Finding(
        check="BUNDLE",
        principle=Principle.CORRECTNESS,
        tier=Tier.STATIC,
        subject=difference.where or "bundle",
        outcome=Outcome.ERROR,
        message=f"{difference.message} [{difference.slug}]",
        advice=JUDGE_AGAIN if difference.slug == JUDGED_BY_OTHERS else GET_AGAIN,
    )


def render_verify_json(result: VerifyResult, findings: Sequence[Finding]) -> str:
    """One JSON document: whether the bundle is intact, its rebuilt verdict, and what differs."""
    intact = result.intact and result.rebuilt is not None
    document = {
        "schema_version": 1,
        "intact": result.intact,
        "judged_by_others": result.judged_by_others,
        "verdict": str(result.rebuilt.verdict) if intact and result.rebuilt else None,
        "reason": "findings, verdict and report come out the same"
        if intact
        else "another fasttrack judged it"
        if result.judged_by_others
        else "the bundle is not intact",
        "num_files": result.num_files,
        "num_evidence": result.num_evidence,
        "signers": [a.signer.fingerprint for a in result.attestations],
        "findings": [f.model_dump(mode="json") for f in findings],
    }
    return json.dumps(document, indent=2, allow_nan=False)


def show(options: VerifyOptions) -> CommandResult:
    """What a bundle holds: the change, its tiers and records, its size, who signed it.

    The verdict is the one that its evidence gives now; where that of the bundle is another one, or anything else is not
    as it was sealed, the first line and the exit code say so.
    """
    with opened(options.bundle) as folder, collector_paused():
        result = verify_bundle(folder, decide, render_report, judge_sha256=digest_of_judge())
        bundle = result.bundle or read_bundle(folder)
    judgement = result.rebuilt or bundle.judgement
    code = exit_code_of(result)
    kinds = Counter((str(r.tier), r.kind) for r in bundle.records)
    hardware = sorted({r.hardware for r in bundle.records if r.hardware})
    signers = [a.signer.fingerprint for a in result.attestations]
    parts = _describe_parts(bundle)
    document = {
        "schema_version": 1,
        "intact": result.intact,
        "content_sha256": bundle.content_sha256,
        "verdict": str(judgement.verdict),
        "reason": judgement.reason,
        "change": bundle.change.model_dump(mode="json"),
        "records": [{"tier": t, "kind": k, "number": n} for (t, k), n in sorted(kinds.items())],
        "bytes": sum(d.size for d in bundle.contents.values()),
        "hardware": hardware,
        "signers": signers,
        "parts": parts,
    }
    if options.output.format == "json":
        return CommandResult(text=json.dumps(document, indent=2, allow_nan=False), exit_code=code)
    lines = [
        *_say_differences(result),
        f"bundle {bundle.content_sha256[:16]}: {document['verdict']}: {document['reason']}",
        f"change {bundle.change.merge_base[:12]}..{bundle.change.head[:12]}",
        *(f"{tier:8}{number:5} {kind}" for (tier, kind), number in sorted(kinds.items())),
        f"{document['bytes']} bytes of evidence, manifest, policy and judgement",
        *(f"made on: {machine}" for machine in hardware),
        *(f"signed by {signer}" for signer in signers),
        *(
            f"joined from {part['content_sha256'][:16]}: {', '.join(part['tiers'])} tier, "
            f"{part['num_records']} records, made on {', '.join(part['hardware']) or 'a machine that is not named'}, "
            f"by its own word signed by {', '.join(part['claimed_signers']) or 'nobody'}"
            for part in parts
        ),
    ]
    return CommandResult(text="\n".join(visible(line) for line in lines), exit_code=code)


def _describe_parts(bundle: Bundle) -> list[dict[str, Any]]:
    """What a merged bundle says that it took from where; the parts' signatures are not in it."""
    by_id = {record.id: record for record in bundle.records if not is_missing_tier(record)}
    sources = [record for record in bundle.records if isinstance(record, SourceEvidence)]
    return [
        {
            "content_sha256": source.content_sha256,
            "claimed_signers": list(source.signers),
            "tiers": sorted({str(by_id[i].tier) for i in source.evidence if i in by_id}),
            "hardware": sorted({by_id[i].hardware for i in source.evidence if i in by_id} - {""}),
            "num_records": len(source.evidence),
        }
        for source in sources
    ]


def diff(options: CombineOptions) -> CommandResult:
    """Compares two bundles cell by cell; exit code 1 when any differs."""
    left, right = (_read(place) for place in options.bundles)
    differences, num_same = compare_bundles(left, right)
    terms = other_terms(left, right)
    code = ExitCode.REJECT if differences else ExitCode.ADMIT
    if options.output.format == "json":
        document = {
            "schema_version": 1,
            "other_terms": terms,
            "num_same": num_same,
            "differences": [asdict(difference) for difference in differences],
        }
        return CommandResult(text=json.dumps(document, indent=2, allow_nan=False), exit_code=code)
    lines = [f"They do not answer one question: other {', '.join(terms)}."] if terms else []
    lines.append(f"{len(differences)} cells differ, {num_same} are the same.")
    lines += [
        f"{d.check} {d.subject}{f' ({d.number})' if d.number else ''}: {d.left or '-'} -> {d.right or '-'}"
        for d in differences
    ]
    return CommandResult(text="\n".join(map(visible, lines)), exit_code=code)


def merge(options: CombineOptions) -> CommandResult:
    """Joins bundles of one change, each tier from the one that has it, and judges them together.

    One bundle alone is judged again: what it says of itself is not taken over.

    Raises:
        ConfigurationError: a bundle is not intact, more than one of them collected a tier other than the static one, or
            the joined bundle would be written over one of them or into a bundle.
        BundleError: they do not answer the same question.
    """
    assert options.out is not None
    if options.out.resolve() in {place.resolve() for place in options.bundles}:
        message = f"{options.out} is one of the bundles that are to be joined."
        raise ConfigurationError("out-in-bundle", message, "Name another place with --out.")
    with collector_paused():
        bundles, signers = zip(*(_read_part(place) for place in options.bundles), strict=True)
    require_one_question(bundles)
    records = choose_records(bundles, signers)
    scrubber = TakenOver()
    store = EvidenceStore(options.out, replace=True, scrubber=scrubber)
    for record in records:
        store.add(record)
    return judge_and_seal(options.out, bundles[0], store.records, scrubber, options.output)


def choose_records(bundles: Sequence[Bundle], signers: Sequence[Sequence[str]]) -> tuple[AnyEvidence, ...]:
    """The evidence of the one way to take each tier from one bundle.

    What the static tier finds depends on the engine that a machine has. Of static evidence that differs for that reason
    the worst counts, as at the gate.
    """
    choices = list_choices(bundles)
    twice = {tier for choice in choices for tier in choice if len({c[tier] for c in choices}) > 1}
    if twice - {Tier.STATIC}:
        message = f"More than one bundle has tier {', '.join(sorted(twice))}."
        advice = "Leave one out; `fasttrack gate` takes replicates as they are, and compares them."
        raise ConfigurationError("merge-overlap", message, advice)
    ways = [merged_records(bundles, choice, signers) for choice in choices]
    if len(ways) == 1:
        return ways[0]
    first = bundles[0]
    judged = [decide(first.manifest_text, first.policy_text, first.change, records) for records in ways]
    return ways[min(range(len(ways)), key=lambda i: _goodness(judged[i]))]


def _goodness(judgement: Judgement) -> tuple[int, int]:
    """More is better: the verdict, then how many checks let the change through."""
    worst_first = (Verdict.REJECT, Verdict.UNDECIDED, Verdict.ADMIT)
    return worst_first.index(judgement.verdict), sum(c.outcome.lets_through for c in judgement.checks)


def _read_part(place: Path) -> tuple[Bundle, list[str]]:
    """A bundle whose evidence is as it was sealed, and who signed it.

    What other sources of fasttrack said of the evidence is made anew, and may differ.
    """
    with opened(place) as folder:
        result = verify_bundle(folder, decide, render_report, judge_sha256=digest_of_judge())
        if result.bundle is None or not (result.intact or result.judged_by_others):
            first = result.differences[0]
            message = f"{place.name} is not intact: {first.where}: {first.message}"
            raise ConfigurationError("merge-not-intact", message, "Run `fasttrack bundle verify` on it.")
        return result.bundle, [a.signer.fingerprint for a in result.attestations]


def _read(place: Path) -> Bundle:
    with opened(place) as folder:
        return read_intact(folder).bundle
