"""Whether a cell that was collected once more says the same: fields exactly, answers within what A/A runs show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from harness.model.evaluation import SuiteItem
from harness.model.evidence import AnyEvidence, EvidenceSet, SuiteEvidence
from harness.model.finding import Finding
from harness.model.policy import Policy
from harness.model.words import Arm
from harness.stats.exact_tests import fisher_p

ABOUT_THE_RUN = {"recorded_at", "hardware"}
_ASKED = ("item", "row", "sample", "num_prompt_tokens", "temperature", "seed", "options_text", "schema_text")


class Sameness(StrEnum):
    """What a second collection says of the first."""

    SAME = "same"
    DIFFERS = "differs"
    COULD_NOT_RUN = "could not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One cell, collected again."""

    cell: str
    sameness: Sameness
    reason: str


def compare_records(cell: str, stored: AnyEvidence, again: AnyEvidence) -> Comparison:
    """Every field but time and hardware must be equal."""
    left, right = (r.model_dump(mode="json", exclude=ABOUT_THE_RUN) for r in (stored, again))
    fields = [name for name in left if left[name] != right[name]]
    if fields:
        return Comparison(cell=cell, sameness=Sameness.DIFFERS, reason=f"other {', '.join(fields)}")
    return Comparison(cell=cell, sameness=Sameness.SAME, reason="every field is equal")


def compare_suites(
    cell: str, stored: SuiteEvidence, again: SuiteEvidence, evidence: EvidenceSet, policy: Policy
) -> Comparison:
    """What was asked must be equal, and no more answers may differ than between the bundle's two baselines.

    More means: Fisher's one-sided test at the policy's alpha, for answers' tokens; for log probabilities, the policy's
    ratio between the mean difference here and that of the two baselines.
    """
    if [_asked(item) for item in stored.items] != [_asked(item) for item in again.items]:
        return Comparison(cell=cell, sameness=Sameness.DIFFERS, reason="other requests were sent")
    num_other, drift = _num_other(stored.items, again.items), _drift(stored.items, again.items)
    said = f"{num_other} of {len(stored.items)} answers have other tokens"
    if drift is not None:
        said += f", log probabilities differ by {drift:.2g} nats on average"
    if num_other == 0 and not drift:
        return Comparison(cell=cell, sameness=Sameness.SAME, reason=said)
    twins = [evidence.suite(stored.suite, arm, stored.tier) for arm in (Arm.BASELINE, Arm.BASELINE_AGAIN)]
    first, second = twins
    if first is None or second is None or len(first.items) != len(second.items):
        return Comparison(
            cell=cell, sameness=Sameness.DIFFERS, reason=f"{said}; the bundle has no A/A pair of it"
        )
    aa_other, aa_drift = _num_other(first.items, second.items), _drift(first.items, second.items)
    said += f"; between the two baselines {aa_other} of {len(first.items)}"
    said += f" and {aa_drift:.2g} nats" if aa_drift is not None else ""
    p = fisher_p(num_other, len(stored.items), aa_other, len(first.items))
    limit = policy.token_level.max_mean_kl_ratio * (aa_drift or 0.0) + policy.token_level.kl_floor
    is_beyond = p < policy.alpha or (drift is not None and drift > limit)
    return Comparison(cell=cell, sameness=Sameness.DIFFERS if is_beyond else Sameness.SAME, reason=said)


def compare_findings(cell: str, stored: Sequence[Finding], again: Sequence[Finding]) -> Comparison:
    """Findings on a cell: the outcomes must be equal, and the intervals of every measurement must overlap."""
    left, right = _by_subject(stored), _by_subject(again)
    problems = [
        f"{check} {subject} was {left[check, subject].outcome}, is "
        f"{right[check, subject].outcome if (check, subject) in right else 'not there'}"
        for check, subject in left
        if (check, subject) not in right or left[check, subject].outcome != right[check, subject].outcome
    ]
    for key in left.keys() & right.keys():
        numbers = {m.name: m for m in right[key].measurements}
        for mine in left[key].measurements:
            other = numbers.get(mine.name)
            if other is None or None in (mine.ci_low, mine.ci_high, other.ci_low, other.ci_high):
                continue
            assert mine.ci_low is not None and mine.ci_high is not None
            assert other.ci_low is not None and other.ci_high is not None
            if mine.ci_high < other.ci_low or other.ci_high < mine.ci_low:
                problems.append(
                    f"{key[0]} {key[1]}: {mine.name} was {mine.estimate:.4g}, is {other.estimate:.4g}"
                )
    if not left:
        return Comparison(cell=cell, sameness=Sameness.COULD_NOT_RUN, reason="no finding rests on it")
    if problems:
        return Comparison(cell=cell, sameness=Sameness.DIFFERS, reason="; ".join(sorted(problems)))
    checks = ", ".join(sorted({check for check, _ in left}))
    return Comparison(cell=cell, sameness=Sameness.SAME, reason=f"the findings of {checks} come out the same")


def _by_subject(findings: Sequence[Finding]) -> Mapping[tuple[str, str], Finding]:
    return {(finding.check, finding.subject): finding for finding in findings}


def _asked(item: SuiteItem) -> tuple[object, ...]:
    return tuple(getattr(item, name) for name in _ASKED)


def _num_other(left: Sequence[SuiteItem], right: Sequence[SuiteItem]) -> int:
    return sum(_answer(a) != _answer(b) for a, b in zip(left, right, strict=True))


def _answer(item: SuiteItem) -> tuple[object, ...]:
    choices = tuple(choice.token_ids for choice in item.choices)
    return (item.token_ids, choices, item.finish_reason, bool(item.error))


def _drift(left: Sequence[SuiteItem], right: Sequence[SuiteItem]) -> float | None:
    """Mean absolute difference, in nats, of what both say of the same token at the same place; None without any."""
    found = []
    for a, b in zip(left, right, strict=True):
        for mine, other in chain(
            zip(a.top_logprobs, b.top_logprobs, strict=False),
            zip(a.prompt_logprobs, b.prompt_logprobs, strict=False),
        ):
            theirs = dict(zip(other.token_ids, other.logprobs, strict=True))
            found += [
                abs(value - theirs[token])
                for token, value in zip(mine.token_ids, mine.logprobs, strict=True)
                if token in theirs
            ]
    return sum(found) / len(found) if found else None
