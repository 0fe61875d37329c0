"""`fasttrack gate`: whether a change may be merged, from bundles and the gating repository alone.

Nothing that can be recomputed is believed: change, diff, manifest and policy are read from the gating repository, each
bundle is verified and held against them, and its evidence judged again under that policy, with what git's objects give
read here in its place. What cannot be recomputed, who made the evidence, is known by signatures of keys that the policy
names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, date, datetime
from pathlib import Path

from bundles.archive import opened
from bundles.cells import numbered
from bundles.error import BundleError
from bundles.files import read_file
from bundles.keys import PublicKey
from bundles.merge import Choice, list_choices, merged_records
from bundles.verify import Difference, difference_of, verify_bundle
from bundles.waiver import RuledWaiver, Waiver, read_waiver, rule_waivers
from harness.app.bundles import difference_finding
from harness.app.collector import collector_paused
from harness.app.gate_json import render_gate_json
from harness.app.gate_view import write_gate_folder
from harness.app.judging import decide, render_report
from harness.app.misfits import find_misfits
from harness.app.own_reading import OwnReading, read_commits
from harness.app.reaching import StaticQuestion
from harness.app.ruling import Judged, Ruling
from harness.app.trust import Part, level_of, rule_trust, say_signers, say_trust
from harness.app.validate import Question, read_question, static_question
from harness.facts.packages import digest_of_judge
from harness.model.errors import ConfigurationError
from harness.model.finding import Finding
from harness.model.judgement import CheckSummary, Judgement, decide_verdict
from harness.model.words import ExitCode, Verdict
from harness.options import ChangeOptions, CommandResult, GateOptions
from reports.shown import visible

_WORST_FIRST = (Verdict.REJECT, Verdict.UNDECIDED, Verdict.ADMIT)


def gate(
    options: GateOptions, *, read: Callable[[StaticQuestion], OwnReading] = read_commits
) -> CommandResult:
    """The ruling as text or JSON; `out` gets the report that shows it. `read` gives what git's objects say."""
    ruling = rule(options, read=read)
    if options.out is not None:
        write_gate_folder(ruling, options.out)
    text = render_gate_json(ruling) if options.output.format == "json" else ruling.text
    return CommandResult(text=text, exit_code=ruling.code)


def rule(options: GateOptions, *, read: Callable[[StaticQuestion], OwnReading] = read_commits) -> Ruling:
    """Decides; one bundle that does not fit leaves nothing to decide on.

    Raises:
        ConfigurationError: no bundle is given, or there is no such change.
    """
    if not options.bundles:
        raise ConfigurationError("no-bundle", "No bundle is given.", "Name at least one.")
    terms = read_question(
        ChangeOptions(repo=options.repo, base=options.base, head=options.head, policy=options.policy)
    )
    now = datetime.now(UTC)
    parts: list[Part] = []
    refused: list[str] = []
    problems: list[tuple[str, Finding]] = []
    with ExitStack() as stack:
        stack.enter_context(collector_paused())
        names = numbered(place.name for place in options.bundles)
        for name, place in zip(names, options.bundles, strict=True):
            part, found = _read_part(name, place, stack, terms, now, options.sigstore_root)
            parts += [part] if part else []
            refused += [] if part else [name]
            problems += [(name, difference_finding(difference)) for difference in found]
    waivers, bad_waivers = _read_waivers(options.waivers)
    ruled = None
    if not problems:
        ruled = _rule(parts, terms, read(static_question(terms)), waivers, now.date())
    problems += [(name, difference_finding(difference)) for name, difference in bad_waivers]
    if ruled is not None and not problems:
        return ruled
    return Ruling(
        verdict=Verdict.UNDECIDED,
        code=ExitCode.HARNESS,
        terms=terms,
        lines=tuple(visible(f"{name}: {finding.subject}: {finding.message}") for name, finding in problems),
        findings=tuple(finding for _, finding in problems),
        parts=tuple(parts),
        refused=tuple(refused),
        judged=ruled.judged if ruled is not None else None,
    )


def _read_part(
    name: str, place: Path, stack: ExitStack, terms: Question, now: datetime, sigstore_root: Path | None
) -> tuple[Part | None, list[Difference]]:
    try:
        folder = stack.enter_context(opened(place))
    except BundleError as error:
        return None, [difference_of(error)]
    result = verify_bundle(
        folder, decide, render_report, judge_sha256=digest_of_judge(), sigstore_root=sigstore_root
    )
    bundle = result.bundle
    if bundle is None:
        return None, list(result.differences)
    misfits = find_misfits(bundle, terms, now)
    if not (result.intact or result.judged_by_others):
        return None, [*misfits, *result.differences]
    part = Part(
        name=name,
        bundle=bundle,
        signers=tuple(a.signer for a in result.attestations),
        judged_by_others=result.judged_by_others,
    )
    return (None if misfits else part), misfits


def _read_waivers(
    files: Sequence[Path],
) -> tuple[list[tuple[Waiver, PublicKey]], list[tuple[str, Difference]]]:
    waivers, problems = [], []
    for file in files:
        try:
            waivers.append(read_waiver(read_file(file, file.name), file.name))
        except BundleError as error:
            problems.append((file.name, difference_of(error)))
    return waivers, problems


def _rule(
    parts: Sequence[Part],
    terms: Question,
    reading: OwnReading,
    waivers: Sequence[tuple[Waiver, PublicKey]],
    today: date,
) -> Ruling:
    """Judges every way to take each tier from one bundle; the worst counts, so that replicates must agree."""
    # Of bundles that say the same, the first stands for all: it is to be the one that is trusted most.
    parts = sorted(parts, key=lambda part: -level_of(part, terms.policy.trust).rank)
    bundles = [part.bundle for part in parts]
    signers = [[key.fingerprint for key in part.signers] for part in parts]
    choices = list_choices(bundles, known=reading.known)
    evidence = [reading.stands_in(merged_records(bundles, choice, signers)) for choice in choices]
    judged = [
        decide(terms.manifest_text, terms.policy_text, bundles[0].change, records) for records in evidence
    ]
    open_checks = {
        c.check for judgement in judged for c in judgement.checks if c.required and not c.outcome.lets_through
    }
    ruled = rule_waivers(
        waivers, terms.policy.trust, head=terms.change.head, today=today, open_checks=open_checks
    )
    waived = {r.waiver.check for r in ruled if not r.refusal}
    verdicts = [_decide_without(judgement, waived) for judgement in judged]
    worst = min(range(len(judged)), key=lambda i: _WORST_FIRST.index(verdicts[i][0]))
    verdict, reason = verdicts[worst]
    lines = [f"{', '.join(part.name for part in parts)}: {verdict}: {reason}"]
    lines += [_say_waiver(r) for r in ruled]
    lines += _say_disagreements(choices, judged, parts)
    lines += [
        f"{part.name}: its {kind} is not what the gate reads of the commits ({how}); the gate's own counts"
        for part in parts
        for kind, how in reading.differing_fields(part.bundle.records)
    ]
    if not reading.knows_engine:
        lines.append("names in the engine (ISO005, ISO006): no vLLM is here, so the bundles' word counts")
    lines += [
        f"{part.name}: other sources of fasttrack judged it; nothing that they said counts, its evidence is judged here"
        for part in parts
        if part.judged_by_others
    ]
    lines += [say_signers(part, terms.policy.trust) for part in parts]
    trust = rule_trust(parts, choices, judged, terms.policy.trust)
    lines += [say_trust(ruled_tier) for ruled_tier in trust]
    code = _code(verdict, judged[worst], waived)
    if not all(tier.is_enough for tier in trust) and verdict is Verdict.ADMIT:
        verdict, code = Verdict.UNDECIDED, ExitCode.UNDECIDED
    return Ruling(
        verdict=verdict,
        code=code,
        terms=terms,
        lines=tuple(visible(line) for line in lines),
        findings=judged[worst].findings,
        waivers=ruled,
        parts=tuple(parts),
        trust=trust,
        judged=Judged(question=terms, records=evidence[worst], judgement=judged[worst], first=bundles[0]),
    )


def _decide_without(judgement: Judgement, waived: set[str]) -> tuple[Verdict, str]:
    required = {summary.check for summary in judgement.checks if summary.required}
    if required and required <= waived:
        return Verdict.UNDECIDED, "Every check that the policy requires is waived, so nothing is shown."
    return decide_verdict([_without(summary, waived) for summary in judgement.checks])


def _without(summary: CheckSummary, waived: set[str]) -> CheckSummary:
    return summary.model_copy(update={"required": False}) if summary.check in waived else summary


def _code(verdict: Verdict, judgement: Judgement, waived: set[str]) -> ExitCode:
    checks = tuple(_without(summary, waived) for summary in judgement.checks)
    return judgement.model_copy(update={"verdict": verdict, "checks": checks}).exit_code


def _say_waiver(ruled: RuledWaiver) -> str:
    text = f"{ruled.waiver.check}, by {ruled.signer}, until {ruled.waiver.until}: {ruled.waiver.reason}"
    return f"waiver refused ({ruled.refusal}): {text}" if ruled.refusal else f"WAIVED: {text}"


def _say_disagreements(
    choices: Sequence[Choice], judged: Sequence[Judgement], parts: Sequence[Part]
) -> list[str]:
    """Required checks on which replicates disagree, with what each says."""
    if len(judged) < 2:
        return []
    lines = []
    for index, summary in enumerate(judged[0].checks):
        outcomes = {
            parts[choice.get(summary.tier, 0)].name: judgement.checks[index].outcome
            for choice, judgement in zip(choices, judged, strict=True)
        }
        if summary.required and len(set(outcomes.values())) > 1:
            said = ", ".join(f"{name}: {outcome}" for name, outcome in outcomes.items())
            lines.append(f"replicates disagree on {summary.check}: {said}; the worst counts")
    return lines
