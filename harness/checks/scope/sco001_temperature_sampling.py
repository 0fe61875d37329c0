"""SCO001: seeded sampling works on the candidate: the temperature and the seed are obeyed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.checks.joins.agreement import AgreementCounts, decide_agreement
from harness.checks.joins.pairing import Triple
from harness.checks.joins.ruling import Ruling, finding_of
from harness.checks.joins.served_share import decide_share, fallback_reasons
from harness.checks.joins.token_steps import count_token_steps, index_token_steps
from harness.checks.scope.answers import read_answers
from harness.model.check import BaseCheck, CheckContext
from harness.model.features import Feature
from harness.model.finding import Finding, Measurement
from harness.model.policy import Policy
from harness.model.words import Outcome, Principle, Tier
from harness.stats.exact_tests import sign_test_p

FEATURE: Feature = "temperature_sampling"
SUITE = "sampling"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One prompt, temperature and seed, asked more than once."""

    prompt: str
    temperature: float
    seed: int
    repeats: tuple[Triple, ...]

    @property
    def first(self) -> Triple:
        """The first time it was asked."""
        return self.repeats[0]


class TemperatureSampling(BaseCheck):
    """Same seed, same tokens; other seeds, other tokens; the right temperature; all of it served specialised."""

    id = "SCO001"
    title = "Sampling with a temperature and a seed works on the specialised path as on the baseline"
    principle = Principle.SCOPE
    tier = Tier.CPU
    requires = ("COR005",)
    how = (
        "Asks each prompt, temperature and seed twice; seeded tokens must equal the baseline's as often as a second "
        "baseline's do, at each temperature; repeats must agree, seeds must differ."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """Findings for the path, each temperature, the repeats and the seeds."""
        answers = read_answers(self, context, feature=FEATURE, suite=SUITE, subject="sampled answers")
        if isinstance(answers, Finding):
            return [answers]
        arms, triples, findings = answers.arms, answers.triples, list(answers.findings)
        evidence = arms.evidence_ids
        if not triples:
            return findings
        steps = index_token_steps(arms.ledger, context.manifest, (t.candidate.request_id for t in triples))
        items = [t.candidate for t in triples]
        rulings = {
            "served by the specialised path": decide_share(
                count_token_steps(steps, items),
                "sampled requests",
                context.policy.min_specialized_share,
                fallback_reasons(steps, items),
            ),
            **decide_sampling(triples, context.policy),
        }
        findings += [finding_of(self, subject, ruling, evidence) for subject, ruling in rulings.items()]
        return findings


def decide_sampling(triples: Sequence[Triple], policy: Policy) -> Mapping[str, Ruling]:
    """The rulings by subject: each temperature, repeats, seeds."""
    draws = group_draws(triples)
    temperatures = sorted({d.temperature for d in draws})
    rulings = {}
    for temperature in temperatures:
        rulings[f"temperature {temperature:g}"] = decide_temperature(draws, temperature, policy)
    if len(temperatures) < 2:
        rulings["temperatures"] = Ruling(
            outcome=Outcome.INCONCLUSIVE,
            message="Fewer than two temperatures above 0 were sampled, so nothing shows that the value matters.",
        )
    if all(t.baseline.concurrency == 1 for t in triples):
        rulings["several at once"] = Ruling(
            outcome=Outcome.INCONCLUSIVE,
            message="Every draw was alone, so nothing shows that neighbours in a batch have their own seed and "
            "temperature.",
        )
    rulings["same seed again"] = decide_repeats(draws, policy)
    rulings["other seeds"] = decide_seeds(draws, policy)
    return rulings


def group_draws(triples: Sequence[Triple]) -> tuple[Draw, ...]:
    """Requests with a seed and a temperature above 0, grouped by prompt, temperature and seed."""
    groups: dict[tuple[str, float, int], list[Triple]] = {}
    for triple in triples:
        temperature, seed = triple.baseline.temperature, triple.baseline.seed
        if seed is not None and temperature > 0:
            groups.setdefault((triple.prompt, temperature, seed), []).append(triple)
    return tuple(
        Draw(prompt=prompt, temperature=temperature, seed=seed, repeats=tuple(group))
        for (prompt, temperature, seed), group in groups.items()
    )


def decide_temperature(draws: Sequence[Draw], temperature: float, policy: Policy) -> Ruling:
    """Whether draws at one temperature give the baseline's tokens as often as the baseline again does.

    The engine draws from a generator of the request's own seed, so that nearly equal distributions give equal
    tokens, and another temperature gives others. Only draws whose answer on the baseline changes with the
    temperature can show the difference: only they count.
    """
    what = f"draws at temperature {temperature:g}"
    answers: dict[tuple[str, int], set[tuple[int, ...]]] = {}
    for draw in draws:
        answers.setdefault((draw.prompt, draw.seed), set()).add(draw.first.baseline.token_ids)
    here = [d for d in draws if d.temperature == temperature]
    telling = [d for d in here if len(answers[d.prompt, d.seed]) > 1]
    counts = AgreementCounts.of(
        (_agrees(d.first), _noise_agrees(d.first), _noise_agrees(d.first)) for d in telling
    )
    ruling = decide_agreement(counts, what, policy.greedy_margin, policy.alpha)
    differing = tuple(
        f"{d.first.item}: {_first_difference(d.first)}" for d in telling if not _agrees(d.first)
    )
    note = f"{len(telling)} of {len(here)} draws change with the temperature on the baseline."
    advice = ruling.advice
    if ruling.outcome is Outcome.FAIL:
        advice = (
            "Check that the candidate's steps pass the request's temperature and generator to the sampler."
        )
    return replace(ruling, message=f"{ruling.message} {note}", advice=advice, details=differing)


def _agrees(triple: Triple) -> bool:
    return not triple.candidate.error and triple.candidate.token_ids == triple.baseline.token_ids


def _noise_agrees(triple: Triple) -> bool:
    return triple.again.token_ids == triple.baseline.token_ids


def _first_difference(triple: Triple) -> str:
    if triple.candidate.error:
        return f"the candidate refused: {triple.candidate.error}"
    pairs = list(zip(triple.baseline.token_ids, triple.candidate.token_ids, strict=False))
    position = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
    return f"differs from the baseline at token {position}"


def decide_repeats(draws: Sequence[Draw], policy: Policy) -> Ruling:
    """Whether the same seed gives the same tokens again, as often as on the baseline."""
    repeated = [d for d in draws if len(d.repeats) > 1]
    if not repeated:
        return Ruling(outcome=Outcome.INCONCLUSIVE, message="No draw was asked twice with the same seed.")
    rows = [
        (
            len({(t.candidate.token_ids, t.candidate.error) for t in d.repeats}) == 1
            and not d.first.candidate.error,
            len({t.baseline.token_ids for t in d.repeats}) == 1,
        )
        for d in repeated
    ]
    counts = AgreementCounts.of((cand, base, base) for cand, base in rows)
    ruling = decide_agreement(counts, "draws asked twice", policy.greedy_margin, policy.alpha)
    return replace(
        ruling,
        message=f"{counts.candidate} of {counts.n} draws gave the same tokens when asked again with the same seed "
        f"(baseline {counts.noise}).",
        advice="A request's seed must reach the sampler whatever the batch is."
        if ruling.outcome is Outcome.FAIL
        else ruling.advice,
        details=tuple(
            f"{d.first.item}: other tokens the second time"
            for d, (cand, _) in zip(repeated, rows, strict=True)
            if not cand
        ),
    )


def decide_seeds(draws: Sequence[Draw], policy: Policy) -> Ruling:
    """Whether other seeds give other answers on each prompt and temperature, as on the baseline."""
    groups: dict[tuple[str, float], list[Draw]] = {}
    for draw in draws:
        groups.setdefault((draw.prompt, draw.temperature), []).append(draw)
    rows = [
        (
            len({d.first.candidate.token_ids for d in group}),
            len({d.first.baseline.token_ids for d in group}),
            f"{group[0].prompt} at temperature {group[0].temperature:g}",
        )
        for group in groups.values()
        if len(group) > 1
    ]
    varied = [row for row in rows if row[1] > 1]
    if not varied:
        return Ruling(
            outcome=Outcome.INCONCLUSIVE,
            message="The baseline gives one answer whatever the seed, so nothing shows that seeds matter.",
            advice="Sample prompts on which the model is less certain, or more tokens.",
        )
    found, wanted = sum(cand for cand, _, _ in varied), sum(base for _, base, _ in varied)
    worse = sum(cand < base for cand, base, _ in varied)
    better = sum(cand > base for cand, base, _ in varied)
    if found >= (1 - policy.greedy_margin) * wanted:
        outcome = Outcome.PASS
    else:
        outcome = Outcome.FAIL if sign_test_p(worse, better) <= policy.alpha else Outcome.INCONCLUSIVE
    return Ruling(
        outcome=outcome,
        message=f"Over {len(varied)} prompts and temperatures, other seeds gave {found} distinct answers "
        f"(baseline {wanted}, margin {policy.greedy_margin:.0%}).",
        advice=""
        if outcome is Outcome.PASS
        else "The candidate ignores the seed, or does not sample at all.",
        measurements=(
            Measurement(
                name="distinct answers over seeds, candidate / baseline",
                unit="ratio",
                estimate=found / wanted,
                margin=1 - policy.greedy_margin,
                n=len(varied),
            ),
        ),
        details=tuple(
            f"{name}: {cand} distinct answers, baseline {base}" for cand, base, name in rows if cand < base
        ),
    )
