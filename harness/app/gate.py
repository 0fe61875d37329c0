"""`fasttrack gate`: whether a change may be merged, from bundles and the gating repository alone.

Nothing that can be recomputed is believed: change, diff, manifest and policy are read from the gating repository, each
bundle is verified and held against them, and its evidence judged again under that policy. What cannot be recomputed,
who made the evidence, is known by signatures of keys that the policy names.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from bundles.archive import opened
from bundles.contents import Bundle
from bundles.error import BundleError
from bundles.keys import PublicKey, parse_public_key
from bundles.merge import Choice, list_choices, merged_records
from bundles.verify import Difference, difference_of, verify_bundle
from bundles.waiver import RuledWaiver, Waiver, read_waiver, rule_waivers
from harness.app.bundles import difference_finding
from harness.app.collector import collector_paused
from harness.app.inward import InwardEvidence, collect_without_collector
from harness.app.judging import decide, render_report
from harness.app.misfits import find_misfits
from harness.app.validate import Question, read_question, static_question
from harness.facts.packages import digest_of_judge
from harness.model.evidence import AnyEvidence
from harness.model.finding import Finding
from harness.model.judgement import CheckSummary, Judgement, decide_verdict
from harness.model.words import ExitCode, Tier, TrustLevel, Verdict
from harness.options import ChangeOptions, CommandResult, GateOptions

_WORST_FIRST = (Verdict.REJECT, Verdict.UNDECIDED, Verdict.ADMIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One bundle that fits the change, and whose word it is."""

    name: str
    bundle: Bundle
    signers: tuple[PublicKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The evidence that the gate judged, of replicates that of the worst, and what it came to."""

    question: Question
    records: tuple[AnyEvidence, ...]
    judgement: Judgement
    first: Bundle
    """The bundle that the judgement is about as far as it is about one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What the gate says."""

    verdict: Verdict
    code: ExitCode
    about: str
    """Of which change."""
    lines: tuple[str, ...]
    """Why, a reason a line."""
    findings: tuple[Finding, ...]
    waivers: tuple[RuledWaiver, ...] = ()
    judged: Judged | None = None
    """None where a bundle was refused."""


def gate(options: GateOptions) -> CommandResult:
    """The ruling as text or JSON."""
    ruling = rule(options)
    return CommandResult(text=_render(ruling, options.output.format), exit_code=ruling.code)


def rule(options: GateOptions) -> Ruling:
    """Decides; one bundle that does not fit leaves nothing to decide on."""
    terms = read_question(
        ChangeOptions(repo=options.repo, base=options.base, head=options.head, policy=options.policy)
    )
    now = datetime.now(UTC)
    inward = collect_without_collector(static_question(terms))
    parts: list[_Part] = []
    problems: list[tuple[str, Finding]] = []
    with ExitStack() as stack:
        stack.enter_context(collector_paused())
        for place in options.bundles:
            part, found = _read_part(place, stack, terms, now)
            parts += [part] if part else []
            problems += [(place.name, difference_finding(difference)) for difference in found]
    waivers, bad_waivers = _read_waivers(options.waivers)
    ruled = None if problems else _rule(parts, terms, inward, waivers, now.date())
    problems += [(name, difference_finding(difference)) for name, difference in bad_waivers]
    if ruled is not None and not problems:
        return ruled
    return Ruling(
        verdict=Verdict.UNDECIDED,
        code=ExitCode.HARNESS,
        about=_about(terms),
        lines=tuple(f"{name}: {finding.subject}: {finding.message}" for name, finding in problems),
        findings=tuple(finding for _, finding in problems),
        judged=ruled.judged if ruled is not None else None,
    )


def _about(terms: Question) -> str:
    return f"change: {terms.change.merge_base[:12]}..{terms.change.head[:12]}"


def _read_part(
    place: Path, stack: ExitStack, terms: Question, now: datetime
) -> tuple[_Part | None, list[Difference]]:
    try:
        folder = stack.enter_context(opened(place))
    except BundleError as error:
        return None, [difference_of(error)]
    result = verify_bundle(folder, decide, render_report, judge_sha256=digest_of_judge())
    bundle = result.bundle
    if not result.intact or bundle is None:
        return None, list(result.differences)
    misfits = find_misfits(bundle, terms, now)
    part = _Part(name=place.name, bundle=bundle, signers=tuple(a.signer for a in result.attestations))
    return (None if misfits else part), misfits


def _read_waivers(
    files: Sequence[Path],
) -> tuple[list[tuple[Waiver, PublicKey]], list[tuple[str, Difference]]]:
    waivers, problems = [], []
    for file in files:
        try:
            waivers.append(read_waiver(file.read_bytes(), file.name))
        except BundleError as error:
            problems.append((file.name, difference_of(error)))
    return waivers, problems


def _rule(
    parts: Sequence[_Part],
    terms: Question,
    inward: Sequence[InwardEvidence],
    waivers: Sequence[tuple[Waiver, PublicKey]],
    today: date,
) -> Ruling:
    """Judges every way to take each tier from one bundle; the worst counts, so that replicates must agree."""
    # Of bundles that say the same, the first stands for all: it is to be the one that is trusted most.
    parts = sorted(parts, key=lambda part: -level_of(part, terms).rank)
    bundles = [part.bundle for part in parts]
    signers = [[key.fingerprint for key in part.signers] for part in parts]
    choices = list_choices(bundles)
    evidence = [_in_force(merged_records(bundles, choice, signers), inward) for choice in choices]
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
    verdicts = [decide_verdict([_without(summary, waived) for summary in j.checks]) for j in judged]
    worst = min(range(len(judged)), key=lambda i: _WORST_FIRST.index(verdicts[i][0]))
    verdict, reason = verdicts[worst]
    lines = [f"{', '.join(part.name for part in parts)}: {verdict}: {reason}"]
    lines += [_say_waiver(r) for r in ruled]
    lines += _say_disagreements(choices, judged, parts)
    distrusted = find_distrust(parts, choices, judged, terms)
    lines += distrusted
    code = _code(verdict, judged[worst], waived)
    if distrusted and verdict is Verdict.ADMIT:
        verdict, code = Verdict.UNDECIDED, ExitCode.UNDECIDED
    return Ruling(
        verdict=verdict,
        code=code,
        about=_about(terms),
        lines=tuple(lines),
        findings=judged[worst].findings,
        waivers=ruled,
        judged=Judged(question=terms, records=evidence[worst], judgement=judged[worst], first=bundles[0]),
    )


def _in_force(records: Sequence[AnyEvidence], inward: Sequence[InwardEvidence]) -> tuple[AnyEvidence, ...]:
    """What the gate reads in its own repository, `inward`, stands for what the bundles say of it."""
    return (*(record for record in records if not isinstance(record, InwardEvidence)), *inward)


def _without(summary: CheckSummary, waived: set[str]) -> CheckSummary:
    return summary.model_copy(update={"required": False}) if summary.check in waived else summary


def _code(verdict: Verdict, judgement: Judgement, waived: set[str]) -> ExitCode:
    checks = tuple(_without(summary, waived) for summary in judgement.checks)
    return judgement.model_copy(update={"verdict": verdict, "checks": checks}).exit_code


def _say_waiver(ruled: RuledWaiver) -> str:
    text = f"{ruled.waiver.check}, by {ruled.signer}, until {ruled.waiver.until}: {ruled.waiver.reason}"
    return f"waiver refused ({ruled.refusal}): {text}" if ruled.refusal else f"WAIVED: {text}"


def _say_disagreements(
    choices: Sequence[Choice], judged: Sequence[Judgement], parts: Sequence[_Part]
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


def find_distrust(
    parts: Sequence[_Part], choices: Sequence[Choice], judged: Sequence[Judgement], terms: Question
) -> list[str]:
    """Tiers whose evidence is worth less than the policy asks for."""
    found = []
    for tier, needed in terms.policy.trust.required.items():
        suppliers = sorted({choice[tier] for choice in choices if tier in choice})
        if not suppliers:
            continue
        levels = [level_of(parts[index], terms) for index in suppliers]
        reached = min(levels, key=lambda level: level.rank)
        if _is_replicated(tier, [parts[i] for i in suppliers], choices, judged, terms):
            reached = TrustLevel.REPLICATED
        if reached.rank < needed.rank:
            names = ", ".join(parts[index].name for index in suppliers)
            found.append(
                f"tier {tier}: the policy asks for {needed} evidence; that of {names} is {reached} evidence"
            )
    return found


def level_of(part: _Part, terms: Question) -> TrustLevel:
    """What the bundle's signatures are worth under the policy; that of a contributor where none is known."""
    levels = {parse_public_key(key.public_key): key.level for key in terms.policy.trust.keys}
    known = [TrustLevel(levels[key]) for key in part.signers if key in levels]
    return max(known, key=lambda level: level.rank, default=TrustLevel.CONTRIBUTOR)


def _is_replicated(
    tier: Tier,
    suppliers: Sequence[_Part],
    choices: Sequence[Choice],
    judged: Sequence[Judgement],
    terms: Question,
) -> bool:
    """Whether two holders of known keys collected the tier, each for itself, and every required check agrees."""
    known = {parse_public_key(key.public_key) for key in terms.policy.trust.keys}
    signers = [frozenset(part.signers) & known for part in suppliers]
    contents = {part.bundle.content_sha256 for part in suppliers}
    independent = len(suppliers) > 1 and len(contents) == len(suppliers) and all(signers)
    if not independent or frozenset.intersection(*signers):
        return False
    outcomes = {
        tuple(c.outcome for c in judgement.checks if c.required and c.tier is tier)
        for choice, judgement in zip(choices, judged, strict=True)
        if tier in choice
    }
    return len(outcomes) == 1


def _render(ruling: Ruling, form: str) -> str:
    if form != "json":
        return "\n".join([f"gate: {ruling.verdict}", ruling.about, *ruling.lines])
    document = {
        "schema_version": 1,
        "verdict": str(ruling.verdict),
        "reason": " ".join([ruling.about, *ruling.lines]),
        "findings": [f.model_dump(mode="json") for f in ruling.findings],
        "waivers": [
            {**r.waiver.model_dump(mode="json"), "signer": r.signer, "refusal": r.refusal}
            for r in ruling.waivers
        ],
    }
    return json.dumps(document, indent=2, allow_nan=False)
