"""Answers to the same request on all three arms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from harness.checks.joins.missing import arm_need, missing_ruling
from harness.checks.joins.ruling import Ruling
from harness.model.evaluation import SuiteItem
from harness.model.evidence import EvidenceSet, LedgerEvidence, SuiteEvidence
from harness.model.words import Arm, Outcome, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Triple:
    """One request as each arm answered it."""

    item: str
    baseline: SuiteItem
    candidate: SuiteItem
    again: SuiteItem

    @property
    def answers(self) -> tuple[SuiteItem, SuiteItem, SuiteItem]:
        """Baseline, candidate, baseline again."""
        return (self.baseline, self.candidate, self.again)

    @property
    def prompt(self) -> str:
        """The prompt's name: the cluster of the item."""
        return prompt_of(self.item)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteArms:
    """One suite on all three arms, with the candidate's ledger."""

    name: str
    baseline: SuiteEvidence
    candidate: SuiteEvidence
    again: SuiteEvidence
    ledger: LedgerEvidence

    def __iter__(self) -> Iterator[SuiteEvidence]:
        return iter((self.baseline, self.candidate, self.again))

    @property
    def evidence_ids(self) -> tuple[str, ...]:
        """Ids of all records involved."""
        return (*(suite.id for suite in self), self.ledger.id)


def prompt_of(item: str) -> str:
    """The prompt's name in an item's name: `p3` of `p3@c8` and of `p3/t0.3/s1/r0`."""
    return item.split("@")[0].split("/")[0]


def find_suite_arms(evidence: EvidenceSet, suite: str, tier: Tier) -> SuiteArms | Ruling:
    """The suite on all arms, or the ruling that says what is missing."""
    found = {arm: evidence.suite(suite, arm, tier) for arm in Arm}
    baseline, candidate, again = found[Arm.BASELINE], found[Arm.CANDIDATE], found[Arm.BASELINE_AGAIN]
    ledger = evidence.ledger(Arm.CANDIDATE, tier)
    perturbed = [record for record in found.values() if record is not None and record.perturbation]
    if perturbed:
        names = " and ".join(record.arm.replace("_", " ") for record in perturbed)
        text = f"The {suite} suite on the {names} arm was asked while it was made wrong on purpose."
        return Ruling(outcome=Outcome.ERROR, message=text, advice="Run the suite again.")
    if baseline is not None and candidate is not None and again is not None and ledger is not None:
        return SuiteArms(name=suite, baseline=baseline, candidate=candidate, again=again, ledger=ledger)
    absent = [arm for arm in Arm if found[arm] is None]
    if absent:
        what = f"the {suite} suite on the {' and '.join(a.replace('_', ' ') for a in absent)} arm"
        needs = (*(arm_need(arm) for arm in absent), *(f"suite {suite} on {arm}" for arm in absent))
        return missing_ruling(evidence, tier, what, *needs, "suites")
    return missing_ruling(evidence, tier, "the candidate's ledger", arm_need(Arm.CANDIDATE))


def pair_items(arms: SuiteArms) -> tuple[tuple[Triple, ...], Ruling | None]:
    """Requests answered on all three arms, and a ruling when they are not the same requests everywhere.

    A request that the candidate refused stays in the triples: its `error` is an answer. One that an off arm
    refused cannot be compared and is ruled on.
    """
    doubled = [
        f"{suite.arm}: {name} occurs {count} times"
        for suite in arms
        for name, count in Counter(item.item for item in suite.items).items()
        if count > 1
    ]
    if doubled:
        return (), Ruling(
            outcome=Outcome.ERROR,
            message=f"The {arms.name} suite holds requests twice, so answers cannot be paired.",
            details=tuple(doubled),
        )
    by_arm = {suite.arm: {item.item: item for item in suite.items} for suite in arms}
    names = list(dict.fromkeys(item.item for suite in arms for item in suite.items))
    if not names:
        return (), Ruling(
            outcome=Outcome.INCONCLUSIVE, message=f"The {arms.name} suite has no requests: nothing was tried."
        )
    everywhere = [name for name in names if all(name in items for items in by_arm.values())]
    triples = tuple(
        Triple(
            item=name,
            baseline=by_arm[Arm.BASELINE][name],
            candidate=by_arm[Arm.CANDIDATE][name],
            again=by_arm[Arm.BASELINE_AGAIN][name],
        )
        for name in everywhere
    )
    unlike = [
        t.item
        for t in triples
        if len({(i.row, i.sample) for i in t.answers}) > 1
        or len({_asked(i) for i in t.answers if not i.error}) > 1
    ]
    if unlike:
        return (), Ruling(
            outcome=Outcome.ERROR,
            message=f"{len(unlike)} requests of the {arms.name} suite were not asked alike on all arms.",
            details=tuple(unlike),
        )
    usable = tuple(t for t in triples if not t.baseline.error and not t.again.error)
    return usable, _incomplete(arms, by_arm, names, triples)


def _asked(item: SuiteItem) -> tuple[object, ...]:
    """What was asked, as far as an answered request tells."""
    return (
        item.num_prompt_tokens,
        item.concurrency,
        item.temperature,
        item.seed,
        item.schema_text,
        item.options_text,
    )


def _incomplete(
    arms: SuiteArms, by_arm: dict[Arm, dict[str, SuiteItem]], names: list[str], triples: tuple[Triple, ...]
) -> Ruling | None:
    lines = [f"{arm} has no {name}" for arm, items in by_arm.items() for name in names if name not in items]
    lines += [
        f"{t.item} failed on an off arm: {t.baseline.error or t.again.error}"
        for t in triples
        if t.baseline.error or t.again.error
    ]
    if not lines:
        return None
    return Ruling(
        outcome=Outcome.INCONCLUSIVE,
        message=f"{len(lines)} answers of the {arms.name} suite are missing or failed with the switch off; "
        f"a part of {len(names)} requests does not speak for all.",
        advice="Run the suite again; if requests fail with the switch off, the engine or the suite is at fault.",
        details=tuple(lines),
    )
