"""ISO002: with the switch unset, and with it explicitly off, the engine is the plain one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.checks.joins.missing import arm_need, missing_ruling
from harness.checks.joins.ruling import Ruling, finding_of
from harness.checks.joins.token_steps import TokenSteps, index_token_steps
from harness.model.check import BaseCheck, CheckContext
from harness.model.evaluation import SuiteItem, TokenLogprobs
from harness.model.evidence import LedgerEvidence, SuiteEvidence
from harness.model.finding import Finding, Measurement
from harness.model.ledger import Path, path_of
from harness.model.manifest import Manifest
from harness.model.words import Arm, Outcome, Principle, Tier

SUITES = ("greedy", "teacher_forced")
MAX_LOGPROB_DIFFERENCE = 5e-4
"""Nats. Two runs of one single-precision program differ by their batches: up to 6e-5 on the 2-core EPYC of our CI."""
MAX_OWN_NOISE = 2.5e-2
"""Nats by which the plain engine may differ from itself between batches and still widen the limit: BF16's rounding."""
OFF_ARMS = (Arm.BASELINE, Arm.BASELINE_AGAIN)


class DefaultOff(BaseCheck):
    """Unset against explicitly off: answers, imported modules, code that ran."""

    id = "ISO002"
    title = "Without the switch, and with it off, nothing of the specialised path is imported or runs"
    principle = Principle.ISOLATION
    tier = Tier.CPU
    requires = ("COR005",)
    how = (
        "Compares the answers of a server without the switch and of one with it off, token by token; their module "
        "lists hold no specialised module, their ledgers no specialised step."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """One finding each for answers (by suite), imports and code that ran."""
        return [
            *self._answers(context),
            self._imports(context),
            self._code(context),
        ]

    def _answers(self, context: CheckContext) -> list[Finding]:
        findings = []
        for name in SUITES:
            suites = [context.evidence.suite(name, arm, self.tier) for arm in OFF_ARMS]
            ledgers = [context.evidence.ledger(arm, self.tier) for arm in OFF_ARMS]
            unset, off = suites
            if unset is None or off is None or ledgers[0] is None or ledgers[1] is None:
                needs = [f"suite {name} on {arm}" for arm in OFF_ARMS] + [arm_need(arm) for arm in OFF_ARMS]
                what = f"the {name} suite with the switch unset and with it off"
                ruling = missing_ruling(context.evidence, self.tier, what, *needs, "suites")
                findings.append(finding_of(self, f"answers, {name}", ruling))
                continue
            steps = (
                _steps_of(ledgers[0], context.manifest, unset),
                _steps_of(ledgers[1], context.manifest, off),
            )
            ids = (unset.id, off.id, ledgers[0].id, ledgers[1].id)
            findings.append(finding_of(self, f"answers, {name}", decide_answers(unset, off, steps), ids))
        return findings

    def _imports(self, context: CheckContext) -> Finding:
        sessions = {arm: context.evidence.sessions(arm, self.tier) for arm in Arm}
        absent = [arm for arm, records in sessions.items() if not records]
        if absent:
            what = f"the module list of {' and '.join(absent)}"
            ruling = missing_ruling(context.evidence, self.tier, what, *(arm_need(a) for a in absent))
            return finding_of(self, "imports", ruling)
        ids = tuple(record.id for records in sessions.values() for record in records)
        modules = {
            arm: sorted({name for record in records for name in record.modules})
            for arm, records in sessions.items()
        }
        return finding_of(
            self, "imports", decide_imports(modules, context.manifest.dispatch.never_imported_when_off), ids
        )

    def _code(self, context: CheckContext) -> Finding:
        ledgers = [context.evidence.ledger(arm, self.tier) for arm in OFF_ARMS]
        present = [ledger for ledger in ledgers if ledger is not None]
        if len(present) < len(OFF_ARMS):
            ruling = missing_ruling(
                context.evidence, self.tier, "the ledgers of the off arms", *(arm_need(a) for a in OFF_ARMS)
            )
            return finding_of(self, "code that ran", ruling)
        return finding_of(
            self, "code that ran", decide_code(present, context.manifest), [ledger.id for ledger in present]
        )


def _steps_of(ledger: LedgerEvidence, manifest: Manifest, suite: SuiteEvidence) -> TokenSteps:
    return index_token_steps(ledger, manifest, (item.request_id for item in suite.items))


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemDifference:
    """How one request's answer differs between the off arms."""

    text: str
    """Empty when it does not."""
    largest: float
    """Largest difference of a log probability, nats."""


def decide_answers(unset: SuiteEvidence, off: SuiteEvidence, steps: tuple[TokenSteps, TokenSteps]) -> Ruling:
    """Whether the two off arms answered alike.

    Requests that ran in steps of other batches on the two arms may round differently: where such a request differs,
    it decides nothing.
    """
    if len({i.item for i in unset.items}) < len(unset.items) or len({i.item for i in off.items}) < len(
        off.items
    ):
        return Ruling(outcome=Outcome.ERROR, message=f"The {unset.suite} suite holds requests twice.")
    others = {item.item: item for item in off.items}
    names = {item.item for item in unset.items}
    absent = sorted(names ^ others.keys())
    pairs = [(item, others[item.item]) for item in unset.items if item.item in others]
    compared = [(a, b) for a, b in pairs if a.token_ids and a.top_logprobs and not a.error]
    if not compared or absent or len(compared) < len(pairs):
        return Ruling(
            outcome=Outcome.INCONCLUSIVE,
            message=f"{len(compared)} of {len(names | others.keys())} requests have answers with log probabilities "
            "on both off arms; all are needed.",
            details=tuple(absent) + tuple(f"{a.item}: {a.error}" for a, _ in pairs if a.error),
        )
    limit = max(MAX_LOGPROB_DIFFERENCE, 2 * min(own_noise(unset.items), MAX_OWN_NOISE))
    differences = {a.item: _difference(a, b, limit) for a, b in compared}
    differing = [(a, b) for a, b in compared if differences[a.item].text]
    alike = [(a, b) for a, b in differing if _batches(a, steps[0]) == _batches(b, steps[1])]
    lines = tuple(f"{a.item}: {differences[a.item].text}" for a, _ in differing)
    largest = max(d.largest for d in differences.values())
    measurement = Measurement(
        name=f"largest log-probability difference, {unset.suite}",
        unit="nats",
        estimate=largest,
        margin=limit,
        n=len(compared),
    )
    outcome = Outcome.PASS if not differing else Outcome.FAIL if alike else Outcome.INCONCLUSIVE
    if outcome is Outcome.PASS:
        text = (
            f"All {len(compared)} answers are the same tokens but for ties, log probabilities within "
            f"{largest:.1e} nats."
        )
    else:
        text = (
            f"{len(differing)} of {len(compared)} answers differ between the switch unset and off, "
            f"{len(alike)} of them in steps of the same batch."
        )
    return Ruling(
        outcome=outcome,
        message=text,
        advice="The off value must mean what leaving the key out means." if outcome is Outcome.FAIL else "",
        measurements=(measurement,),
        details=lines,
    )


def _batches(item: SuiteItem, steps: TokenSteps) -> list[int]:
    return [step.batch for step in steps.get(item.request_id, ())]


def own_noise(items: Sequence[SuiteItem]) -> float:
    """Nats by which the answers of one engine to one prompt differ between concurrencies, at most; 0 for no pairs.

    That is what its rounding depends on; a limit below it would reject an engine for being itself.
    """
    first: dict[str, SuiteItem] = {}
    shifts = [0.0]
    for item in items:
        other = first.setdefault(item.item.partition("@")[0], item)
        for position, (a, b) in enumerate(zip(other.top_logprobs, item.top_logprobs, strict=False)):
            shifts.append(_shift(a, b))
            if other.token_ids[position : position + 1] != item.token_ids[position : position + 1]:
                break
    return max(shifts)


def _shift(a: TokenLogprobs, b: TokenLogprobs) -> float:
    """Largest difference of a log probability of `a` in `b`."""
    right = dict(zip(b.token_ids, b.logprobs, strict=False))
    end = min(b.logprobs, default=0.0)
    # A token at the end of one list may have dropped out of the other; its bound stands for it.
    pairs = zip(a.token_ids, a.logprobs, strict=False)
    return max((abs(value - right.get(token, end)) for token, value in pairs), default=0.0)


def _difference(unset: SuiteItem, off: SuiteItem, limit: float) -> ItemDifference:
    if off.error:
        return ItemDifference(text=f"refused when off: {off.error}", largest=0.0)
    largest = 0.0
    for position, (a, b) in enumerate(zip(unset.top_logprobs, off.top_logprobs, strict=False)):
        if a.num_not_finite or b.num_not_finite:
            return ItemDifference(text=f"not finite at token {position}", largest=largest)
        shift = _shift(a, b)
        largest = max(largest, shift)
        if shift > limit:
            return ItemDifference(
                text=f"log probabilities differ by {shift:.1e} at token {position}", largest=largest
            )
        chosen = [ids[position : position + 1] for ids in (unset.token_ids, off.token_ids)]
        if chosen[0] != chosen[1] and _is_tie(a, chosen, limit):
            # From here on the two answer different questions.
            return ItemDifference(text="", largest=largest)
    if unset.token_ids != off.token_ids or unset.finish_reason != off.finish_reason:
        return ItemDifference(text="other tokens or another end", largest=largest)
    if len(unset.top_logprobs) != len(off.top_logprobs):
        return ItemDifference(text="log probabilities of other tokens", largest=largest)
    return ItemDifference(text="", largest=largest)


def _is_tie(top: TokenLogprobs, chosen: Sequence[tuple[int, ...]], limit: float) -> bool:
    """Whether the tokens are as likely as each other, within what two runs may differ by."""
    known = dict(zip(top.token_ids, top.logprobs, strict=False))
    values = [known.get(token) for tokens in chosen for token in tokens]
    found = [value for value in values if value is not None]
    return len(found) == len(chosen) and max(found) - min(found) <= 2 * limit


def decide_imports(modules: Mapping[Arm, Sequence[str]], prefixes: Sequence[str]) -> Ruling:
    """No off arm imported a module below the prefixes, and the candidate shows that such modules would be seen."""
    if not prefixes:
        return Ruling(
            outcome=Outcome.NOT_RUN,
            message="The manifest names no modules under [dispatch] never_imported_when_off.",
            advice="Name the packages that only the specialised path needs.",
        )
    found = {arm: _below(names, prefixes) for arm, names in modules.items()}
    loaded = {arm: found[arm] for arm in OFF_ARMS if found[arm]}
    if loaded:
        return Ruling(
            outcome=Outcome.FAIL,
            message=f"{sum(map(len, loaded.values()))} specialised modules were imported with the switch off.",
            advice="Import them where the switch is read as on, not at the top of a module that is always loaded.",
            details=tuple(f"{arm}: {module}" for arm, modules in loaded.items() for module in modules),
        )
    if not found[Arm.CANDIDATE]:
        return Ruling(
            outcome=Outcome.INCONCLUSIVE,
            message="The candidate's module list has none of the named modules either, so their absence in the off "
            "arms shows nothing.",
            advice="Check the prefixes under [dispatch] never_imported_when_off.",
        )
    unseen = [p for p in prefixes if not _below(modules[Arm.CANDIDATE], [p])]
    return Ruling(
        outcome=Outcome.PASS,
        message=f"No off arm imported a module below {', '.join(prefixes)}; the candidate imported "
        f"{len(found[Arm.CANDIDATE])}.",
        details=tuple(f"{p}: not imported by the candidate on this tier either" for p in unseen),
    )


def _below(modules: Sequence[str], prefixes: Sequence[str]) -> tuple[str, ...]:
    return tuple(m for m in modules if any(m == p or m.startswith(f"{p}.") for p in prefixes))


def decide_code(ledgers: Sequence[LedgerEvidence], manifest: Manifest) -> Ruling:
    """Every step of the off arms was the baseline's alone."""
    rows = [(ledger.arm, row) for ledger in ledgers for row in ledger.rows if row.num_reqs]
    if any(not ledger.rows for ledger in ledgers) or not rows:
        return Ruling(outcome=Outcome.INCONCLUSIVE, message="An off arm's ledger has no step.")
    wrong = [(arm, row) for arm, row in rows if path_of(row, manifest.dispatch.targets) is not Path.BASELINE]
    if wrong:
        return Ruling(
            outcome=Outcome.FAIL,
            message=f"{len(wrong)} of {len(rows)} steps with the switch off decided for, or ran, specialised code, "
            "or did not run the baseline's.",
            advice="Nothing of the path may run unless the switch is on.",
            details=tuple(f"{arm}: step {row.step}: {dict(row.ran)}" for arm, row in wrong),
        )
    return Ruling(
        outcome=Outcome.PASS,
        message=f"All {len(rows)} steps with the switch unset or off ran the baseline's code.",
    )
